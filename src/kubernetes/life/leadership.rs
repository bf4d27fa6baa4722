//! What a leader for life holds.

use std::fmt;

use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use super::super::events::Recorder;
use super::super::watch::{LONGEST_PAUSE, pauses};
use super::candidate::ANSWERS_WITHIN;
use super::object::{self, Content};
use super::pod;
use super::watches::{Role, Target, Watches};
use crate::kubernetes::api::Objects;
use crate::lock::Token;

/// Leadership for the rest of this pod's life.
///
/// Nothing is renewed and nothing ends it but what the [module](super) lists. Dropping it gives nothing up: the lock is the
/// pod's, until the pod is gone.
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
    /// Those Events that are under way end with it.
    pub(super) _recorder: Option<Recorder>,
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
        let mut pauses = pauses();
        loop {
            let look = self.locks.get(&self.name, Instant::now() + ANSWERS_WITHIN).await;
            let lock = match look {
                Ok(lock) => lock,
                Err(failure) => {
                    debug!(object = %self.name, ?failure, "cannot look whether the lock is still ours");
                    sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
                    continue;
                }
            };
            let Some(lock) = lock.filter(|lock| self.is_ours(lock)) else {
                warn!(election = %self.name, pod = %self.pod, "the lock is gone, so this pod leads no more");
                return;
            };
            pauses = self::pauses();
            let target = Target::new(Role::Lock, &self.name, pod::version(&lock));
            if !watches.follow(vec![target], |_| &self.locks).await {
                continue;
            }
            // Past its time it looks for itself.
            let _ = timeout(watches.patience(), watches.heard()).await;
        }
    }

    /// By the UID: a lock that was deleted and made anew by an earlier or later process of this pod is another term.
    fn is_ours(&self, lock: &serde_json::Value) -> bool {
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
