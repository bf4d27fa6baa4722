//! Objects that follow the leader: the EndpointSlices of a Service, and the leader's pod.

mod pod;
mod service;
mod slice;

use std::sync::OnceLock;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use serde_json::Value;
use tokio::time::sleep;

use super::api::{ApiFailure, Objects, REQUEST_TIMEOUT};
use super::cluster::Cluster;
use super::life;
use super::record::annotation;
use super::resource::check_object_name;
use crate::lock::{LockError, LockErrorKind, Token};
use crate::time::clock::{BootClock, Clock, Instant, sleep_until};
use crate::time::timer::deadline_after;
use crate::util::retry::BackendRetries;

pub use pod::LeaderPod;
pub use service::ServiceFollowsLeader;

/// The annotation with the fencing token of the term that wrote an object last.
const TOKEN: &str = "incumbent/token";
/// An annotation with a fresh number: the write changes the object, even if nothing else does.
const SETTLED: &str = "incumbent/settled";

/// How requests are sent.
#[derive(Clone, Copy)]
enum Mode {
    /// The server checks whether it would write, and writes nothing.
    DryRun,
    /// Sent, and waited for, until this instant.
    Until(Instant),
    /// To end a term: writing late does no harm.
    Withdraw,
}

impl Mode {
    fn until(self) -> Instant {
        match self {
            Self::Until(until) => until,
            Self::DryRun | Self::Withdraw => BootClock.now() + REQUEST_TIMEOUT,
        }
    }

    /// Whether something is to be sent yet.
    fn check(self) -> Result<(), LockError> {
        match self {
            Self::Until(until) if BootClock.now() >= until => Err(LockError::new(
                LockErrorKind::Unavailable,
                "the right to lead ended before the API server was told",
            )),
            _ => Ok(()),
        }
    }
}

/// What [`change`] is to write.
enum Edit {
    Nothing,
    Create(Value),
    /// Fields to merge into the object that was read.
    Merge(Value),
    /// Fields to merge, and a new `resourceVersion` in any case: an earlier write that is still
    /// under way is then refused.
    Settle(Value),
}

/// Reads an object and writes what `edit` makes of it, unless another client wrote it in between:
/// then begins again.
///
/// A write that arrives late is refused once anybody else has written the object, because it names
/// the `resourceVersion` that was read.
async fn change(
    objects: &Objects,
    name: &str,
    mode: Mode,
    mut edit: impl FnMut(Option<&Value>) -> Result<Edit, LockError>,
) -> Result<(), LockError> {
    let dry_run = matches!(mode, Mode::DryRun);
    let deadline = deadline_after(mode.until().saturating_since(BootClock.now()));
    let (mut pauses, mut pause) = (BackendRetries::unseeded(), Duration::ZERO);
    loop {
        mode.check()?;
        let got = objects.get(name, deadline).await;
        let got = got.map_err(|failure| objects.lock_error(failure, name, "read", "get", false))?;
        let edit = edit(got.as_ref())?;
        let settles = matches!(edit, Edit::Settle(_));
        mode.check()?;
        let (operation, verb, written) = match edit {
            Edit::Nothing => return Ok(()),
            Edit::Create(object) => {
                ("creation", "create", objects.create_unless(dry_run, &object, deadline).await)
            }
            Edit::Merge(mut fields) | Edit::Settle(mut fields) => {
                if settles {
                    let nonce = fastrand::u64(..).to_string();
                    fields["metadata"]["annotations"][SETTLED] = nonce.into();
                }
                let read = got.as_ref().and_then(|got| got.pointer("/metadata/resourceVersion"));
                fields["metadata"]["resourceVersion"] = read.cloned().unwrap_or_default();
                ("write", "patch", objects.merge(dry_run, name, fields, deadline).await)
            }
        };
        match written {
            Ok(_) => return Ok(()),
            // After it, no earlier attempt at this write can be applied any more.
            Err(failure) if failure.is_conflict(name) => {
                let left = deadline.saturating_duration_since(tokio::time::Instant::now());
                sleep(pause.min(left)).await;
                pause = pauses.delay();
            }
            Err(failure) => return Err(objects.lock_error(failure, name, operation, verb, true)),
        }
    }
}

/// Does `work` until `until`, also if the machine was suspended meanwhile.
async fn within<T>(
    until: Instant,
    work: impl Future<Output = Result<T, LockError>>,
) -> Result<T, LockError> {
    tokio::select! {
        biased;
        () = sleep_until(BootClock, until) => Err(LockError::new(
            LockErrorKind::OutcomeUnknown,
            "the right to lead ended before the API server answered",
        )),
        done = work => done,
    }
}

/// The pod of this process, and the pods of its namespace.
#[derive(Debug)]
struct OwnPod {
    pods: Objects,
    name: String,
    /// As it was first read: a StatefulSet gives the name to another pod later.
    uid: OnceLock<String>,
}

impl OwnPod {
    fn new(cluster: &Cluster) -> Self {
        let (namespace, name) = (cluster.namespace(), cluster.pod_name());
        let path = Pod::url_path(&(), Some(namespace));
        let pods = Objects::new(cluster.access().clone(), path, "Pod", namespace).hedged();
        Self { pods, name, uid: OnceLock::new() }
    }

    fn named(self, name: String) -> Self {
        Self { pods: self.pods, name, uid: OnceLock::new() }
    }

    /// The name is a part of URLs.
    fn check_name(&self) -> Result<(), LockError> {
        check_object_name(&self.name).map_err(|rule| {
            misconfigured(format!("set POD_NAME from the field metadata.name: {rule}"))
        })
    }

    /// Whether this is the pod, and not a later one of the same name.
    fn is(&self, pod: &Value) -> bool {
        self.uid.get_or_init(|| life::uid(pod).to_owned()) == life::uid(pod)
    }

    fn missing(&self) -> LockError {
        misconfigured(format!(
            "no {} of this process: run in a pod, and set POD_NAME from the field metadata.name and POD_NAMESPACE from metadata.namespace",
            self.pods.describe(&self.name)
        ))
    }
}

/// The token in the annotation of an object: 0 without one; `None` if it is no number.
fn token_of(object: &Value) -> Option<Token> {
    match annotation(object, TOKEN) {
        Some(text) => text.parse().ok().map(Token),
        None => Some(Token(0)),
    }
}

/// Refuses to replace what a later term has written. `remedy`: as in `delete the slice`.
fn check_token(
    described: &str,
    object: &Value,
    token: Token,
    remedy: &str,
) -> Result<Token, LockError> {
    match token_of(object) {
        None => Err(misconfigured(format!(
            "the annotation {TOKEN} of the {described} is no number: {remedy}"
        ))),
        Some(found) if found > token => Err(LockError::new(
            LockErrorKind::Conflict,
            format!(
                "the {described} has the token {found} of a later leader than this one, {token}: if the lock was created anew, {remedy}"
            ),
        )),
        Some(found) => Ok(found),
    }
}

fn misconfigured(message: impl Into<String>) -> LockError {
    LockError::new(LockErrorKind::Misconfigured, message)
}

fn read_error(objects: &Objects, name: &str) -> impl FnOnce(ApiFailure) -> LockError {
    move |failure| objects.lock_error(failure, name, "read", "get", false)
}
