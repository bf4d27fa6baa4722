//! The state that the driver of a candidate and its handles share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::broadcast;

use super::hint_queue::HintQueue;
use super::inbox::Inbox;
use super::term::{LeadsUntil, Term, TermOwner};
use crate::election::change::Change;
use crate::lock::{Content, Entry, Hint, HintSink, Lock, Nonce, Readiness};
use crate::protocol::{Leader, LockFailure, State, WaitReason};
use crate::time::clock::{Clock, Instant};
use crate::util::locked;
use crate::util::watched::Watched;

/// How many changes a slow reader may lag behind.
const CHANGES_KEPT: usize = 64;

/// What handles of an election see, and the driver writes.
pub(crate) struct Shared {
    pub name: Arc<str>,
    pub identity: Arc<str>,
    /// See [`nonce`](Self::nonce).
    nonce: AtomicU64,
    pub started: Instant,
    pub clock: Arc<dyn Clock>,
    /// The lock, or the one that is made of several.
    pub lock: Arc<dyn Lock>,
    pub inbox: Inbox,
    pub status: Watched<Status>,
    changes: Mutex<ChangeSender>,
    pub leads_until: LeadsUntil,
    pub hints: HintQueue,
}

/// Where changes are sent.
#[derive(Default)]
enum ChangeSender {
    /// No reader yet, as few elections are watched.
    #[default]
    Unused,
    Open(broadcast::Sender<Change>),
    /// The candidate has stopped.
    Closed,
}

#[derive(Default)]
pub(crate) struct Status {
    pub state: State,
    pub leader: Option<Leader>,
    pub cool_down: Option<(Instant, WaitReason)>,
    pub lock_failure: Option<LockFailure>,
    /// Whether the lock refuses its writes.
    pub is_refused: bool,
    pub readiness: Readiness,
    /// Why the check fails, if the candidate is sick.
    pub check_failure: Option<Arc<str>>,
    /// Until when the election is paused, by the wall clock.
    pub paused_until_unix_ms: Option<u64>,
    pub term: Option<Arc<Term>>,
    pub stopping: bool,
    pub finished: bool,
}

impl Shared {
    pub fn new(
        name: Arc<str>,
        (identity, nonce): (Arc<str>, Nonce),
        clock: Arc<dyn Clock>,
        lock: Arc<dyn Lock>,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            identity,
            nonce: AtomicU64::new(nonce.0),
            started: clock.now(),
            clock,
            lock,
            inbox: Inbox::default(),
            status: Watched::new(Status::default()),
            changes: Mutex::default(),
            leads_until: LeadsUntil::default(),
            hints: HintQueue::default(),
        })
    }

    pub fn leads(&self) -> bool {
        self.leads_until.is_after(self.clock.now())
    }

    /// The state, and the term in which this candidate leads, at this moment: the driver may be
    /// late to process the end of a term.
    pub fn state_and_term<'s>(&self, status: &'s Status) -> (State, Option<&'s Arc<Term>>) {
        match status.state {
            State::Leader if !self.leads() => (State::Candidate, None),
            state => (state, status.term.as_ref().filter(|_| state == State::Leader)),
        }
    }

    /// For a term of this candidate.
    pub fn term_owner(&self) -> TermOwner {
        TermOwner {
            election: Arc::clone(&self.name),
            clock: Arc::clone(&self.clock),
            inbox: self.inbox.clone(),
            leads_until: self.leads_until.clone(),
        }
    }

    /// `None` once the candidate has stopped.
    pub fn subscribe(&self) -> Option<broadcast::Receiver<Change>> {
        let mut changes = locked(&self.changes);
        match &*changes {
            ChangeSender::Unused => {
                let (sender, receiver) = broadcast::channel(CHANGES_KEPT);
                *changes = ChangeSender::Open(sender);
                Some(receiver)
            }
            ChangeSender::Open(sender) => Some(sender.subscribe()),
            ChangeSender::Closed => None,
        }
    }

    pub fn publish(&self, change: Change) {
        if let ChangeSender::Open(sender) = &*locked(&self.changes) {
            let _ = sender.send(change); // an error means that nobody listens
        }
    }

    /// Ends every stream of changes.
    pub fn close(&self) {
        *locked(&self.changes) = ChangeSender::Closed;
    }

    /// The candidate's nonce: another one once it has found a twin.
    pub fn nonce(&self) -> Nonce {
        Nonce(self.nonce.load(Ordering::Relaxed))
    }

    /// The candidate may have found a twin.
    pub fn set_nonce(&self, nonce: Nonce) {
        self.nonce.store(nonce.0, Ordering::Relaxed);
    }

    pub fn update(&self, change: impl FnOnce(&mut Status)) {
        self.status.send_modify(change);
    }

    /// Whether a hint shows a leader its own renewal, from which it learns nothing: only the
    /// response counts. On the election's only lock that wakes no task.
    fn is_own_renewal(&self, hint: &Hint) -> bool {
        let Hint::Stored { record, .. } = hint else { return false };
        let Content::Held(Entry { mark: Some(mark), .. }) = &record.content else { return false };
        mark.write.nonce == self.nonce() && mark.token.is_some() && self.leads()
    }

    /// For the hints of one of the election's locks.
    pub fn hint_sink(self: &Arc<Self>, lock: usize) -> HintSink {
        let shared = Arc::downgrade(self);
        let only = self.lock.members().is_none();
        HintSink::new(move |hint| {
            if let Some(shared) = shared.upgrade()
                && !(only && shared.is_own_renewal(&hint))
            {
                shared.hints.put(lock, hint, &shared.inbox);
            }
        })
    }
}
