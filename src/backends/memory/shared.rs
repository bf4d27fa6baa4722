//! The state that the handles of a lock share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::calls::Calls;
use super::delivery::{Hints, Listener};
use super::store::{Bucket, Stored};
use crate::lock::{
    CallId, CandidateInfo, Content, Hint, LockError, LockErrorKind, Revision, unexpected,
};
use crate::time::clock::{Clock, Instant};
use crate::util::locked;

pub(super) struct Shared {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) max_lease: Duration,
    pub(super) state: Mutex<State>,
    /// Notifies the expiry task that an entry expires earlier than the task expects.
    pub(super) sooner: Arc<Notify>,
}

pub(super) struct State {
    pub(super) bucket: Bucket,
    pub(super) hints: Hints,
    pub(super) reachable: bool,
    /// Roll calls that wait for answers.
    pub(super) calls: Calls,
    /// The last write to the checkpoint of each election, and its number among all of them.
    pub(super) checkpoints: HashMap<Arc<str>, (u64, Vec<u8>)>,
    pub(super) expiry: Option<JoinHandle<()>>,
}

/// A roll call; its drop ends it.
pub(super) struct PendingCall<'a> {
    pub(super) lock: &'a Shared,
    pub(super) id: CallId,
}

impl PendingCall<'_> {
    pub(super) fn end(&self) -> Vec<CandidateInfo> {
        locked(&self.lock.state).calls.end(self.id)
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// The guard of a subscription; its drop ends the hints.
pub(super) struct SubscriptionGuard {
    pub(super) lock: Arc<Shared>,
    pub(super) name: Arc<str>,
    pub(super) listener: Arc<Listener>,
}

impl Drop for SubscriptionGuard {
    fn drop(&mut self) {
        locked(&self.lock.state).hints.unsubscribe(&self.name, &self.listener);
    }
}

impl State {
    /// Returns a conflict if the last revision is not the expected one.
    pub(super) fn expect(&self, name: &str, expected: Option<Revision>) -> Result<(), LockError> {
        let last = self.bucket.last(name).map(|record| record.revision);
        if last == expected {
            return Ok(());
        }
        Err(LockError::new(LockErrorKind::Conflict, unexpected(expected, last)))
    }

    pub(super) fn store(
        &mut self,
        name: &str,
        content: Content,
        life: Duration,
        now: Instant,
    ) -> Revision {
        let stored = self.bucket.store(name, content, now, life);
        let revision = stored.record.revision;
        self.queue_stored(stored);
        revision
    }

    fn queue_stored(&mut self, stored: Stored) {
        if self.reachable {
            let Stored { name, record, previous } = stored;
            let age = Some(Duration::ZERO);
            self.hints.queue(&name, &Hint::Stored { record, previous: Some(previous), age });
        }
    }
}

impl Shared {
    /// Expires due entries, performs `act`, and then delivers the hints of both.
    pub(super) fn act<T>(&self, act: impl FnOnce(&mut State, Instant) -> T) -> T {
        let now = self.clock.now();
        let answer = {
            let mut state = locked(&self.state);
            for stored in state.bucket.expire(now) {
                state.queue_stored(stored);
            }
            let due = state.bucket.next_due();
            let answer = act(&mut state, now);
            if state.bucket.next_due().is_some_and(|next| due.is_none_or(|due| next < due)) {
                self.sooner.notify_one();
            }
            answer
        };
        self.deliver();
        answer
    }

    /// Delivers waiting hints in order, unless another thread is delivering and takes these too.
    fn deliver(&self) {
        let Some(turn) = locked(&self.state).hints.take_turn() else { return };
        loop {
            // A statement of its own unlocks the state: the sink may use this lock.
            let next = locked(&self.state).hints.next(&turn);
            match next {
                Some((listener, hint)) => listener.send(hint),
                None => return,
            }
        }
    }

    /// Starts the task that expires entries, unless it runs, where there is a runtime.
    pub(super) fn ensure_expiry_task(self: &Arc<Self>) {
        let mut state = locked(&self.state);
        if state.expiry.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let task = expire(Arc::downgrade(self), self.sooner.clone());
            state.expiry = Some(runtime.spawn(task));
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = state.expiry.take() {
            task.abort();
        }
    }
}

/// Expires entries when they are due, so that their hints are sent then.
async fn expire(lock: Weak<Shared>, sooner: Arc<Notify>) {
    loop {
        let Some(lock) = lock.upgrade() else { return };
        let left = lock.act(|state, now| Some(state.bucket.next_due()?.saturating_since(now)));
        drop(lock);
        match left {
            None => sooner.notified().await,
            Some(left) => tokio::select! {
                () = tokio::time::sleep(left) => {}
                () = sooner.notified() => {}
            },
        }
    }
}
