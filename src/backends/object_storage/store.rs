//! Conditional requests for one object, and the meaning of the store's refusals.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Extensions, GetOptions, ObjectStore, ObjectStoreExt, PutMode,
    PutOptions, UpdateVersion,
};
use tokio::time::{Instant, timeout_at};

use super::transport::{Connector, Exchange, Outcome, Reached};
use crate::lock::{LockError, LockErrorKind};
use crate::util::retry::{self, Attempt};
use crate::util::text::{causes, escape_line};

/// The maximum size of an election's object in bytes.
const MAX_OBJECT_LEN: usize = 64 * 1024;
/// An ETag that no object has.
const NO_ETAG: &str = "\"00000000000000000000000000000000\"";
/// The maximum length of a store's message in an error.
const MAX_MESSAGE_LEN: usize = 300;
/// Codes of Azure's 409 and 412 that do not mean that another client wrote, but that no client can
/// write until the cause is removed.
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
/// Codes or messages of a 403 that concern the credentials, rather than the permissions that they
/// have.
const UNRECOGNIZED: [&str; 3] =
    ["SignatureDoesNotMatch", "InvalidAccessKeyId", "failed to authenticate"];

/// The objects of one bucket.
#[derive(Clone)]
pub(crate) struct Store {
    store: Arc<dyn ObjectStore>,
    pub(super) connector: Connector,
    /// As in `gs://my-bucket`: without credentials.
    place: Arc<str>,
    /// Which of two writes that must be refused the store has refused: the one that requires
    /// absence, and the one that requires a version.
    refused: Arc<[AtomicBool; 2]>,
}

/// The reason why a request failed.
struct StoreFailure {
    /// `None`: no response arrived in time.
    error: Option<object_store::Error>,
    outcome: Outcome,
    /// An earlier attempt of the same request may have been applied.
    ambiguous: bool,
}

/// A version that no object has, as a store names it.
pub(super) fn no_such_version() -> UpdateVersion {
    UpdateVersion { e_tag: Some(NO_ETAG.to_owned()), version: Some("1".to_owned()) }
}

impl Store {
    pub(super) fn new(
        store: Arc<dyn ObjectStore>,
        connector: Connector,
        place: impl Into<Arc<str>>,
    ) -> Self {
        Self { store, connector, place: place.into(), refused: Arc::default() }
    }

    /// Whether the store, which has received a request, respects conditions: Google Cloud Storage
    /// and Azure Blob Storage do, and others have been seen to.
    pub(crate) fn is_known_to_check(&self) -> bool {
        let is_cloud = !self.place.starts_with("s3:") && !self.connector.reached_another_store();
        is_cloud || self.refused.iter().all(|refused| refused.load(Ordering::Relaxed))
    }

    /// Checks that the store respects conditions, by two writes of `body` over an object that is
    /// there, which must be refused. Many stores implement the protocol of S3, and not all of them
    /// respect conditions.
    ///
    /// Each refusal is remembered, in case there is no time for the other one.
    pub(crate) async fn check_conditions(
        &self,
        path: &Path,
        body: &Bytes,
        deadline: Instant,
    ) -> Result<(), LockError> {
        let no_such = no_such_version();
        let trials = [("If-None-Match", None), ("If-Match", Some(&no_such))];
        for (refused, (header, replaced)) in self.refused.iter().zip(trials) {
            if refused.load(Ordering::Relaxed) {
                continue;
            }
            match self.put(path, replaced, body, deadline).await {
                Err(error) if error.kind() == LockErrorKind::Conflict => {
                    refused.store(true, Ordering::Relaxed);
                }
                Err(error) if error.kind() == LockErrorKind::Misconfigured => return Err(error),
                Err(error) => {
                    let message = format!("unknown whether the store checks conditions: {error}");
                    return Err(LockError::new(LockErrorKind::OutcomeUnknown, message));
                }
                Ok(_) => {
                    let message = format!(
                        "{} can be written without its condition: the store ignores {header}; use one that respects it",
                        self.describe(path)
                    );
                    return Err(LockError::new(LockErrorKind::Misconfigured, message));
                }
            }
        }
        Ok(())
    }

    /// Describes an object, as in `the object gs://my-bucket/elections/my_app`.
    pub(crate) fn describe(&self, path: &Path) -> String {
        format!("the object {}/{path}", self.place)
    }

    /// Reads an election's object.
    pub(super) async fn get(
        &self,
        path: &Path,
        deadline: Instant,
    ) -> Result<Option<(UpdateVersion, Bytes)>, LockError> {
        self.get_up_to(path, MAX_OBJECT_LEN, deadline).await
    }

    /// Reads an object of at most this size, never a stale one: these stores return the last write
    /// that they acknowledged.
    pub(crate) async fn get_up_to(
        &self,
        path: &Path,
        max_len: usize,
        deadline: Instant,
    ) -> Result<Option<(UpdateVersion, Bytes)>, LockError> {
        let fits = |size: u64| usize::try_from(size).is_ok_and(|size| size <= max_len);
        let request = |extensions| async move {
            let options = GetOptions { extensions, ..GetOptions::default() };
            let found = self.store.get_opts(path, options).await?;
            let meta = found.meta.clone();
            let body = if fits(meta.size) { found.bytes().await? } else { Bytes::new() };
            Ok((meta, body))
        };
        match self.send(deadline, request).await {
            Ok((meta, _)) if !fits(meta.size) => {
                let message = format!(
                    "{} has {} bytes, so it is not one of ours: delete it, or use another name",
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

    /// Writes an object over `replaced`, or creates it. Never writes unconditionally.
    pub(crate) async fn put(
        &self,
        path: &Path,
        replaced: Option<&UpdateVersion>,
        body: &Bytes,
        deadline: Instant,
    ) -> Result<UpdateVersion, LockError> {
        let request = |extensions| async move {
            let mode = match replaced {
                Some(version) => PutMode::Update(version.clone()),
                None => PutMode::Create,
            };
            // Caches would otherwise serve objects that are publicly readable.
            let attributes = Attributes::from_iter([(Attribute::CacheControl, "no-store")]);
            let options = PutOptions { mode, attributes, extensions, ..PutOptions::default() };
            self.store.put_opts(path, body.clone().into(), options).await
        };
        match self.send(deadline, request).await {
            Ok(written) => Ok(self.compared(written.e_tag, written.version)),
            Err(failure) => Err(self.lock_error(failure, path, true)),
        }
    }

    /// Returns the condition of the next write: the generation on Google Cloud Storage, else the
    /// ETag. Other properties of a response may be missing in the next one for the same object.
    fn compared(&self, e_tag: Option<String>, version: Option<String>) -> UpdateVersion {
        if self.place.starts_with("gs:") {
            UpdateVersion { e_tag: None, version }
        } else {
            UpdateVersion { e_tag, version: None }
        }
    }

    /// Returns the condition of a write over the version that this text names.
    pub(super) fn condition(&self, version: &str) -> UpdateVersion {
        self.compared(Some(version.to_owned()), Some(version.to_owned()))
    }

    /// Returns when an object was written, by the store's clock; `None` if it does not exist.
    pub(super) async fn written_at(
        &self,
        path: &Path,
        deadline: Instant,
    ) -> Result<Option<SystemTime>, LockError> {
        let request = |extensions| async move {
            let options = GetOptions { extensions, head: true, ..GetOptions::default() };
            Ok(self.store.get_opts(path, options).await?.meta.last_modified)
        };
        match self.send(deadline, request).await {
            Ok(written) => Ok(Some(written.into())),
            Err(failure) if failure.is_missing_object() => Ok(None),
            Err(failure) => Err(self.lock_error(failure, path, false)),
        }
    }

    /// Deletes an object that is not an election's.
    pub(super) async fn delete(&self, path: &Path, deadline: Instant) -> Result<(), LockError> {
        let deleted = timeout_at(deadline, self.store.delete(path)).await;
        let error = match deleted {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        let outcome = Outcome { reached: Reached::Store, ..Outcome::default() };
        let failure = StoreFailure { error, outcome, ambiguous: false };
        Err(self.lock_error(failure, path, true))
    }

    /// Returns the names of the objects in a folder, or outside all folders.
    pub(super) async fn list(
        &self,
        folder: &str,
        deadline: Instant,
    ) -> Result<Vec<String>, LockError> {
        let prefix = Path::parse(folder)
            .map_err(|error| LockError::new(LockErrorKind::Misconfigured, error.to_string()))?;
        let listed = timeout_at(deadline, self.store.list_with_delimiter(Some(&prefix))).await;
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
        // A list takes no extensions, so only the text of its error contains the status.
        let status = error.as_ref().and_then(status_in);
        let outcome = Outcome { reached: Reached::Store, status, retry_after: None };
        let failure = StoreFailure { error, outcome, ambiguous: false };
        Err(self.lock_error(failure, &prefix, false))
    }

    /// Sends a request until `deadline`. If a store that is too busy states a short enough delay,
    /// the request is repeated after it.
    async fn send<T, F>(
        &self,
        deadline: Instant,
        request: impl Fn(Extensions) -> F,
    ) -> Result<T, StoreFailure>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let attempt = || {
            let exchange = Exchange::default();
            let sent = request(exchange.extensions());
            async move {
                let answer = timeout_at(deadline, sent).await;
                let outcome = exchange.outcome();
                let is_busy = matches!(outcome.status, Some(429 | 503));
                let is_busy = is_busy && matches!(answer, Ok(Err(_)));
                let retry_after = outcome.retry_after.filter(|_| is_busy);
                let in_doubt = outcome.status == Some(503);
                Attempt { answer: (answer, outcome), retry_after, in_doubt }
            }
        };
        let ((answer, outcome), ambiguous) = retry::until(deadline, attempt).await;
        let error = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        Err(StoreFailure { error, outcome, ambiguous })
    }

    fn lock_error(&self, failure: StoreFailure, path: &Path, writes: bool) -> LockError {
        let operation = if writes { "write" } else { "read" };
        let what = format!("{operation} of {}", self.describe(path));
        // A request that never left this machine has changed nothing.
        let reached = failure.outcome.reached;
        let unknown = match writes && (reached == Reached::Store || failure.ambiguous) {
            true => LockErrorKind::OutcomeUnknown,
            false => LockErrorKind::Unavailable,
        };
        let Some(error) = &failure.error else {
            let why = match reached {
                Reached::Nowhere => {
                    "no credentials for it arrived in time, so the request was not sent"
                }
                _ => "the store did not respond in time",
            };
            return LockError::new(unknown, format!("{what}: {why}"));
        };
        let text = summary(error);
        let detail = escape_line(&text, MAX_MESSAGE_LEN);
        use object_store::Error as E;
        let (kind, message) = match error {
            // The first attempt of the same request may have caused the refusal.
            _ if failure.ambiguous && writes => (
                unknown,
                format!("{what}: refused after an earlier attempt without a response: {detail}"),
            ),
            E::Precondition { .. } | E::AlreadyExists { .. }
                if LASTING.iter().any(|code| text.starts_with(code)) =>
            {
                (LockErrorKind::Misconfigured, format!("{what}: {detail}"))
            }
            E::Precondition { .. } | E::AlreadyExists { .. } | E::NotModified { .. } => {
                (LockErrorKind::Conflict, format!("{what}: it was written by another client"))
            }
            E::NotFound { .. } => (
                LockErrorKind::Misconfigured,
                format!("{what}: create the bucket, or use another: {detail}"),
            ),
            E::PermissionDenied { .. } if UNRECOGNIZED.iter().any(|words| text.contains(words)) => {
                (
                    LockErrorKind::Denied,
                    format!("{what}: the store does not accept the credentials: {detail}"),
                )
            }
            E::PermissionDenied { .. } => (
                LockErrorKind::Denied,
                format!("{what}: the right to {operation} it is missing: {detail}"),
            ),
            E::Unauthenticated { .. } => (
                LockErrorKind::Denied,
                format!("{what}: the store does not accept the credentials: {detail}"),
            ),
            _ => match failure.outcome.status {
                Some(429) => (
                    LockErrorKind::Unavailable,
                    format!("{what}: too many requests to the store: {detail}"),
                ),
                Some(503) => (unknown, format!("{what}: the store is too busy: {detail}")),
                Some(408 | 500 | 502..) => (unknown, format!("{what}: the store failed: {detail}")),
                Some(401 | 403) => (
                    LockErrorKind::Denied,
                    format!("{what}: the store refuses the credentials, or a right: {detail}"),
                ),
                Some(300..) => (LockErrorKind::Misconfigured, format!("{what}: {detail}")),
                None if reached == Reached::InClear => {
                    (LockErrorKind::Misconfigured, format!("{what}: it was not sent: {detail}"))
                }
                None if reached == Reached::Nowhere => (
                    unknown,
                    format!(
                        "{what}: there are no credentials for it, so the request was not sent: {detail}"
                    ),
                ),
                _ => (unknown, format!("{what}: no response from the store: {detail}")),
            },
        };
        LockError::new(kind, message)
    }
}

/// Returns the HTTP status in the text of an error of object_store.
fn status_in(error: &object_store::Error) -> Option<u16> {
    let of_text = |error: &(dyn Error + 'static)| {
        let text = error.to_string();
        let (_, status) = text.split_once("status code: ")?;
        Some(status.get(..3).and_then(|digits| digits.parse().ok()))
    };
    causes(error).find_map(of_text).flatten()
}

impl StoreFailure {
    /// Whether the object does not exist, rather than the bucket.
    fn is_missing_object(&self) -> bool {
        let missing_bucket = |error: &object_store::Error| {
            // The complete text of an error also contains the object's name, which is arbitrary.
            let text = error.to_string();
            let text = if text.contains("<Code>") { summary(error) } else { text };
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

/// Returns a store's message in one line. It contains the code and the message only: the rest may
/// repeat what signs a request, and the address may contain a signature.
fn summary(error: &object_store::Error) -> String {
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
            let innermost = || causes(error).last().map(ToString::to_string);
            status.or_else(innermost).unwrap_or_default()
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)
    }
}
