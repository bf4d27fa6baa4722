//! The face: building, starting and holding an election.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use thiserror::Error;
use tokio::sync::broadcast::error::RecvError;

use crate::clock::{BootClock, Clock};
use crate::driver::{self, Callbacks, Input, Shared};
use crate::leadership::{Leadership, Loss};
use crate::lock::{Lock, Nonce, Token};
use crate::protocol::{
    Backoff, BackoffPolicy, Campaign, Cause, CoolDown, Failure, Leader, Settings, State, Timing,
    TimingError, TimingOptions,
};

/// Begins to describe a part in the election `name` on `lock`.
///
/// Nothing happens before [`start`](ElectionBuilder::start).
pub fn new_election(name: impl Into<String>, lock: impl Lock) -> ElectionBuilder {
    ElectionBuilder {
        name: name.into(),
        lock: Arc::new(lock),
        identity: None,
        timing: TimingOptions::default(),
        cool_down: CoolDown::default(),
        backoff: Box::new(Backoff::FIVE_SEC),
        hold_back: Duration::ZERO,
        priority: 0,
        clock: Arc::new(BootClock),
        callbacks: Callbacks::default(),
        stands: true,
    }
}

/// Watches the election `name` on `lock` without standing in it. It writes nothing.
///
/// # Errors
/// As [`ElectionBuilder::start`].
pub fn observe(name: impl Into<String>, lock: impl Lock) -> Result<Observer, StartError> {
    let builder = ElectionBuilder { stands: false, ..new_election(name, lock) };
    Ok(Observer { election: builder.start()? })
}

/// How to stand in an election. Every duration counts on this campaigner's own clock.
#[must_use = "an election begins with start()"]
pub struct ElectionBuilder {
    name: String,
    lock: Arc<dyn Lock>,
    identity: Option<String>,
    timing: TimingOptions,
    cool_down: CoolDown,
    backoff: Box<dyn BackoffPolicy>,
    hold_back: Duration,
    priority: u8,
    clock: Arc<dyn Clock>,
    callbacks: Callbacks,
    stands: bool,
}

impl ElectionBuilder {
    /// What people read as the holder's name. Default: the host's name.
    ///
    /// It need not be unique: campaigners are told apart by a number drawn at each start.
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = Some(identity.into());
        self
    }

    /// How long one write to the lock entitles its writer to lead, counted from before it was sent: 1 s to 1 h, at most
    /// what the lock allows. Default: what the lock allows (for a bucket, its TTL).
    ///
    /// It is how long a crashed leader may stay unreplaced, and how long a leader survives a lock out of reach.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.timing.lease = Some(lease);
        self
    }

    /// How long after a write the leader renews. Default: a third of the lease.
    pub fn renewal(mut self, renewal: Duration) -> Self {
        self.timing.renewal = Some(renewal);
        self
    }

    /// How long guarded work may take to stop: it is told so long before the deadline. Default: a sixth of the lease.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.timing.grace = Some(grace);
        self
    }

    /// How long to wait between winning and leading. Default: [`CoolDown::Proven`].
    pub fn cool_down(mut self, cool_down: CoolDown) -> Self {
        self.cool_down = cool_down;
        self
    }

    /// How to poll where the lock sends no hints. Default: [`Backoff::FIVE_SEC`].
    pub fn backoff(mut self, policy: impl BackoffPolicy) -> Self {
        self.backoff = Box::new(policy);
        self
    }

    /// How long to let a leader that vanished (not one that released its office) come back first. Default: not at all.
    pub fn hold_back(mut self, hold_back: Duration) -> Self {
        self.hold_back = hold_back;
        self
    }

    /// Among candidates that wake together the one with the higher number asks first. Default: 0, the lowest.
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Says that Choria's campaigners stand in the same election.
    ///
    /// Then the right to lead ends 0.75 of the bucket's TTL after a write, and a holder that is not known to be of
    /// this library is waited for as long as a Choria leader may take to notice its loss.
    pub fn with_choria_peers(mut self) -> Self {
        self.timing.choria_peers = true;
        self
    }

    /// Another clock than [`BootClock`]: for tests.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The work of a term: called when this campaigner comes into office, in a task of its own.
    ///
    /// The term lasts while the [`Leadership`] is held, so a callback that only takes note ends with
    /// `leadership.ended().await`. When the term is told to end the future has the grace to return, then it is
    /// dropped at its next await point. A panic ends the term like a failure of the work.
    pub fn on_won<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(Leadership) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.callbacks.won = Some(Arc::new(move |leadership| callback(leadership).boxed()));
        self
    }

    /// Called once at the end of each term, after its work has stopped and before the entry is released.
    ///
    /// The campaign stands again when the returned future is done. It is dropped if it is not done by the deadline of
    /// the lost term, or by the grace after the work stopped, whichever is later.
    pub fn on_lost<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(Loss) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.callbacks.lost = Some(Arc::new(move |loss| callback(loss).boxed()));
        self
    }

    /// Called at each write that campaigns, a create or a renewal, with the state at that moment. A call still running is
    /// not joined by a second one: that call is left out. A panic ends the term like a failure of the work.
    pub fn on_campaign<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(State) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.callbacks.campaign = Some(Arc::new(move |state| callback(state).boxed()));
        self
    }

    /// Checks everything, and spawns the campaign on the current tokio runtime. Does no I/O: the lock may be out of reach.
    ///
    /// # Errors
    /// [`StartError`], which says what is wrong. Nothing has been started then.
    pub fn start(self) -> Result<Election, StartError> {
        self.lock
            .check_name(&self.name)
            .map_err(|rule| StartError::Name { name: self.name.clone(), rule })?;
        let capabilities = self.lock.capabilities();
        let identity = match self.identity {
            Some(identity) => identity,
            None => gethostname::gethostname().to_string_lossy().into_owned(),
        };
        check_identity(&identity, capabilities.longest_identity)?;
        let timing = Timing::new(self.timing, capabilities.longest_lease)?;
        for (what, duration) in
            [("hold_back", Some(self.hold_back)), ("cool_down", custom(self.cool_down))]
        {
            if let Some(duration) = duration.filter(|d| *d > crate::protocol::GREATEST_LEASE) {
                return Err(StartError::TooLong { what, duration });
            }
        }
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| StartError::NoRuntime)?;
        let nonce = Nonce(getrandom::u64().map_err(|_| StartError::NoRandomness)?);
        let identity: Arc<str> = identity.into();
        let settings = Settings {
            cool_down: self.cool_down,
            backoff: self.backoff,
            hold_back: self.hold_back,
            priority: self.priority,
            choria_peers: self.timing.choria_peers,
            stands: self.stands,
            origin_unix_ms: unix_ms_at_origin(&*self.clock),
            ..Settings::new(Arc::clone(&identity), nonce, timing)
        };
        let (shared, inbox) = Shared::new(self.name.into(), identity, self.clock);
        let campaign = Campaign::new(settings, capabilities);
        driver::spawn(&runtime, Arc::clone(&shared), inbox, self.lock, campaign, self.callbacks);
        Ok(Election { handle: Arc::new(Handle { shared }) })
    }
}

impl fmt::Debug for ElectionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElectionBuilder")
            .field("name", &self.name)
            .field("lock", &self.lock)
            .field("identity", &self.identity)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}

fn custom(cool_down: CoolDown) -> Option<Duration> {
    match cool_down {
        CoolDown::For(duration) => Some(duration),
        _ => None,
    }
}

fn check_identity(identity: &str, longest: usize) -> Result<(), StartError> {
    let problem = if identity.is_empty() {
        "it is empty".to_owned()
    } else if identity.chars().any(char::is_control) {
        "it has a control character".to_owned()
    } else if identity.len() > longest {
        format!("it has {} bytes, and the lock takes {longest}", identity.len())
    } else {
        return Ok(());
    };
    let identity = identity.chars().take(80).collect();
    Err(StartError::Identity { identity, problem })
}

fn unix_ms_at_origin(clock: &dyn Clock) -> u64 {
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let origin = unix.saturating_sub(clock.now().since_origin());
    u64::try_from(origin.as_millis()).unwrap_or(u64::MAX)
}

/// Why an election cannot start.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The lock cannot hold an election of this name.
    #[error("{name:?} cannot be the name of an election: {rule}")]
    Name {
        /// As given.
        name: String,
        /// What a name must be.
        rule: String,
    },
    /// The lock cannot hold this identity.
    #[error("{identity:?} cannot be an identity: {problem}")]
    Identity {
        /// As given, cut short.
        identity: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Durations that do not go together.
    #[error(transparent)]
    Timing(#[from] TimingError),
    /// A duration that keeps an election without a leader for too long.
    #[error("a {what} of {duration:?} is longer than the greatest, 3600s")]
    TooLong {
        /// Which one.
        what: &'static str,
        /// As given.
        duration: Duration,
    },
    /// `start` was called outside of a tokio runtime.
    #[error("an election must be started within a tokio runtime")]
    NoRuntime,
    /// The operating system gave no random number.
    #[error("the operating system gave no random number to tell this campaigner from others")]
    NoRandomness,
}

/// A part in an election: a cheap handle on a campaign that runs by itself.
///
/// Clones share the campaign. When the last one is dropped, the campaign stops by itself as by
/// [`stop`](Self::stop), without anybody waiting for it.
#[derive(Clone)]
#[must_use = "dropping the last handle stops the campaign"]
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
    fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// The election's name.
    pub fn name(&self) -> &str {
        &self.shared().name
    }

    /// The identity that this campaigner shows.
    pub fn identity(&self) -> &str {
        &self.shared().identity
    }

    /// Whether this campaigner leads at this moment: a comparison of the clock with the deadline. No event has to arrive
    /// for it to become false. It is false, too, from the moment at which the work is told to stop.
    pub fn is_leader(&self) -> bool {
        self.shared().leads()
    }

    /// Where this campaigner stands, in Choria's words.
    pub fn state(&self) -> State {
        match self.shared().status.borrow().state {
            State::Leader if !self.is_leader() => State::Candidate,
            state => state,
        }
    }

    /// Who leads, as last seen; `None` while nobody does, or nothing is known.
    pub fn leader(&self) -> Option<Leader> {
        self.shared().status.borrow().leader.clone()
    }

    /// What keeps requests to the lock from succeeding, while something does.
    pub fn trouble(&self) -> Option<Failure> {
        self.shared().status.borrow().trouble.clone()
    }

    /// The token of the term in which this campaigner leads at this moment.
    pub fn token(&self) -> Option<Token> {
        let term = self.shared().status.borrow().term.as_ref().map(|term| term.token);
        term.filter(|_| self.is_leader())
    }

    /// Waits until this campaigner leads. Several callers share a term: it lasts until the last of them drops what it got.
    ///
    /// # Errors
    /// [`Stopped`], if the campaign ends first.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is won or lost by dropping the returned future.
    pub async fn won(&self) -> Result<Leadership, Stopped> {
        let mut status = self.shared().status.subscribe();
        loop {
            let term = {
                let status = status
                    .wait_for(|s| s.finished || s.term.is_some())
                    .await
                    .map_err(|_| Stopped)?;
                if status.finished {
                    return Err(Stopped);
                }
                status.term.clone()
            };
            if let Some(leadership) = term.and_then(|term| term.guard()) {
                return Ok(leadership);
            }
            status.changed().await.map_err(|_| Stopped)?;
        }
    }

    /// Every change from now on, oldest first. See [`Change`].
    pub fn changes(&self) -> Changes {
        Changes::of(self.shared())
    }

    /// Gives up the office, if this campaigner holds it, and stands again after letting others go first. Returns at once:
    /// the term ends with [`Cause::Resigned`] when its work has stopped.
    pub fn resign(&self) {
        self.shared().inbox.send(Input::Resign { term: None });
    }

    /// Ends the campaign: the work stops, the loss is told, the entry is released, then this returns.
    ///
    /// The campaign ends by itself once this has been called, even if the returned future is dropped. It takes at
    /// most the rest of the lease for the work to stop, and a few seconds to release the entry where the lock is
    /// slow. Calling it from a callback makes that callback wait for itself until it is stopped by force:
    /// [`Leadership::resign`] and dropping the election do not wait.
    pub async fn stop(&self) {
        self.shared().inbox.send(Input::Stop);
        let mut status = self.shared().status.subscribe();
        let _ = status.wait_for(|s| s.finished).await; // an error means that the campaign is gone
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("name", &self.name())
            .field("identity", &self.identity())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// A view of an election by somebody who does not stand in it. Dropping it ends the watch.
#[derive(Debug, Clone)]
#[must_use = "dropping the last handle ends the watch"]
pub struct Observer {
    election: Election,
}

impl Observer {
    /// Who leads, as last seen; `None` while nobody does, or nothing is known.
    pub fn leader(&self) -> Option<Leader> {
        self.election.leader()
    }

    /// Whether anything has been heard from the lock yet: then [`State::Candidate`].
    pub fn state(&self) -> State {
        self.election.state()
    }

    /// What keeps requests to the lock from succeeding, while something does.
    pub fn trouble(&self) -> Option<Failure> {
        self.election.trouble()
    }

    /// Every change from now on, oldest first.
    pub fn changes(&self) -> Changes {
        self.election.changes()
    }

    /// Ends the watch.
    pub async fn stop(&self) {
        self.election.stop().await;
    }
}

/// The campaign has been stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the campaign has been stopped")]
pub struct Stopped;

/// What [`Election::changes`] tells.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// This campaigner leads.
    Won {
        /// The term's fencing token.
        token: Token,
    },
    /// This campaigner's term is over, and its work has stopped.
    Lost {
        /// The token of the term that ended.
        token: Token,
        /// Why it ended.
        cause: Cause,
    },
    /// Somebody, perhaps this campaigner, holds the election, or nobody does.
    Leader(Option<Leader>),
    /// Requests to the lock fail, for a new reason.
    Trouble(Failure),
    /// They succeed again.
    Recovered,
    /// The reader was too slow, and so many changes were dropped.
    Missed(u64),
}

/// A stream of [`Change`]s; it ends when the campaign does.
pub struct Changes(BoxStream<'static, Change>);

impl Changes {
    fn of(shared: &Shared) -> Self {
        let Some(receiver) = shared.subscribe() else { return Self(stream::empty().boxed()) };
        Self(
            stream::unfold(receiver, |mut receiver| async {
                let change = match receiver.recv().await {
                    Ok(change) => change,
                    Err(RecvError::Lagged(missed)) => Change::Missed(missed),
                    Err(RecvError::Closed) => return None,
                };
                Some((change, receiver))
            })
            .boxed(),
        )
    }

    /// The next change; `None` when the campaign has ended. Cancel safe.
    pub async fn next(&mut self) -> Option<Change> {
        self.0.next().await
    }
}

impl Stream for Changes {
    type Item = Change;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Change>> {
        self.0.poll_next_unpin(cx)
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Changes")
    }
}

/// A callback.
pub(crate) type Callback<T> = Arc<dyn Fn(T) -> BoxFuture<'static, ()> + Send + Sync>;
