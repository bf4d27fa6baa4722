//! Requests to the API server, and what its refusals mean.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use kube::api::{DeleteParams, GetParams, ListParams, PostParams, Preconditions, WatchParams};
use kube::client::Body;
use kube::core::{Request, Status};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::answers::{self, Events};
use super::api_client::ApiClient;
use super::record::RecordLocation;
use crate::lock::{LockError, LockErrorKind};
use crate::util::text::escape_line;

/// How long the API server may take to answer a leader for life, or a candidate.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The name of no object, where all are meant.
pub(super) const EVERY: &str = "*";
/// The most of a server's message that is repeated.
const LONGEST_MESSAGE: usize = 300;
/// How long a watch lasts before it is begun again where it left off, in seconds: nothing between goes on for ever.
const WATCH_SECONDS: u32 = 290;

/// The objects of one kind in one namespace, or in none.
#[derive(Clone)]
pub(super) struct Objects {
    access: ApiClient,
    request: Request,
    /// As in `the Lease default/my-app`.
    kind: Cow<'static, str>,
    /// Empty for kinds that are in none.
    namespace: String,
}

/// Why a request failed.
#[derive(Debug)]
pub(super) enum ApiFailure {
    /// The server has refused it.
    Refused(Box<Status>),
    /// Nobody knows what became of it.
    Lost(kube::Error),
    /// No answer came in time.
    TimedOut,
    /// It could not be sent.
    Unsent(String),
}

impl ApiFailure {
    pub(super) fn code(&self) -> u16 {
        match self {
            Self::Refused(status) => status.code,
            _ => 0,
        }
    }

    /// Whether the API server says that there is no such object. A proxy's 404 says nothing of it, nor does one of a server that
    /// does not know the kind.
    pub(super) fn is_absence_of(&self, name: &str) -> bool {
        matches!(self, Self::Refused(status) if status.code == 404
            && status.reason == "NotFound"
            && status.details.as_ref().is_some_and(|details| details.name == name))
    }

    /// Whether the object is gone, or was written by somebody else, so that a conditional write did nothing.
    pub(super) fn is_change_of(&self, name: &str) -> bool {
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
        Self { access, request, kind, namespace: namespace.to_owned() }
    }

    /// Objects of another kind, or of another namespace, of the same API server.
    pub(super) fn elsewhere(&self, url_path: String, kind: &'static str, namespace: &str) -> Self {
        Self::new(self.access.clone(), url_path, kind, namespace)
    }

    pub(super) fn kind(&self) -> &str {
        &self.kind
    }

    /// As in `ConfigMap default/my-app`.
    pub(super) fn describe(&self, name: &str) -> String {
        match &*self.namespace {
            "" => format!("{} {name}", self.kind),
            namespace => format!("{} {namespace}/{name}", self.kind),
        }
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// How others refer to one of them.
    pub(super) fn reference(&self, api_version: &str, name: &str, object: &Value) -> Value {
        json!({
            "apiVersion": api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": name,
            "uid": object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default(),
        })
    }

    pub(super) fn written_by_somebody_else(&self, name: &str) -> LockError {
        let message = format!("the {} was written by somebody else", self.describe(name));
        LockError::new(LockErrorKind::Conflict, message)
    }

    /// Reads an object, never a stale one: without a resourceVersion the server asks its store.
    pub(super) async fn get(&self, name: &str, by: Instant) -> Result<Option<Value>, ApiFailure> {
        match self.ask(|| self.request.get(name, &GetParams::default()), by).await {
            Ok(object) => Ok(Some(object)),
            Err(failure) if failure.is_absence_of(name) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Reads all objects; only the metadata of those that carry the record there.
    pub(super) async fn list(
        &self,
        place: RecordLocation,
        by: Instant,
    ) -> Result<Value, ApiFailure> {
        let params = ListParams::default();
        match place {
            RecordLocation::Spec => self.ask(|| self.request.list(&params), by).await,
            RecordLocation::Annotation => {
                self.ask(|| self.request.list_metadata(&params), by).await
            }
        }
    }

    pub(super) async fn create(&self, object: &Value, by: Instant) -> Result<Value, ApiFailure> {
        self.ask(|| self.request.create(&PostParams::default(), bytes(object)), by).await
    }

    /// Writes over an object whose `resourceVersion` and `uid` are those in `object`. Without the uid the server would
    /// make a Lease anew that was deleted meanwhile.
    pub(super) async fn replace(
        &self,
        name: &str,
        object: &Value,
        by: Instant,
    ) -> Result<Value, ApiFailure> {
        self.ask(|| self.request.replace(name, &PostParams::default(), bytes(object)), by).await
    }

    /// Deletes an object as long as it is still the one with this uid and, where it is given, in this version.
    pub(super) async fn delete(
        &self,
        name: &str,
        uid: &str,
        version: Option<&str>,
        by: Instant,
    ) -> Result<(), ApiFailure> {
        let preconditions = Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: version.map(str::to_owned),
        };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        self.ask(|| self.request.delete(name, &params), by).await.map(drop)
    }

    /// Watches one object, with bookmarks. `from`: the resourceVersion after which to begin; `None`: with what is there.
    pub(super) async fn watch(
        &self,
        name: &str,
        from: Option<&str>,
        by: Instant,
    ) -> Result<Events, ApiFailure> {
        let params =
            WatchParams::default().fields(&format!("metadata.name={name}")).timeout(WATCH_SECONDS);
        self.events(self.request.watch(&params, from.unwrap_or_default()), by).await
    }

    /// Watches all objects from this version on.
    pub(super) async fn watch_from(&self, version: u64, by: Instant) -> Result<Events, ApiFailure> {
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        self.events(self.request.watch(&params, &version.to_string()), by).await
    }

    /// Watches all objects, beginning with what is there; only the metadata of those that carry the record there.
    pub(super) async fn watch_all(
        &self,
        place: RecordLocation,
        by: Instant,
    ) -> Result<Events, ApiFailure> {
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        let request = match place {
            RecordLocation::Spec => self.request.watch(&params, ""),
            RecordLocation::Annotation => self.request.watch_metadata(&params, ""),
        };
        self.events(request, by).await
    }

    async fn events<E: fmt::Display>(
        &self,
        request: Result<http::Request<Vec<u8>>, E>,
        by: Instant,
    ) -> Result<Events, ApiFailure> {
        let mut request = request.map_err(|error| ApiFailure::Unsent(error.to_string()))?;
        let plain = http::HeaderValue::from_static("identity");
        request.headers_mut().insert(http::header::ACCEPT_ENCODING, plain);
        let answer = async {
            let sent = self.access.client().client.send(request.map(Body::from)).await;
            let (parts, body) = sent.map_err(failure)?.into_parts();
            if parts.status.is_success() {
                return Ok(answers::events(body));
            }
            let body = answers::whole(body).await.map_err(failure)?;
            Err(ApiFailure::Refused(answers::refusal(parts.status.as_u16(), &body).boxed()))
        };
        timeout_at(by, answer).await.unwrap_or(Err(ApiFailure::TimedOut))
    }

    /// Reads what is no object; also answers the server's time as it tells it (RFC 9110's IMF-fixdate).
    pub(super) async fn read_whole(
        &self,
        by: Instant,
    ) -> (Result<Value, ApiFailure>, Option<String>) {
        let mut date = None;
        let request = || http::Request::get(&self.request.url_path).body(Vec::new());
        let answer = self.ask_and_note(request, by, |headers| {
            let told = headers.get(http::header::DATE).and_then(|date| date.to_str().ok());
            date = told.map(str::to_owned);
        });
        let answer = answer.await;
        (answer, date)
    }

    async fn ask<E: fmt::Display>(
        &self,
        request: impl Fn() -> Result<http::Request<Vec<u8>>, E>,
        by: Instant,
    ) -> Result<Value, ApiFailure> {
        self.ask_and_note(request, by, |_| {}).await
    }

    /// Asks until `by`. A server that is too busy says for how long; where that is not too long it is asked again: a
    /// conditional write may be sent twice. It is asked again, too, where it refuses a token that has a successor.
    async fn ask_and_note<E: fmt::Display>(
        &self,
        request: impl Fn() -> Result<http::Request<Vec<u8>>, E>,
        by: Instant,
        mut note: impl FnMut(&http::HeaderMap),
    ) -> Result<Value, ApiFailure> {
        loop {
            let request = request().map_err(|error| ApiFailure::Unsent(error.to_string()))?;
            let request = request.map(Body::from);
            let by_whom = self.access.client();
            let answer = async {
                let response = by_whom.client.send(request).await.map_err(failure)?;
                let (parts, body) = response.into_parts();
                let body = answers::whole(body).await.map_err(failure)?;
                Ok((parts, body))
            };
            let (parts, body) = match timeout_at(by, answer).await {
                Ok(answer) => answer?,
                Err(_) => return Err(ApiFailure::TimedOut),
            };
            note(&parts.headers);
            if parts.status.is_success() {
                return serde_json::from_slice(&body)
                    .map_err(|error| ApiFailure::Lost(kube::Error::SerdeError(error)));
            }
            let status = answers::refusal(parts.status.as_u16(), &body);
            if parts.status.as_u16() == 401 && self.access.renew(&by_whom) {
                continue;
            }
            let pause = parts
                .headers
                .get("retry-after")
                .and_then(|value| value.to_str().ok()?.parse().ok())
                .map(Duration::from_secs);
            let left = by.saturating_duration_since(Instant::now());
            match pause.filter(|_| matches!(status.code, 429 | 503 | 504)) {
                Some(pause) if pause < left => tokio::time::sleep(pause).await,
                _ => return Err(ApiFailure::Refused(Box::new(status))),
            }
        }
    }

    /// What a failure means to a campaign. `doing`: as in `write`; `verb`: the right that it takes.
    pub(super) fn lock_error(
        &self,
        failure: ApiFailure,
        name: &str,
        doing: &str,
        verb: &str,
        writes: bool,
    ) -> LockError {
        let unknown =
            if writes { LockErrorKind::OutcomeUnknown } else { LockErrorKind::Unavailable };
        let what = match name {
            EVERY => format!("{doing} of every {} in {}", self.kind, self.namespace),
            name => format!("{doing} of the {}", self.describe(name)),
        };
        let status = match failure {
            ApiFailure::TimedOut => {
                return LockError::new(
                    unknown,
                    format!("{what}: the API server did not answer in time"),
                );
            }
            ApiFailure::Lost(error) => {
                return LockError::with_source(
                    unknown,
                    format!("{what}: no answer of the API server"),
                    error,
                );
            }
            ApiFailure::Unsent(why) => {
                return LockError::new(LockErrorKind::Misconfigured, format!("{what}: {why}"));
            }
            ApiFailure::Refused(status) => status,
        };
        let said = escape_line(&status.message, LONGEST_MESSAGE);
        match status.code {
            409 => LockError::new(LockErrorKind::Conflict, format!("{what}: {said}")),
            401 => LockError::new(
                LockErrorKind::Denied,
                format!("{what}: the API server does not accept the credentials: {said}"),
            ),
            403 => LockError::new(
                LockErrorKind::Denied,
                format!("{what}: the right to {verb} is missing: {said}"),
            ),
            404 if status.reason.is_empty() => LockError::new(
                unknown,
                format!(
                    "{what}: a 404 that is not the API server's: look which proxy is in the way: {said}"
                ),
            ),
            404 => LockError::new(
                LockErrorKind::Misconfigured,
                format!("{what}: make the namespace, or name another: {said}"),
            ),
            429 | 503 => LockError::new(
                LockErrorKind::Unavailable,
                format!("{what}: the API server is too busy: {said}"),
            ),
            400..=499 => LockError::new(LockErrorKind::Misconfigured, format!("{what}: {said}")),
            _ => LockError::new(unknown, format!("{what}: the API server failed: {said}")),
        }
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects")
            .field("kind", &self.kind)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

fn bytes(object: &Value) -> Vec<u8> {
    serde_json::to_vec(object).unwrap_or_default() // its keys are strings
}

fn failure(error: kube::Error) -> ApiFailure {
    match error {
        kube::Error::Api(status) => ApiFailure::Refused(status),
        error => ApiFailure::Lost(error),
    }
}
