//! The routes of the page: its files, its events, and what it asks of the lock.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router, middleware};
use futures_util::stream;
use incumbent::Token;
use incumbent::lock::Pause;
use serde::Deserialize;
use serde_json::{Value, json};
use time::{OffsetDateTime, SignedDuration};
use tokio::sync::Semaphore;

use super::hub::Hub;
use super::reader::{self, not_shown};
use super::updates::as_text;
use crate::console::history::Recording;
use crate::console::model::{Answer, Command};
use crate::error::{CliError, Code};
use crate::http::{Access, Extent, Guard, GuardedRoutes};
use crate::lock::elections::{Holder, HolderPod};

/// The most bytes of the body of a request: names and identities.
const MAX_BODY: usize = 16 * 1024;

/// How many histories are computed at once.
const READS: usize = 2;
/// How far back a page reads a recording.
const RECORDED: SignedDuration = SignedDuration::days(31);

/// A recording, which elections of it are shown, and how often it may be read at once.
#[derive(Clone)]
struct Reads {
    recording: Recording,
    hub: Hub,
    at_once: Arc<Semaphore>,
}

type Failure = (StatusCode, Json<Value>);

/// All routes of the page.
pub fn routes(hub: Hub, recording: Option<Recording>, guard: &Guard) -> GuardedRoutes {
    let mut data =
        Router::new().route("/api/events", get(follow)).route("/api/roll-call", post(call_roll));
    if hub.allows_changes() {
        data = data
            .route("/api/evict", post(evict))
            .route("/api/move", post(hand_over))
            .route("/api/pause", post(pause));
    }
    let mut data = data.with_state(hub.clone());
    if let Some(recording) = recording {
        let reads = Reads { recording, hub, at_once: Arc::new(Semaphore::new(READS)) };
        data = data.merge(Router::new().route("/api/history", post(history)).with_state(reads));
    }
    let data = data.layer(DefaultBodyLimit::max(MAX_BODY)).layer(middleware::from_fn(allow_time));
    let headers = middleware::map_response(async |mut response: Response| {
        response.headers_mut().extend(HEADERS);
        response
    });
    GuardedRoutes::default()
        .with(guard, Access::Public, files())
        .with(guard, Access::ReadWithToken, data)
        .map(|routes| routes.layer(headers))
}

/// Keeps the connection for as long as a request may take.
async fn allow_time(
    Extension(extent): Extension<Extent>,
    request: axum::extract::Request,
    next: middleware::Next,
) -> Response {
    extent.extend(reader::WITHIN);
    next.run(request).await
}

async fn follow(
    State(hub): State<Hub>,
    Extension(extent): Extension<Extent>,
) -> Result<Response, Failure> {
    match hub.viewer() {
        Some(viewer) => {
            let events = stream::unfold(viewer, async |mut viewer| {
                let event = viewer.next().await?;
                Some((event, viewer))
            });
            Ok(extent.events(events).into_response())
        }
        None => Err(refused(StatusCode::SERVICE_UNAVAILABLE, "too many browsers show this page")),
    }
}

/// An election, and for some requests its term, as the page was sent it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    election: String,
    leader: Option<String>,
    /// As text: a number of a page is exact up to 2^53 only.
    token: Option<String>,
    pod: Option<Pod>,
    /// The candidate to move to.
    to: Option<String>,
    /// How long to pause; 0: resume.
    seconds: Option<u64>,
}

/// What distinguishes the pod of a leader for life from others of its name.
#[derive(Deserialize)]
struct Pod {
    uid: String,
    lock: String,
}

type Body = Result<Json<Question>, JsonRejection>;

async fn call_roll(State(hub): State<Hub>, body: Body) -> Result<Json<Value>, Failure> {
    let question = parsed(body)?;
    answer(hub.ask(question.election, Command::CallRoll).await)
}

async fn evict(State(hub): State<Hub>, body: Body) -> Result<Json<Value>, Failure> {
    let mut question = parsed(body)?;
    let holder = question.holder()?;
    answer(hub.ask(question.election, Command::Evict(holder)).await)
}

async fn hand_over(State(hub): State<Hub>, body: Body) -> Result<Json<Value>, Failure> {
    let mut question = parsed(body)?;
    let holder = question.holder()?;
    answer(hub.ask(question.election, Command::Move(holder, question.to)).await)
}

async fn pause(State(hub): State<Hub>, body: Body) -> Result<Json<Value>, Failure> {
    let question = parsed(body)?;
    let span = question.seconds.map(Duration::from_secs).filter(|span| *span <= Pause::MAX);
    let span = span.ok_or_else(|| refused(StatusCode::BAD_REQUEST, "seconds: 0 to 86400"))?;
    answer(hub.ask(question.election, Command::Pause(span)).await)
}

/// What was recorded of an election: the fields of `election history -o json`, or `null`.
async fn history(State(reads): State<Reads>, body: Body) -> Result<Json<Value>, Failure> {
    let question = parsed(body)?;
    if !reads.hub.shows(&question.election) {
        return Err(failed(&not_shown(&question.election)));
    }
    let _permit = reads.at_once.acquire().await; // never closed
    let since = OffsetDateTime::now_utc().checked_sub(RECORDED);
    match reads.recording.history(&question.election, since).await {
        Ok(history) => Ok(Json(history.map_or(Value::Null, |history| as_text(history.json())))),
        Err(failure) => Err(failed(&failure)),
    }
}

impl Question {
    /// The holder whose term is meant.
    fn holder(&mut self) -> Result<Holder, Failure> {
        let missing = || refused(StatusCode::BAD_REQUEST, "leader: the one whose term is meant");
        let leader = self.leader.take().ok_or_else(missing)?;
        let pod = self.pod.take().map(|Pod { uid, lock }| {
            Box::new(HolderPod { uid, phase: String::new(), gone: false, lock })
        });
        let token =
            self.token.take().map(|token| token.parse().map(Token).map_err(|_| missing_token()));
        Ok(Holder { pod, ..Holder::new(leader, token.transpose()?) })
    }
}

fn missing_token() -> Failure {
    refused(StatusCode::BAD_REQUEST, "token: the digits of a token, or null")
}

fn parsed(body: Body) -> Result<Question, Failure> {
    match body {
        Ok(Json(question)) => Ok(question),
        Err(error) => Err(refused(error.status(), &error.body_text())),
    }
}

fn answer(answer: Result<Answer, CliError>) -> Result<Json<Value>, Failure> {
    match answer {
        Ok(Answer::Roll(roll)) => Ok(Json(json!({"done": null, "answers": roll.len()}))),
        Ok(Answer::Done(line)) => Ok(Json(json!({ "done": line }))),
        Err(failure) => Err(failed(&failure)),
    }
}

fn failed(failure: &CliError) -> Failure {
    let status = match failure.code() {
        Some(Code::Usage) => StatusCode::BAD_REQUEST,
        Some(Code::NotFound) => StatusCode::NOT_FOUND,
        Some(Code::Denied) => StatusCode::FORBIDDEN,
        Some(Code::Unreachable) => StatusCode::SERVICE_UNAVAILABLE,
        Some(Code::Failed) | None => StatusCode::CONFLICT,
    };
    refused(status, &failure.to_string())
}

fn refused(status: StatusCode, why: &str) -> Failure {
    (status, Json(json!({ "error": why })))
}

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
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    // The program may be another version after its next start.
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

/// The routes of the files of the page.
fn files() -> Router {
    FILES.into_iter().fold(Router::new(), |routes, (path, kind, content)| {
        routes.route(path, get(async move || ([(header::CONTENT_TYPE, kind)], content)))
    })
}
