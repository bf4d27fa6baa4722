//! Server-sent events: what a browser is sent as long as it looks.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::time::{Instant, timeout_at};

use super::hub::Viewer;
use crate::http::Extent;

/// How long a browser is sent changes. The page connects again then.
const MAX_DURATION: Duration = Duration::from_secs(3600);

/// The response with the events of this browser.
pub fn respond(viewer: Viewer, extent: &Extent) -> Response {
    extent.extend(MAX_DURATION);
    let end = Instant::now() + MAX_DURATION;
    let events = stream::unfold((viewer, end), async |(mut viewer, end)| {
        let event = timeout_at(end, viewer.next()).await.ok()??;
        Some((Ok::<_, Infallible>(String::from(&*event)), (viewer, end)))
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
}
