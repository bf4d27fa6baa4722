//! What a leader for life holds.

use std::fmt;

use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use super::error::{LifeError, final_error};
use super::object::{self, Content};
use super::pod;
use super::status::Reporter;
use super::watches::{Role, Target, Watches};
use crate::backends::kubernetes::api::{Objects, REQUEST_TIMEOUT};
use crate::backends::kubernetes::events::Recorder;
use crate::lock::{LockError, LockErrorKind, Token};
use crate::util::retry::Pauses;

/// Leadership for the rest of this pod's life.
///
/// Nothing is renewed and nothing ends it but what the [module](super) lists, and [`release`](Self::release). Dropping it gives
/// nothing up: the lock is the pod's, until the pod is gone.
#[must_use]
pub struct LifeLeadership {
    pub(super) locks: Objects,
    pub(super) name: String,
    pub(super) pod: String,
    pub(super) pod_uid: String,
    /// Of the lock.
    pub(super) uid: String,
    pub(super) token: Token,
    pub(super) resumed: bool,
    pub(super) poll: std::time::Duration,
    pub(super) api_version: String,
    /// Those Events that are under way end with it.
    pub(super) recorder: Option<Recorder>,
    pub(super) report: Reporter,
}

impl LifeLeadership {
    /// The name of the election.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The pod that leads: this one.
    pub fn pod(&self) -> &str {
        &self.pod
    }

    /// The fencing token: the resourceVersion of the lock as it was found or made. It is greater than that of every pod
    /// that led before, and not less than that of an earlier container of this pod.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether the lock was this pod's already: an earlier container of it has led, and what that one began may be
    /// half done.
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// Answers once the lock is not this pod's any more: somebody has deleted it, or taken its owner reference. Somebody
    /// else may lead by then.
    ///
    /// It is told by a watch, and by a look every poll. While the API server cannot be reached it waits, so silence
    /// proves nothing. Cancel safe.
    pub async fn lost(&self) {
        let mut watches = Watches::new(self.poll);
        let mut pauses = Pauses::new();
        loop {
            let look = self.locks.get(&self.name, Instant::now() + REQUEST_TIMEOUT).await;
            let lock = match look {
                Ok(lock) => lock,
                Err(failure) => {
                    debug!(object = %self.name, ?failure, "cannot look whether the lock is still ours");
                    sleep(pauses.next()).await;
                    continue;
                }
            };
            let Some(lock) = lock.filter(|lock| self.is_ours(lock)) else {
                if self.report.lost() {
                    warn!(election = %self.name, pod = %self.pod, "the lock is gone, so this pod leads no more");
                }
                return;
            };
            pauses = Pauses::new();
            let target = Target::new(Role::Lock, &self.name, pod::version(&lock));
            if !watches.follow(vec![target], |_| &self.locks).await {
                continue;
            }
            // Past its time it looks for itself.
            let _ = timeout(watches.patience(), watches.heard()).await;
        }
    }

    /// Gives the lock up while the pod lives on, so that another one may lead. **Stop what only the leader may do first**: the
    /// next one leads at once, and nothing holds it back until this one has stopped.
    ///
    /// The lock is deleted as it was just read, by its UID and resourceVersion: one that somebody else has made meanwhile
    /// stays. Answers once the lock is not this pod's any more, whoever saw to that. While the API server does not answer it
    /// goes on trying, so give it a limit in time if you have one. Takes the right to `delete`.
    ///
    /// # Errors
    /// [`LifeErrorKind::Denied`](super::LifeErrorKind::Denied) where a right is missing. This pod leads still.
    ///
    /// # Cancel safety
    /// Dropped, it has either deleted the lock or not, and [`lost`](Self::lost) tells. It may be called again; or the pod keeps
    /// the lock, and whoever awaits another [`leader_for_life`](super::leader_for_life) in it leads on.
    pub async fn release(&self) -> Result<(), LifeError> {
        let mut pauses = Pauses::new();
        loop {
            match self.delete().await {
                Ok(deleted) => {
                    self.tell_release(deleted);
                    return Ok(());
                }
                Err(error) => match error.kind() {
                    LockErrorKind::Denied | LockErrorKind::Misconfigured => {
                        return Err(final_error(error));
                    }
                    _ => debug!(object = %self.name, %error, "not released yet"),
                },
            }
            sleep(pauses.next()).await;
        }
    }

    /// Deletes the lock if it is ours, and answers it; `None` if it is not. A delete whose answer was lost is told apart from none
    /// by looking again.
    async fn delete(&self) -> Result<Option<Value>, LockError> {
        let by = Instant::now() + REQUEST_TIMEOUT;
        let lock = self.locks.get(&self.name, by).await;
        let lock = lock.map_err(|f| self.locks.lock_error(f, &self.name, "read", "get", false))?;
        let Some(lock) = lock.filter(|lock| self.is_ours(lock)) else { return Ok(None) };
        let deleted = self.locks.delete(&self.name, &self.uid, Some(pod::version(&lock)), by).await;
        deleted.map_err(|f| self.locks.lock_error(f, &self.name, "delete", "delete", true))?;
        Ok(Some(lock))
    }

    fn tell_release(&self, deleted: Option<Value>) {
        self.report.released();
        info!(election = %self.name, pod = %self.pod, "has given the lock up, and leads no more");
        if let (Some(recorder), Some(lock)) = (&self.recorder, deleted) {
            let reference = self.locks.reference(&self.api_version, &self.name, &lock);
            recorder.tell(reference, &format!("{} stopped leading", self.pod));
        }
    }

    /// By the UID: a lock that was deleted and made anew by an earlier or later process of this pod is another term.
    fn is_ours(&self, lock: &Value) -> bool {
        pod::uid(lock) == self.uid
            && matches!(object::read(lock), Content::Of(owners)
                if owners.iter().any(|owner| owner.uid == self.pod_uid))
    }
}

impl fmt::Debug for LifeLeadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LifeLeadership")
            .field("name", &self.name)
            .field("pod", &self.pod)
            .field("token", &self.token)
            .field("resumed", &self.resumed)
            .finish_non_exhaustive()
    }
}
