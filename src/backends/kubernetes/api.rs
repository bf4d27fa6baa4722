//! Requests to the API server, and the meaning of its refusals.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::api::{
    DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchParams,
};
use kube::client::Body;
use kube::core::{Request, Status};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::answers::{self, Events};
use super::api_client::ApiClient;
use super::connection::without_secrets;
use super::record::RecordLocation;
use crate::lock::{LockError, LockErrorKind};
use crate::util::retry::{self, Attempt};
use crate::util::text::escape_line;

/// How long the API server may take to respond to a leader for life, or to its candidates.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Stands for the name of an object where all objects are meant.
pub(super) const EVERY: &str = "*";
/// The maximum length of a server's message in an error.
const MAX_MESSAGE_LEN: usize = 300;
/// How long a watch lasts before the next one continues it, in seconds: a connection through
/// proxies does not last indefinitely.
const WATCH_SECONDS: u32 = 290;

/// The objects of one kind in one namespace, or of a cluster-wide kind.
#[derive(Clone)]
pub(super) struct Objects {
    access: ApiClient,
    request: Request,
    /// As in `the Lease default/my-app`.
    kind: Cow<'static, str>,
    /// Empty for cluster-wide kinds.
    namespace: String,
    /// Whether a request that is not answered is sent again beside itself.
    hedges: bool,
}

/// How long a request has no answer before it is sent again.
const HEDGE: Duration = Duration::from_millis(300);

/// The reason why a request failed.
#[derive(Debug)]
pub(super) enum ApiFailure {
    /// The server refused the request.
    Refused(Box<Status>),
    /// The server refused the request, and may have applied an earlier attempt at it.
    InDoubt(Box<Status>),
    /// The outcome of the request is unknown.
    Lost(Box<dyn Error + Send + Sync>),
    /// No response arrived in time.
    TimedOut,
    /// The request could not be sent.
    Unsent(String),
}

impl ApiFailure {
    pub(super) fn code(&self) -> u16 {
        self.status().map_or(0, |status| status.code)
    }

    fn status(&self) -> Option<&Status> {
        match self {
            Self::Refused(status) | Self::InDoubt(status) => Some(status),
            _ => None,
        }
    }

    /// Whether the API server states that there is no such object. A 404 of a proxy does not state
    /// it, nor does one of a server that does not know the kind.
    pub(super) fn is_absence_of(&self, name: &str) -> bool {
        self.status().is_some_and(|status| {
            status.code == 404
                && status.reason == "NotFound"
                && status.details.as_ref().is_some_and(|details| details.name == name)
        })
    }

    /// Whether the object is gone, or was written by another client, so that a conditional write
    /// changed nothing.
    pub(super) fn is_change_of(&self, name: &str) -> bool {
        matches!(self, Self::Refused(_)) && self.is_conflict(name)
    }

    /// Whether the object is gone, or was written: by another client, or by an earlier attempt at
    /// the same write.
    pub(super) fn is_conflict(&self, name: &str) -> bool {
        self.code() == 409 || self.is_absence_of(name)
    }
}

impl Objects {
    pub(super) fn new(
        access: ApiClient,
        url_path: String,
        kind: impl Into<Cow<'static, str>>,
        namespace: &str,
    ) -> Self {
        let (request, kind) = (Request::new(url_path), kind.into());
        Self { access, request, kind, namespace: namespace.to_owned(), hedges: false }
    }

    /// Has each request sent again, on another connection, while it is not answered: after 0.3 s,
    /// and then after twice as long each time. The first answer counts. One of several API servers
    /// may be gone without a word.
    pub(super) fn hedged(self) -> Self {
        Self { hedges: true, ..self }
    }

    pub(super) fn kind(&self) -> &str {
        &self.kind
    }

    /// Describes an object, as in `ConfigMap default/my-app`.
    pub(super) fn describe(&self, name: &str) -> String {
        match &*self.namespace {
            "" => format!("{} {name}", self.kind),
            namespace => format!("{} {namespace}/{name}", self.kind),
        }
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn access(&self) -> &ApiClient {
        &self.access
    }

    pub(super) fn written_by_another(&self, name: &str) -> LockError {
        let message = format!("the {} was written by another client", self.describe(name));
        LockError::new(LockErrorKind::Conflict, message)
    }

    /// Reads an object, never a stale one: without a resourceVersion the server reads its store.
    pub(super) async fn get(
        &self,
        name: &str,
        deadline: Instant,
    ) -> Result<Option<Value>, ApiFailure> {
        match self.send(|| self.request.get(name, &GetParams::default()), deadline).await {
            Ok(object) => Ok(Some(object)),
            Err(failure) if failure.is_absence_of(name) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Lists all objects, or those that have this label; only the metadata if that carries what is
    /// looked for.
    pub(super) async fn list(
        &self,
        location: RecordLocation,
        label: Option<(&str, &str)>,
        deadline: Instant,
    ) -> Result<Value, ApiFailure> {
        let label_selector = label.map(|(key, value)| format!("{key}={value}"));
        let params = ListParams { label_selector, ..ListParams::default() };
        match location {
            RecordLocation::Spec => self.send(|| self.request.list(&params), deadline).await,
            RecordLocation::Annotation => {
                self.send(|| self.request.list_metadata(&params), deadline).await
            }
        }
    }

    pub(super) async fn create(
        &self,
        object: &Value,
        deadline: Instant,
    ) -> Result<Value, ApiFailure> {
        self.create_unless(false, object, deadline).await
    }

    /// Creates an object; with `dry_run` the server only checks whether it would.
    pub(super) async fn create_unless(
        &self,
        dry_run: bool,
        object: &Value,
        deadline: Instant,
    ) -> Result<Value, ApiFailure> {
        let params = PostParams { dry_run, ..PostParams::default() };
        self.send(|| self.request.create(&params, bytes(object)), deadline).await
    }

    /// Replaces an object whose `resourceVersion` and `uid` are those in `object`. Without the uid,
    /// the server would create a Lease again that was deleted meanwhile.
    pub(super) async fn replace(
        &self,
        name: &str,
        object: &Value,
        deadline: Instant,
    ) -> Result<Value, ApiFailure> {
        self.send(|| self.request.replace(name, &PostParams::default(), bytes(object)), deadline)
            .await
    }

    /// Merges annotations into an object, whatever its version is; `null` removes one.
    pub(super) async fn annotate(
        &self,
        name: &str,
        annotations: &Value,
        deadline: Instant,
    ) -> Result<Value, ApiFailure> {
        self.merge(false, name, json!({ "metadata": { "annotations": annotations } }), deadline)
            .await
    }

    /// Merges fields into an object, on the condition of a `resourceVersion` among them. With
    /// `dry_run` the server only checks whether it would.
    pub(super) async fn merge(
        &self,
        dry_run: bool,
        name: &str,
        fields: Value,
        deadline: Instant,
    ) -> Result<Value, ApiFailure> {
        let params = PatchParams { dry_run, ..PatchParams::default() };
        let patch = Patch::Merge(fields);
        self.send(|| self.request.patch(name, &params, &patch), deadline).await
    }

    /// Deletes an object if it still has this uid and, if given, this version.
    pub(super) async fn delete(
        &self,
        name: &str,
        uid: &str,
        version: Option<&str>,
        deadline: Instant,
    ) -> Result<(), ApiFailure> {
        let preconditions = Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: version.map(str::to_owned),
        };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        self.send(|| self.request.delete(name, &params), deadline).await.map(drop)
    }

    /// Watches one object, with bookmarks. `from`: the resourceVersion after which to begin;
    /// `None`: begins with the existing object.
    pub(super) async fn watch(
        &self,
        name: &str,
        from: Option<&str>,
        deadline: Instant,
    ) -> Result<Events, ApiFailure> {
        let params =
            WatchParams::default().fields(&format!("metadata.name={name}")).timeout(WATCH_SECONDS);
        self.events(|| self.request.watch(&params, from.unwrap_or_default()), deadline).await
    }

    /// Watches the object `only`, or all objects, beginning with the existing ones. Of all objects,
    /// only the metadata if that carries the record.
    pub(super) async fn watch_one_or_all(
        &self,
        only: Option<&str>,
        location: RecordLocation,
        deadline: Instant,
    ) -> Result<Events, LockError> {
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        let events = match (only, location) {
            (Some(name), _) => self.watch(name, None, deadline).await,
            (None, RecordLocation::Spec) => {
                self.events(|| self.request.watch(&params, ""), deadline).await
            }
            (None, RecordLocation::Annotation) => {
                self.events(|| self.request.watch_metadata(&params, ""), deadline).await
            }
        };
        let name = only.unwrap_or(EVERY);
        events.map_err(|failure| self.lock_error(failure, name, "watch", "watch", false))
    }

    async fn events<E: fmt::Display>(
        &self,
        request: impl Fn() -> Result<http::Request<Vec<u8>>, E>,
        deadline: Instant,
    ) -> Result<Events, ApiFailure> {
        let request = || {
            let mut request = request()?;
            let plain = http::HeaderValue::from_static("identity");
            request.headers_mut().insert(http::header::ACCEPT_ENCODING, plain);
            Ok::<_, E>(request)
        };
        let (_, parts, body) = self.receive(request, deadline).await?;
        if parts.status.is_success() {
            return Ok(answers::events(body));
        }
        let body = by(deadline, answers::whole(body)).await?;
        Err(ApiFailure::Refused(answers::refusal(parts.status.as_u16(), &body).boxed()))
    }

    /// Reads a resource that is not an object. Also returns the server's time in its own format
    /// (RFC 9110's IMF-fixdate).
    pub(super) async fn read_whole(
        &self,
        deadline: Instant,
    ) -> (Result<Value, ApiFailure>, Option<String>) {
        let request = || http::Request::get(&self.request.url_path).body(Vec::new());
        let (answer, headers) = self.exchange(request, deadline).await;
        let date = headers.get(http::header::DATE).and_then(|date| date.to_str().ok());
        (answer, date.map(str::to_owned))
    }

    async fn send<E: fmt::Display>(
        &self,
        request: impl Fn() -> Result<http::Request<Vec<u8>>, E>,
        deadline: Instant,
    ) -> Result<Value, ApiFailure> {
        self.exchange(request, deadline).await.0
    }

    /// Sends a request until `deadline`. If a server that is too busy states a short enough delay,
    /// the request is repeated after it. Also returns the headers of the response.
    async fn exchange<E: fmt::Display>(
        &self,
        request: impl Fn() -> Result<http::Request<Vec<u8>>, E>,
        deadline: Instant,
    ) -> (Result<Value, ApiFailure>, http::HeaderMap) {
        let writes = self.hedges && request().is_ok_and(|request| writes(&request));
        let unanswered = AtomicBool::new(false);
        let attempt = async || {
            if !self.hedges {
                return self.attempt(&request, deadline).await;
            }
            let (tried, sent) = retry::hedged(HEDGE, || self.attempt(&request, deadline)).await;
            unanswered.fetch_or(writes && sent > 1, Ordering::Relaxed);
            tried
        };
        let ((answer, headers), in_doubt) = retry::until(deadline, attempt).await;
        let answer = answer.map_err(|failure| match failure {
            // An attempt without an answer may be what this one was refused for. Not for a missing
            // right, or for what the server does not accept.
            ApiFailure::Refused(status)
                if in_doubt
                    || (unanswered.load(Ordering::Relaxed)
                        && !matches!(status.code, 400 | 401 | 403 | 422)) =>
            {
                ApiFailure::InDoubt(status)
            }
            failure => failure,
        });
        (answer, headers)
    }

    async fn attempt<E: fmt::Display>(
        &self,
        request: impl Fn() -> Result<http::Request<Vec<u8>>, E>,
        deadline: Instant,
    ) -> Attempt<(Result<Value, ApiFailure>, http::HeaderMap)> {
        let received = async {
            let (writes, parts, body) = self.receive(request, deadline).await?;
            Ok((writes, parts, by(deadline, answers::whole(body)).await?))
        };
        let (writes, parts, body) = match received.await {
            Ok(received) => received,
            Err(failure) => {
                let answer = (Err(failure), http::HeaderMap::new());
                return Attempt { answer, retry_after: None, in_doubt: false };
            }
        };
        let code = parts.status.as_u16();
        let answer = match parts.status.is_success() {
            true => serde_json::from_slice(&body)
                .map_err(|error| failure(kube::Error::SerdeError(error))),
            false => Err(ApiFailure::Refused(answers::refusal(code, &body).boxed())),
        };
        let retry_after = parts.headers.get(http::header::RETRY_AFTER);
        let retry_after = retry_after
            .and_then(|value| value.to_str().ok()?.parse().ok())
            .map(Duration::from_secs)
            .filter(|_| matches!(code, 429 | 503 | 504));
        // The server refuses with a 429 before it does anything.
        Attempt { answer: (answer, parts.headers), retry_after, in_doubt: writes && code != 429 }
    }

    /// Sends a request, and again if the server refuses credentials that have successors. Also
    /// returns whether it writes.
    async fn receive<E: fmt::Display>(
        &self,
        request: impl Fn() -> Result<http::Request<Vec<u8>>, E>,
        deadline: Instant,
    ) -> Result<(bool, http::response::Parts, Body), ApiFailure> {
        loop {
            let request = request().map_err(|error| ApiFailure::Unsent(error.to_string()))?;
            let writes = writes(&request);
            let generation = self.access.client();
            let response = by(deadline, generation.client.send(request.map(Body::from))).await?;
            let (parts, body) = response.into_parts();
            if parts.status != http::StatusCode::UNAUTHORIZED {
                return Ok((writes, parts, body));
            }
            // Before the renewal, which may last until the deadline: the refusal says more.
            let body = by(deadline, answers::whole(body)).await?;
            let renewed = timeout_at(deadline, self.access.renew(&generation)).await;
            if !renewed.unwrap_or(false) {
                return Ok((writes, parts, Body::from(body)));
            }
        }
    }

    /// Converts a failure for the protocol. `operation`: as in `write`; `verb`: the required
    /// permission.
    pub(super) fn lock_error(
        &self,
        failure: ApiFailure,
        name: &str,
        operation: &str,
        verb: &str,
        writes: bool,
    ) -> LockError {
        let unknown =
            if writes { LockErrorKind::OutcomeUnknown } else { LockErrorKind::Unavailable };
        let what = match name {
            EVERY => format!("{operation} of every {} in {}", self.kind, self.namespace),
            name => format!("{operation} of the {}", self.describe(name)),
        };
        let status = match failure {
            ApiFailure::TimedOut => {
                return LockError::new(
                    unknown,
                    format!("{what}: the API server did not respond in time"),
                );
            }
            ApiFailure::Lost(error) => {
                return LockError::with_source(
                    unknown,
                    format!("{what}: no response from the API server"),
                    error,
                );
            }
            ApiFailure::Unsent(why) => {
                return LockError::new(LockErrorKind::Misconfigured, format!("{what}: {why}"));
            }
            ApiFailure::InDoubt(status) => {
                let detail = escape_line(&status.message, MAX_MESSAGE_LEN);
                let why = format!("refused after an earlier attempt without a response: {detail}");
                return LockError::new(unknown, format!("{what}: {why}"));
            }
            ApiFailure::Refused(status) => status,
        };
        let detail = escape_line(&status.message, MAX_MESSAGE_LEN);
        match status.code {
            409 => LockError::new(LockErrorKind::Conflict, format!("{what}: {detail}")),
            401 => LockError::new(
                LockErrorKind::Denied,
                format!("{what}: the API server does not accept the credentials: {detail}"),
            ),
            403 => LockError::new(
                LockErrorKind::Denied,
                format!("{what}: the right to {verb} is missing: {detail}"),
            ),
            404 if status.reason.is_empty() => LockError::new(
                unknown,
                format!(
                    "{what}: a 404 that is not the API server's: check for a proxy in between: {detail}"
                ),
            ),
            404 => LockError::new(
                LockErrorKind::Misconfigured,
                format!("{what}: create the namespace, or use another: {detail}"),
            ),
            code @ (429 | 503) => LockError::new(
                if code == 429 { LockErrorKind::Unavailable } else { unknown },
                format!("{what}: the API server is too busy: {detail}"),
            ),
            400..=499 => LockError::new(LockErrorKind::Misconfigured, format!("{what}: {detail}")),
            _ => LockError::new(unknown, format!("{what}: the API server failed: {detail}")),
        }
    }
}

partial_debug!(Objects, self, kind: self.kind, namespace: self.namespace);

fn bytes(object: &Value) -> Vec<u8> {
    serde_json::to_vec(object).unwrap_or_default() // its keys are strings
}

/// Whether a request changes something: a dry run does not.
fn writes(request: &http::Request<Vec<u8>>) -> bool {
    let is_dry_run = request.uri().query().is_some_and(|query| query.contains("dryRun="));
    request.method() != http::Method::GET && !is_dry_run
}

/// Waits for an answer until `deadline`.
async fn by<T>(
    deadline: Instant,
    answer: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ApiFailure> {
    match timeout_at(deadline, answer).await {
        Ok(answer) => answer.map_err(failure),
        Err(_) => Err(ApiFailure::TimedOut),
    }
}

fn failure(error: kube::Error) -> ApiFailure {
    match error {
        kube::Error::Api(status) => ApiFailure::Refused(status),
        error => ApiFailure::Lost(without_secrets(error)),
    }
}
