//! The files of the page, which are inside the program.

use axum::Router;
use axum::http::{HeaderName, HeaderValue, header};
use axum::routing::get;

/// A file of the page, its type and its content.
type PageFile = (&'static str, &'static str, &'static str);

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const ICON: &str = "image/svg+xml";

const FILES: [PageFile; 11] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/style.css", STYLE, include_str!("page/style.css")),
    ("/icon.svg", ICON, include_str!("page/icon.svg")),
    ("/main.js", SCRIPT, include_str!("page/main.js")),
    ("/connection.js", SCRIPT, include_str!("page/connection.js")),
    ("/elections.js", SCRIPT, include_str!("page/elections.js")),
    ("/list.js", SCRIPT, include_str!("page/list.js")),
    ("/details.js", SCRIPT, include_str!("page/details.js")),
    ("/changes.js", SCRIPT, include_str!("page/changes.js")),
    ("/timeline.js", SCRIPT, include_str!("page/timeline.js")),
    ("/text.js", SCRIPT, include_str!("page/text.js")),
];

/// Nothing but the files and the data of this server, and in no frame of another page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types";

/// The headers of every response.
pub const HEADERS: [(HeaderName, HeaderValue); 5] = [
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    // The program may be another version after its next start.
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

/// The routes of the files.
pub fn routes() -> Router {
    FILES.into_iter().fold(Router::new(), |routes, (path, kind, content)| {
        routes.route(path, get(async move || ([(header::CONTENT_TYPE, kind)], content)))
    })
}
