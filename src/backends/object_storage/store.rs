//! Conditional requests for one object, and what the store's refusals mean.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Extensions, GetOptions, ObjectStore, ObjectStoreExt, PutMode,
    PutOptions, UpdateVersion,
};
use tokio::time::{Instant, sleep, timeout_at};

use super::transport::{Exchange, Outcome, Reached};
use crate::lock::{LockError, LockErrorKind};
use crate::util::text::escape_line;

/// The most bytes of an object that is an election's.
const LARGEST: u64 = 64 * 1024;
/// The most of a store's message that is repeated.
const LONGEST_MESSAGE: usize = 300;
/// What a 409 or 412 of Azure may also mean: not that somebody else wrote, but that nobody can, until it is undone.
const LASTING: [&str; 9] = [
    "AccountBeingCreated",
    "BlobArchived",
    "BlobBeingRehydrated",
    "BlobImmutableDueToPolicy",
    "ContainerBeingDeleted",
    "ContainerDisabled",
    "InvalidBlobType",
    "LeaseIdMissing",
    "PublicAccessNotPermitted",
];
/// A 403 that is about who asks rather than about what that one may do, by its code or in its message.
const UNRECOGNIZED: [&str; 3] =
    ["SignatureDoesNotMatch", "InvalidAccessKeyId", "failed to authenticate"];

/// The objects of one bucket.
#[derive(Clone)]
pub(super) struct Store {
    store: Arc<dyn ObjectStore>,
    /// As in `gs://my-bucket`: no credentials.
    place: Arc<str>,
}

/// Why a request came to nothing.
struct StoreFailure {
    /// `None`: no answer came in time.
    error: Option<object_store::Error>,
    outcome: Outcome,
    /// An earlier try of the same request may have been applied.
    ambiguous: bool,
}

impl Store {
    pub(super) fn new(store: Arc<dyn ObjectStore>, place: impl Into<Arc<str>>) -> Self {
        Self { store, place: place.into() }
    }

    /// As in `the object gs://my-bucket/elections/my_app`.
    pub(super) fn describe(&self, path: &Path) -> String {
        format!("the object {}/{path}", self.place)
    }

    /// Reads an object, never a stale one: these stores answer a read with the last write that they acknowledged.
    pub(super) async fn get(
        &self,
        path: &Path,
        by: Instant,
    ) -> Result<Option<(UpdateVersion, Bytes)>, LockError> {
        let request = |extensions| async move {
            let options = GetOptions { extensions, ..GetOptions::default() };
            let found = self.store.get_opts(path, options).await?;
            let meta = found.meta.clone();
            let body = if meta.size > LARGEST { Bytes::new() } else { found.bytes().await? };
            Ok((meta, body))
        };
        match self.ask(by, request).await {
            Ok((meta, _)) if meta.size > LARGEST => {
                let message = format!(
                    "{} has {} bytes, so it is no election's: delete it, or use another prefix",
                    self.describe(path),
                    meta.size
                );
                Err(LockError::new(LockErrorKind::Misconfigured, message))
            }
            Ok((meta, body)) => Ok(Some((self.compared(meta.e_tag, meta.version), body))),
            Err(failure) if failure.is_missing_object() => Ok(None),
            Err(failure) => Err(self.lock_error(failure, path, false)),
        }
    }

    /// Writes an object over `replaced`, or where there is none. Never unconditionally.
    pub(super) async fn put(
        &self,
        path: &Path,
        replaced: Option<&UpdateVersion>,
        body: &Bytes,
        by: Instant,
    ) -> Result<UpdateVersion, LockError> {
        let request = |extensions| async move {
            let mode = match replaced {
                Some(version) => PutMode::Update(version.clone()),
                None => PutMode::Create,
            };
            // What anybody may read is otherwise served from caches.
            let attributes = Attributes::from_iter([(Attribute::CacheControl, "no-store")]);
            let options = PutOptions { mode, attributes, extensions, ..PutOptions::default() };
            self.store.put_opts(path, body.clone().into(), options).await
        };
        match self.ask(by, request).await {
            Ok(written) => Ok(self.compared(written.e_tag, written.version)),
            Err(failure) => Err(self.lock_error(failure, path, true)),
        }
    }

    /// What a conditional write names: a generation of Google's, or else the ETag. What else an answer names may be missing in
    /// the next one of the same object.
    fn compared(&self, e_tag: Option<String>, version: Option<String>) -> UpdateVersion {
        if self.place.starts_with("gs:") {
            UpdateVersion { e_tag: None, version }
        } else {
            UpdateVersion { e_tag, version: None }
        }
    }

    /// When an object was written, by the store's clock; `None`: it is not there.
    pub(super) async fn written_at(
        &self,
        path: &Path,
        by: Instant,
    ) -> Result<Option<SystemTime>, LockError> {
        let request = |extensions| async move {
            let options = GetOptions { extensions, head: true, ..GetOptions::default() };
            Ok(self.store.get_opts(path, options).await?.meta.last_modified)
        };
        match self.ask(by, request).await {
            Ok(written) => Ok(Some(written.into())),
            Err(failure) if failure.is_missing_object() => Ok(None),
            Err(failure) => Err(self.lock_error(failure, path, false)),
        }
    }

    /// Deletes an object that is no election's.
    pub(super) async fn delete(&self, path: &Path, by: Instant) -> Result<(), LockError> {
        let deleted = timeout_at(by, self.store.delete(path)).await;
        let error = match deleted {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        let outcome = Outcome { reached: Reached::Store, ..Outcome::default() };
        let failure = StoreFailure { error, outcome, ambiguous: false };
        Err(self.lock_error(failure, path, true))
    }

    /// The names of the objects in a folder, or in none.
    pub(super) async fn list(&self, folder: &str, by: Instant) -> Result<Vec<String>, LockError> {
        let prefix = Path::from(folder);
        let listed = timeout_at(by, self.store.list_with_delimiter(Some(&prefix))).await;
        let error = match listed {
            Ok(Ok(found)) => {
                let name = |object: object_store::ObjectMeta| {
                    object.location.filename().map(str::to_owned)
                };
                return Ok(found.objects.into_iter().filter_map(name).collect());
            }
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        // A list takes no extensions, so its status is in the text of its error only.
        let status = error.as_ref().and_then(status_in);
        let outcome = Outcome { reached: Reached::Store, status, retry_after: None };
        let failure = StoreFailure { error, outcome, ambiguous: false };
        Err(self.lock_error(failure, &prefix, false))
    }

    /// Asks until `by`. A store that says for how long it is too busy is asked again where that is not too long.
    async fn ask<T, F>(
        &self,
        by: Instant,
        request: impl Fn(Extensions) -> F,
    ) -> Result<T, StoreFailure>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let mut ambiguous = false;
        loop {
            let exchange = Exchange::default();
            let error = match timeout_at(by, request(exchange.extensions())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => Some(error),
                Err(_) => None,
            };
            let outcome = exchange.outcome();
            let pause = outcome.retry_after.filter(|_| matches!(outcome.status, Some(429 | 503)));
            let left = by.saturating_duration_since(Instant::now());
            match pause {
                Some(pause) if error.is_some() && pause < left => {
                    ambiguous |= outcome.status == Some(503);
                    sleep(pause.max(Duration::from_millis(100))).await;
                }
                _ => return Err(StoreFailure { error, outcome, ambiguous }),
            }
        }
    }

    fn lock_error(&self, failure: StoreFailure, path: &Path, writes: bool) -> LockError {
        let doing = if writes { "write" } else { "read" };
        let what = format!("{doing} of {}", self.describe(path));
        // A request that never left this machine has changed nothing.
        let reached = failure.outcome.reached;
        let unknown = match writes && (reached == Reached::Store || failure.ambiguous) {
            true => LockErrorKind::OutcomeUnknown,
            false => LockErrorKind::Unavailable,
        };
        let Some(error) = &failure.error else {
            let why = match reached {
                Reached::Nowhere => {
                    "no credentials for it came in time, and the store was not asked"
                }
                _ => "the store did not answer in time",
            };
            return LockError::new(unknown, format!("{what}: {why}"));
        };
        let text = told(error);
        let said = escape_line(&text, LONGEST_MESSAGE);
        use object_store::Error as E;
        let (kind, message) = match error {
            // The first try of the same request may have been what it ran into.
            E::Precondition { .. } | E::AlreadyExists { .. } | E::NotModified { .. }
                if failure.ambiguous =>
            {
                (
                    LockErrorKind::OutcomeUnknown,
                    format!("{what}: refused after an answer that was none"),
                )
            }
            E::Precondition { .. } | E::AlreadyExists { .. }
                if LASTING.iter().any(|code| text.starts_with(code)) =>
            {
                (LockErrorKind::Misconfigured, format!("{what}: {said}"))
            }
            E::Precondition { .. } | E::AlreadyExists { .. } | E::NotModified { .. } => {
                (LockErrorKind::Conflict, format!("{what}: it was written by somebody else"))
            }
            E::NotFound { .. } => (
                LockErrorKind::Misconfigured,
                format!("{what}: make the bucket, or name another: {said}"),
            ),
            E::PermissionDenied { .. } if UNRECOGNIZED.iter().any(|words| text.contains(words)) => {
                (
                    LockErrorKind::Denied,
                    format!("{what}: the store does not accept the credentials: {said}"),
                )
            }
            E::PermissionDenied { .. } => (
                LockErrorKind::Denied,
                format!("{what}: the right to {doing} it is missing: {said}"),
            ),
            E::Unauthenticated { .. } => (
                LockErrorKind::Denied,
                format!("{what}: the store does not accept the credentials: {said}"),
            ),
            _ => match failure.outcome.status {
                Some(429) => (
                    if failure.ambiguous { unknown } else { LockErrorKind::Unavailable },
                    format!("{what}: the store is asked too often: {said}"),
                ),
                Some(503) => (unknown, format!("{what}: the store is too busy: {said}")),
                Some(408 | 500 | 502..) => (unknown, format!("{what}: the store failed: {said}")),
                Some(401 | 403) => (
                    LockErrorKind::Denied,
                    format!("{what}: the store refuses the credentials, or a right: {said}"),
                ),
                Some(300..) => (LockErrorKind::Misconfigured, format!("{what}: {said}")),
                None if reached == Reached::InClear => {
                    (LockErrorKind::Misconfigured, format!("{what}: it was not sent: {said}"))
                }
                None if reached == Reached::Nowhere => (
                    unknown,
                    format!(
                        "{what}: there are no credentials for it, and the store was not asked: {said}"
                    ),
                ),
                _ => (unknown, format!("{what}: no answer of the store: {said}")),
            },
        };
        LockError::new(kind, message)
    }
}

/// The HTTP status that an error tells of, as object_store words it.
fn status_in(error: &object_store::Error) -> Option<u16> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if let Some((_, status)) = text.split_once("status code: ") {
            return status.get(..3).and_then(|digits| digits.parse().ok());
        }
        cause = error.source();
    }
    None
}

impl StoreFailure {
    /// Whether the object is not there, rather than the bucket.
    fn is_missing_object(&self) -> bool {
        let missing_bucket = |error: &object_store::Error| {
            // All of an error's text has the object's name too, which may be any.
            let text = error.to_string();
            let text = if text.contains("<Code>") { told(error) } else { text };
            ["NoSuchBucket", "ContainerNotFound", "bucket does not exist"]
                .iter()
                .any(|code| text.contains(code))
        };
        match &self.error {
            Some(error @ object_store::Error::NotFound { .. }) => !missing_bucket(error),
            _ => false,
        }
    }
}

/// What a store has said, in one line. Only its code and its message: the rest may repeat what signs a request, and the
/// address may hold a signature too.
fn told(error: &object_store::Error) -> String {
    let text = error.to_string();
    let between = |open: &str, close: &str| {
        let (_, rest) = text.split_once(open)?;
        rest.split_once(close).map(|(inner, _)| inner.trim())
    };
    let code = between("<Code>", "</Code>");
    let message = between("<Message>", "</Message>").or_else(|| between("\"message\":\"", "\""));
    // Azure adds lines with the number of the request and its time.
    let message = message.and_then(|message| message.lines().next());
    match (code, message) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(only), None) | (None, Some(only)) => only.to_owned(),
        (None, None) => {
            let status = between("status code: ", ":").map(str::to_owned);
            status.unwrap_or_else(|| root(error))
        }
    }
}

/// The innermost cause.
fn root(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)
    }
}
