//! The handle on a candidate.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use thiserror::Error;
use tokio::sync::oneshot;

use super::change::Change;
use super::hand_over::HandOverError;
use super::inbox::Input;
use super::shared::Shared;
use super::watch::StatusWatch;
use crate::election::leadership::Leadership;
use crate::election::step::Step;
use crate::lock::{
    Advertisement, AdvertisementError, CandidateInfo, CandidateRequest, HandoverAnswer, LockError,
    Pause, RollCall, Successor, Token,
};
use crate::protocol::{Leader, LockFailure, State};
use crate::time::clock::Instant;
use crate::util::changes::Changes;

/// For how long the answer of the holder to a pause is awaited.
const PAUSE_WITHIN: Duration = Duration::from_secs(1);

/// A handle on a candidate that runs by itself. Cheap to clone.
///
/// Clones share the candidate. When the last one is dropped, the candidate stops as by
/// [`stop`](Self::stop), without anybody waiting for it.
#[derive(Clone)]
#[must_use = "dropping the last handle stops the candidate"]
pub struct Election {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.inbox.send(Input::Stop);
    }
}

impl Election {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { handle: Arc::new(Handle { shared }) }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// The election's name.
    pub fn name(&self) -> &str {
        &self.shared().name
    }

    /// The identity of this candidate.
    pub fn identity(&self) -> &str {
        &self.shared().identity
    }

    /// Returns whether this candidate leads at this moment: a comparison of the clock with the
    /// deadline. No event has to arrive for it to become false. Unless the runtime is blocked, it
    /// is false from the moment at which the work must stop, a grace before the deadline.
    ///
    /// It holds for the moment of the call, and promises nothing for the next one: no candidate
    /// waits for what is done upon its result, so a resignation, a stop or an eviction may let
    /// another candidate lead beside it. Hold a [`step`](Self::step) meanwhile, or a
    /// [`Leadership`]. Neither can stop what continues beyond the deadline: give it the token.
    pub fn is_leader(&self) -> bool {
        self.shared().leads()
    }

    /// Permission for one step of the leader's work; `None` while this candidate does not lead.
    ///
    /// For work that checks for leadership, and does not hold a [`Leadership`]: while the [`Step`]
    /// is held, a resignation or a stop waits for it, up to the deadline, before it lets others
    /// lead. Any number may be held at once. Steps that begin as others end do not keep a term
    /// alive: once the term ends there are no more of them.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let lock = incumbent::memory::MemoryLock::new();
    /// let election = incumbent::new_election("my_app", lock).start()?;
    /// # let _leadership = election.won().await?;
    /// if let Some(step) = election.step() {
    ///     println!("done with token {}", step.token()); // what is short against the lease
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn step(&self) -> Option<Step> {
        let term = self.shared().status.borrow().term.clone();
        term.and_then(|term| Step::of(&term))
    }

    /// The state of this candidate, in Choria's words.
    pub fn state(&self) -> State {
        self.shared().state_and_term(&self.shared().status.borrow()).0
    }

    /// The leader, as last seen; `None` while there is none, or nothing is known. For how fresh
    /// that is see [`leader_age`](Self::leader_age).
    pub fn leader(&self) -> Option<Leader> {
        self.shared().status.borrow().leader.clone()
    }

    /// The leader, unless it has not been seen to write for longer than its lease, and a second:
    /// then it may be gone, though that is not known yet, as while the lock is unreachable.
    pub fn fresh_leader(&self) -> Option<Leader> {
        let now = self.shared().clock.now();
        self.leader().filter(|leader| leader.is_fresh(now))
    }

    /// How long ago the last write of the leader was seen first, on the election's clock. Where the
    /// lock sends no hints, a leader that renews is up to one poll older by this than it is.
    pub fn leader_age(&self) -> Option<Duration> {
        let now = self.shared().clock.now();
        self.leader().map(|leader| now.saturating_since(leader.last_seen))
    }

    /// The status now and each time it changes. Level-triggered: a slow reader gets the newest
    /// status.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use incumbent::{State, memory::MemoryLock, new_election};
    /// let election = new_election("my_app", MemoryLock::new()).identity("c1").start()?;
    /// let mut watch = election.watch();
    /// while let Some(status) = watch.next().await {
    ///     if status.state == State::Leader {
    ///         assert_eq!(status.leader.map(|leader| leader.is_me), Some(true));
    ///         break;
    ///     }
    /// }
    /// election.stop().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn watch(&self) -> StatusWatch {
        StatusWatch::new(Arc::clone(self.shared()))
    }

    /// What keeps requests to the lock from succeeding, while something does.
    pub fn lock_failure(&self) -> Option<LockFailure> {
        self.shared().status.borrow().lock_failure.clone()
    }

    /// The token of the term in which this candidate leads at this moment.
    pub fn token(&self) -> Option<Token> {
        self.shared().state_and_term(&self.shared().status.borrow()).1.map(|term| term.token)
    }

    /// The tokens of that term on each of the election's locks, in their order; empty while this
    /// candidate does not lead. See [`Leadership::tokens`].
    pub fn tokens(&self) -> Vec<Option<Token>> {
        let status = self.shared().status.borrow();
        self.shared().state_and_term(&status).1.map(|term| term.tokens()).unwrap_or_default()
    }

    /// When this candidate's right to lead ends, unless it is renewed before; `None` while it does
    /// not lead, and from the moment at which the work must stop.
    ///
    /// On the election's [`Clock`](crate::time::clock::Clock). One that has passed shows that this
    /// program is held up: the end was not reported.
    pub fn deadline(&self) -> Option<Instant> {
        self.shared().status.borrow().term.as_ref().map(|term| term.deadline())
    }

    /// Waits until this candidate leads. Several callers share a term: it lasts until the last of
    /// them drops its guard.
    ///
    /// # Errors
    /// [`Stopped`], if the candidate stops first.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is won or lost by dropping the returned future.
    pub async fn won(&self) -> Result<Leadership, Stopped> {
        let mut status = self.shared().status.subscribe();
        loop {
            let term = {
                let status = status.wait_for(|s| s.finished || s.term.is_some()).await;
                if status.finished {
                    return Err(Stopped);
                }
                status.term.clone()
            };
            if let Some(leadership) = term.and_then(|term| Leadership::of(&term)) {
                return Ok(leadership);
            }
            status.changed().await;
        }
    }

    /// Every change from now on, oldest first. See [`Change`]. What came before this call is not
    /// among them, and may be the first of all: see
    /// [`ElectionBuilder::start_with_changes`](crate::ElectionBuilder::start_with_changes).
    pub fn changes(&self) -> Changes<Change> {
        changes_of(self.shared())
    }

    /// Changes where this candidate can be reached while it leads, as
    /// [`ElectionBuilder::advertise`](crate::ElectionBuilder::advertise) sets it at the start.
    /// Returns at once: its next write, while it leads its next renewal, carries the new
    /// advertisement to the other candidates and observers.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let lock = incumbent::memory::MemoryLock::new();
    /// let election = incumbent::new_election("my_app", lock).advertise("10.0.0.3:50051").start()?;
    /// // The server listens on another port from now on.
    /// election.advertise("10.0.0.3:50052")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AdvertisementError`]. The advertisement stays as it was then.
    pub fn advertise(
        &self,
        advertisement: impl Into<Advertisement>,
    ) -> Result<(), AdvertisementError> {
        let advertisement = advertisement.into();
        advertisement.check()?;
        self.shared().inbox.send(Input::Advertise(Arc::new(advertisement)));
        Ok(())
    }

    /// Calls the roll: asks the candidates of the election who they are, and returns what they
    /// answer within the time, in no order. 1 s suffices for most fleets; their answers are spread
    /// over it. It costs nothing while there is no call.
    ///
    /// Not complete where candidates are slow or cut off, and not trustworthy: see
    /// [`CandidateInfo`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::{Duration, SystemTime};
    /// # let lock = incumbent::memory::MemoryLock::new();
    /// let election = incumbent::new_election("my_app", lock).identity("c1").start()?;
    /// for candidate in election.roll_call(Duration::from_millis(200)).await? {
    ///     println!("{}: {}", candidate.identity, candidate.role.as_str());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`LockError`]: the lock is out of reach, denies it, or carries no calls
    /// ([`LockErrorKind::Misconfigured`](crate::lock::LockErrorKind::Misconfigured)).
    pub async fn roll_call(&self, within: Duration) -> Result<Vec<CandidateInfo>, LockError> {
        self.call(CandidateRequest::Identify, within).await
    }

    async fn call(
        &self,
        request: CandidateRequest,
        within: Duration,
    ) -> Result<Vec<CandidateInfo>, LockError> {
        self.shared().lock.call_roll(self.name(), request, within.min(RollCall::MAX_WITHIN)).await
    }

    /// Steps down, if this candidate leads, and takes part again after letting others go first.
    /// Returns at once: the term ends with [`Cause::Resigned`](crate::Cause::Resigned) when its
    /// work has stopped, or has [drained](crate::ElectionBuilder::drain).
    pub fn resign(&self) {
        self.shared().inbox.send(Input::Resign { term: None });
    }

    /// Hands over to a candidate that is ready, if this candidate leads: see
    /// [`Leadership::hand_over`].
    ///
    /// # Errors
    /// [`HandOverError`]. This candidate then continues to lead.
    pub async fn hand_over(&self, to: impl Into<Successor>) -> Result<Arc<str>, HandOverError> {
        let (reply, outcome) = oneshot::channel();
        self.shared().inbox.send(Input::HandOver { term: None, to: Box::new(to.into()), reply });
        outcome.await.unwrap_or(Err(HandOverError::Stopped))
    }

    /// Requests the leader, whichever candidate that is, to hand over to one that is ready. Returns
    /// the identity of the one that it hands over to, before it does so.
    ///
    /// # Errors
    /// [`HandOverError`]: the leader continues to lead, or does not understand requests.
    pub async fn move_leader(&self, to: impl Into<Successor>) -> Result<Arc<str>, HandOverError> {
        let request = CandidateRequest::HandOver(to.into());
        let within = RollCall::HANDOVER_WITHIN;
        let answers = self.call(request, within).await.map_err(HandOverError::Lock)?;
        match answers.into_iter().find_map(|info| info.handover) {
            Some(HandoverAnswer::To(to)) => Ok(to),
            Some(HandoverAnswer::Refused(why)) => Err(HandOverError::Answered(why)),
            None => Err(HandOverError::NoAnswer),
        }
    }

    /// Pauses the election: for this long no candidate is preferred to the leader, and no failed
    /// check moves the leadership. A stop, a resignation, an operator's request and a crash still
    /// do. Zero ends a pause. Returns the holder of the entry, which states the pause there within
    /// a second, and which its successors carry on; nothing if no holder answered.
    ///
    /// # Errors
    /// As [`roll_call`](Self::roll_call).
    pub async fn pause(&self, span: Duration) -> Result<Vec<CandidateInfo>, LockError> {
        let pause = Pause::new(SystemTime::now(), span);
        self.call(CandidateRequest::Pause(pause), PAUSE_WITHIN).await
    }

    /// Has this candidate stand aside, or take part as usual again. One that stands aside leads
    /// only if no ready one does, whatever its priority; if it leads, it hands over. Returns at
    /// once.
    ///
    /// For the planned maintenance of a host, which must not leave the election without a leader if
    /// it is the only one.
    pub fn stand_aside(&self, aside: bool) {
        self.shared().inbox.send(Input::StandAside(aside));
    }

    /// Ends a [drain](crate::ElectionBuilder::drain) now, if there is one: the term ends, and its
    /// work has the grace to stop. Returns at once.
    pub fn end_drain(&self) {
        self.shared().inbox.send(Input::EndDrain);
    }

    /// Stops the candidate: the work [drains](crate::ElectionBuilder::drain) where that is set, and
    /// stops, the loss is reported, the entry is released, then this returns.
    ///
    /// The candidate stops once this has been called, even if the returned future is dropped. It
    /// takes at most the drain, the rest of the lease for the work to stop, and a few seconds to
    /// release the entry where the lock is slow. Calling it from a callback makes that callback
    /// wait for itself until it is stopped by force: [`Leadership::resign`] and dropping the
    /// election do not wait.
    pub async fn stop(&self) {
        self.shared().inbox.send(Input::Stop);
        let mut status = self.shared().status.subscribe();
        drop(status.wait_for(|s| s.finished).await);
    }
}

partial_debug!(Election, self, name: self.name(), identity: self.identity(), state: self.state());

/// The candidate has been stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the candidate has been stopped")]
pub struct Stopped;

/// Every change from now on.
pub(crate) fn changes_of(shared: &Shared) -> Changes<Change> {
    Changes::of(shared.subscribe(), Change::Missed)
}
