//! Objects that follow the leader: the EndpointSlices of a Service, and the leader's pod.

mod pod;
mod service;
mod slice;

use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use serde_json::Value;

use super::api::{ApiFailure, Objects, REQUEST_TIMEOUT};
use super::cluster::Cluster;
use super::record::annotation;
use super::resource::check_object_name;
use crate::lock::{LockError, LockErrorKind, Token};
use crate::time::clock::{BootClock, Clock, Instant, sleep_until};
use crate::time::timer::deadline_after;

pub use pod::LeaderPod;
pub use service::ServiceFollowsLeader;

/// The annotation with the fencing token of the term that wrote an object last.
const TOKEN: &str = "incumbent/token";

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
    let by = deadline_after(mode.until().saturating_since(BootClock.now()));
    loop {
        mode.check()?;
        let got = objects.get(name, by).await;
        let got = got.map_err(|failure| objects.lock_error(failure, name, "read", "get", false))?;
        let edit = edit(got.as_ref())?;
        mode.check()?;
        let (doing, verb, written) = match edit {
            Edit::Nothing => return Ok(()),
            Edit::Create(object) => {
                ("creation", "create", objects.create_unless(dry_run, &object, by).await)
            }
            Edit::Merge(mut fields) => {
                let read = got.as_ref().and_then(|got| got.pointer("/metadata/resourceVersion"));
                fields["metadata"]["resourceVersion"] = read.cloned().unwrap_or_default();
                ("write", "patch", objects.merge(dry_run, name, fields, by).await)
            }
        };
        match written {
            Ok(_) => return Ok(()),
            Err(failure) if failure.is_change_of(name) => {}
            Err(failure) => return Err(objects.lock_error(failure, name, doing, verb, true)),
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
        done = work => done,
        () = sleep_until(BootClock, until) => Err(LockError::new(
            LockErrorKind::OutcomeUnknown,
            "the right to lead ended before the API server answered",
        )),
    }
}

/// The pods of the namespace, and the one of this process.
fn pods(cluster: &Cluster) -> Objects {
    let namespace = cluster.namespace();
    Objects::new(cluster.access().clone(), Pod::url_path(&(), Some(namespace)), "Pod", namespace)
}

fn check_pod_name(name: &str) -> Result<(), LockError> {
    check_object_name(name)
        .map_err(|rule| misconfigured(format!("set POD_NAME from the field metadata.name: {rule}")))
}

fn no_pod(pods: &Objects, name: &str) -> LockError {
    misconfigured(format!(
        "no {}: run in a pod, and set POD_NAME from the field metadata.name and POD_NAMESPACE from metadata.namespace",
        pods.describe(name)
    ))
}

/// The token in the annotation of an object: 0 without one; `None` if it is no number.
fn token_of(object: &Value) -> Option<Token> {
    match annotation(object, TOKEN) {
        Some(text) => text.parse().ok().map(Token),
        None => Some(Token(0)),
    }
}

fn misconfigured(message: impl Into<String>) -> LockError {
    LockError::new(LockErrorKind::Misconfigured, message)
}

fn read_error(objects: &Objects, name: &str) -> impl FnOnce(ApiFailure) -> LockError {
    move |failure| objects.lock_error(failure, name, "read", "get", false)
}
