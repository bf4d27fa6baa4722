//! The leadership of a leader for life.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::error::{LifeError, final_error};
use super::object::{self, Content};
use super::pod;
use super::status::Reporter;
use super::watches::{Role, Target, Watches};
use crate::backends::kubernetes::api::{Objects, REQUEST_TIMEOUT};
use crate::backends::kubernetes::events::Recorder;
use crate::lock::{LockError, LockErrorKind, Token};
use crate::util::retry::BackendRetries;

/// Leadership for the rest of this pod's life.
///
/// Nothing is renewed. It ends only by the events that the [module](super) lists, and by
/// [`release`](Self::release). Dropping it releases nothing: the pod owns the lock until the pod is
/// gone.
#[must_use]
pub struct LifeLeadership {
    pub(super) locks: Objects,
    pub(super) name: String,
    pub(super) pod: String,
    pub(super) pod_uid: String,
    /// The UID of the lock.
    pub(super) uid: String,
    pub(super) token: Token,
    pub(super) resumed: bool,
    pub(super) poll: std::time::Duration,
    pub(super) api_version: String,
    /// Its writes in progress end with the leadership.
    pub(super) recorder: Option<Recorder>,
    pub(super) report: Reporter,
}

impl LifeLeadership {
    /// Returns the name of the election.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the leading pod, which is that of this process.
    pub fn pod(&self) -> &str {
        &self.pod
    }

    /// Returns the fencing token: the resourceVersion of the lock as it was found or created. It is
    /// greater than that of every pod that led before, and not less than that of an earlier
    /// container of this pod.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Returns whether this pod already owned the lock: an earlier container of the pod has led,
    /// and may have left work half done.
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// Waits until this pod no longer owns the lock: another client has deleted it, or removed its
    /// owner reference. Another pod may lead by then.
    ///
    /// A watch detects the change, and a read if the watch is silent. While the API server cannot
    /// be reached, the method waits, so a pending call proves nothing. Cancel safe.
    pub async fn lost(&self) {
        let mut watches = Watches::new(self.poll);
        let mut pauses = BackendRetries::unseeded();
        loop {
            let read = self.locks.get(&self.name, Instant::now() + REQUEST_TIMEOUT).await;
            let lock = match read {
                Ok(lock) => lock,
                Err(failure) => {
                    debug!(object = %self.name, ?failure, "cannot read the lock");
                    sleep(pauses.delay()).await;
                    continue;
                }
            };
            let Some(lock) = lock.filter(|lock| self.is_ours(lock)) else {
                if self.report.lost() {
                    warn!(election = %self.name, pod = %self.pod, "lost leadership for life: the lock is gone");
                }
                return;
            };
            pauses = BackendRetries::unseeded();
            let target = Target::new(Role::Lock, &self.name, pod::version(&lock));
            if !watches.follow(vec![target], |_| &self.locks).await {
                continue;
            }
            watches.changed(Duration::MAX).await;
        }
    }

    /// Releases the lock while the pod lives on, so that another pod can lead. **Stop all work of
    /// the leader first**: the successor leads at once, and does not wait until this pod has
    /// stopped.
    ///
    /// Deletes the lock as it was just read, by its UID and resourceVersion: a lock that another
    /// client has created meanwhile stays. Returns once this pod no longer owns the lock, whatever
    /// the cause. While the API server does not respond, the method keeps retrying; set a timeout
    /// if needed. Requires the permission to `delete`.
    ///
    /// # Errors
    /// [`LifeErrorKind::Denied`](super::LifeErrorKind::Denied) if a permission is missing. This pod
    /// still leads.
    ///
    /// # Cancel safety
    /// If dropped, the lock is either deleted or not, and [`lost`](Self::lost) reports which. The
    /// method may be called again. Otherwise the pod keeps the lock, and the next
    /// [`leader_for_life`](super::leader_for_life) awaited in the pod resumes leading.
    pub async fn release(&self) -> Result<(), LifeError> {
        let mut pauses = BackendRetries::unseeded();
        loop {
            match self.delete().await {
                Ok(deleted) => {
                    self.report_release(deleted);
                    return Ok(());
                }
                Err(error) => match error.kind() {
                    LockErrorKind::Denied | LockErrorKind::Misconfigured => {
                        return Err(final_error(error));
                    }
                    _ => debug!(object = %self.name, %error, "not released yet"),
                },
            }
            sleep(pauses.delay()).await;
        }
    }

    /// Deletes the lock if this pod owns it, and returns it; `None` if the pod does not own it. The
    /// next read shows whether a delete whose response was lost took effect.
    async fn delete(&self) -> Result<Option<Value>, LockError> {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let lock = self.locks.get(&self.name, deadline).await;
        let lock = lock.map_err(|f| self.locks.lock_error(f, &self.name, "read", "get", false))?;
        let Some(lock) = lock.filter(|lock| self.is_ours(lock)) else { return Ok(None) };
        let deleted =
            self.locks.delete(&self.name, &self.uid, Some(pod::version(&lock)), deadline).await;
        deleted.map_err(|f| self.locks.lock_error(f, &self.name, "delete", "delete", true))?;
        Ok(Some(lock))
    }

    fn report_release(&self, deleted: Option<Value>) {
        self.report.released();
        info!(election = %self.name, pod = %self.pod, "released leadership for life");
        if let (Some(recorder), Some(lock)) = (&self.recorder, deleted) {
            let reference = self.locks.reference(&self.api_version, &self.name, &lock);
            recorder.record_event(reference, &format!("{} stopped leading", self.pod));
        }
    }

    /// Compares the UID: a lock that another process of this pod deleted and created again is
    /// another term.
    fn is_ours(&self, lock: &Value) -> bool {
        pod::uid(lock) == self.uid
            && matches!(object::read(lock), Content::Of(owners)
                if owners.iter().any(|owner| owner.uid == self.pod_uid))
    }
}

partial_debug!(
    LifeLeadership, self, name: self.name, pod: self.pod, token: self.token, resumed: self.resumed
);
