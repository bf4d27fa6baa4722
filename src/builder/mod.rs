//! Describing an election, and starting it.

mod callbacks;
mod checks;
mod error;
mod moves;

use std::sync::Arc;
use std::time::Duration;

pub use error::StartError;

use self::checks::{
    check_checkpoint, check_identity, check_site, custom, members, timing_on, unix_ms_at_origin,
};
pub(crate) use self::checks::{check_span, default_identity};
use crate::driver::callbacks::Callbacks;
use crate::driver::machine::StateMachine;
use crate::driver::move_state::MoveOptions;
#[cfg(feature = "_history")]
use crate::driver::record::{HistoryWriter, Sink};
#[cfg(all(feature = "sentinel", unix))]
use crate::driver::sentinel::Sentinel;
use crate::driver::{self, CandidateParts};
use crate::election::change::Change;
use crate::election::handle::{Election, changes_of};
use crate::election::observer::Observer;
use crate::election::shared::Shared;
use crate::lock::{Advertisement, Lock, Need, Nonce};
use crate::protocol::{
    Backoff, BackoffPolicy, CoolDown, Drain, MAX_LEASE, MemberSettings, Settings, TimingOptions,
};
use crate::time::clock::{BootClock, Clock};
use crate::util::changes::Changes;

/// The longest drain, and the longest wait before a candidate asks to be preferred.
const MAX_DRAIN: Duration = Duration::from_secs(24 * 3600);

/// Begins to describe a part in the election `name` on `lock`.
///
/// Nothing happens before [`start`](ElectionBuilder::start): see [`ElectionBuilder`] for an
/// example. For an election on several locks see [`all_of`](crate::all_of).
pub fn new_election(name: impl Into<String>, lock: impl Lock) -> ElectionBuilder {
    ElectionBuilder {
        name: name.into(),
        lock: Arc::new(lock),
        identity: None,
        advertisement: None,
        timing: TimingOptions::default(),
        cool_down: CoolDown::default(),
        backoff: Arc::new(Backoff::FIVE_SEC),
        takeover_delay: Duration::ZERO,
        priority: 0,
        site: None,
        drain: Duration::ZERO,
        moves: MoveOptions::default(),
        clock: Arc::new(BootClock),
        callbacks: Callbacks::default(),
        eligible: true,
        checkpoint: false,
        #[cfg(all(feature = "sentinel", unix))]
        sentinel: Sentinel::from_env(),
        #[cfg(feature = "_history")]
        history: None,
    }
}

/// Watches the election `name` on `lock` without standing in it. It writes nothing.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use incumbent::memory::MemoryLock;
/// # let lock = MemoryLock::new();
/// # let _candidate = incumbent::new_election("my_app", lock.clone()).identity("c1").start()?;
/// let observer = incumbent::observe("my_app", lock)?;
/// let mut watch = observer.watch();
/// while let Some(status) = watch.next().await {
///     if let Some(leader) = status.leader {
///         println!("{} leads", leader.identity);
///         break;
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`ElectionBuilder::start`].
pub fn observe(name: impl Into<String>, lock: impl Lock) -> Result<Observer, StartError> {
    let builder = ElectionBuilder { eligible: false, ..new_election(name, lock) };
    Ok(Observer::new(builder.start()?))
}

/// Configuration of a candidate. Every duration counts on the candidate's own clock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use incumbent::{memory::MemoryLock, new_election};
///
/// let lock = MemoryLock::with_ttl(Duration::from_secs(15));
/// let election = new_election("my_app", lock)
///     .identity("c1.example.net")
///     .on_won(|leadership| async move {
///         println!("leads with token {}", leadership.token());
///         leadership.ended().await; // the work of a leader, until the term ends
///     })
///     .on_lost(|loss| async move { println!("{loss}") })
///     .start()?;
/// election.stop().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "an election begins with start()"]
pub struct ElectionBuilder {
    name: String,
    lock: Arc<dyn Lock>,
    identity: Option<String>,
    advertisement: Option<Advertisement>,
    timing: TimingOptions,
    cool_down: CoolDown,
    backoff: Arc<dyn BackoffPolicy>,
    takeover_delay: Duration,
    priority: u8,
    site: Option<Arc<str>>,
    drain: Duration,
    moves: MoveOptions,
    clock: Arc<dyn Clock>,
    callbacks: Callbacks,
    eligible: bool,
    checkpoint: bool,
    #[cfg(all(feature = "sentinel", unix))]
    sentinel: Sentinel,
    #[cfg(feature = "_history")]
    history: Option<Sink>,
}

impl ElectionBuilder {
    /// What people read as the holder's name. Default: the host's name.
    ///
    /// It need not be unique: candidates are distinguished by a number drawn at each start.
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = Some(identity.into());
        self
    }

    /// Where this candidate can be reached while it leads, and further pairs of a key and a value.
    /// The other candidates and [observers](observe) read it in [`Leader`](crate::Leader).
    /// Default: nothing.
    ///
    /// An address alone will do: `advertise("10.0.0.3:50051")`. It is written with every entry, so
    /// it is no place for a secret. [`Election::advertise`] changes it later.
    pub fn advertise(mut self, advertisement: impl Into<Advertisement>) -> Self {
        self.advertisement = Some(advertisement.into());
        self
    }

    /// How long one write to the lock entitles its writer to lead, counted from before it was sent:
    /// 200 ms to 1 h, within what the lock allows. Default: the longest that the lock allows (for a
    /// bucket, its TTL).
    ///
    /// Leases below a second are for a fast network, on NATS, databases, a quorum or memory: see
    /// [`Capabilities::min_lease`](crate::lock::Capabilities::min_lease).
    ///
    /// It is how long a crashed leader may stay unreplaced, and how long a leader survives a lock
    /// out of reach.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.timing.lease = Some(lease);
        self
    }

    /// How long after a write the leader renews. Default: a third of the lease. The first renewal
    /// comes sooner, at random, so that elections which are won together are not renewed together.
    pub fn renewal(mut self, renewal: Duration) -> Self {
        self.timing.renewal = Some(renewal);
        self
    }

    /// How long guarded work may take to stop: the term ends this long before the deadline.
    /// Default: a sixth of the lease.
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
        self.backoff = Arc::new(policy);
        self
    }

    /// How long to let a leader that vanished (not one that released its entry) come back first.
    /// Default: not at all.
    pub fn takeover_delay(mut self, takeover_delay: Duration) -> Self {
        self.takeover_delay = takeover_delay;
        self
    }

    /// Among candidates that wake together the one with the higher number asks first. Default: 0,
    /// the lowest.
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// How long work may take to come to its end when this candidate stops or resigns, at most a
    /// day. Default: no time; the work is stopped within the grace.
    ///
    /// Meanwhile this candidate renews, and leads with its full right. The work learns of it by
    /// [`Leadership::draining`](crate::Leadership::draining) or
    /// [`on_drain`](Self::on_drain). The entry is released when the last
    /// [`Leadership`](crate::Leadership) is dropped, or when the time is over and the work has been
    /// stopped. A term without one has nothing to wait for. A loss of the entry ends a drain.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// Keeps a [checkpoint](crate::Checkpoint): up to 4 KiB that one term leaves to the next, in
    /// the lock itself. [`Leadership::checkpoint`](crate::Leadership::checkpoint) reads and saves
    /// it. Default: none, and no request is made for one.
    ///
    /// A term then begins when it has claimed the checkpoint: two requests more, before the first
    /// [`Leadership`](crate::Leadership) is handed out. A candidate that cannot claim it within
    /// the lease gives the entry back, and stands behind the others until it has claimed one. Every
    /// candidate of the election must ask for it, or terms without one come in between.
    ///
    /// On one lock: NATS (nats-server 2.11 or later), a database, object storage, Kubernetes or
    /// memory.
    pub fn checkpoint(mut self) -> Self {
        self.checkpoint = true;
        self
    }

    /// States that candidates of Choria take part in the same election. Every candidate of this
    /// library must say so there.
    ///
    /// Then the right to lead ends 0.75 of the bucket's TTL after a write, and a holder that is not
    /// known to be of this library is waited for as long as a Choria leader may take to notice
    /// its loss.
    ///
    /// For a bucket, `?with-choria` in its [URL](crate::lock_url) and by
    /// [`BucketConfig::with_choria`](crate::nats::BucketConfig::with_choria).
    pub fn with_choria(mut self) -> Self {
        self.timing.with_choria = true;
        self
    }

    /// Another clock than [`BootClock`]: for tests.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    pub(crate) fn shared_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The lease on the first lock.
    pub(crate) fn lease_of_lock(&self) -> Result<Duration, StartError> {
        let locks = members(&self.lock);
        let (lock, _) = locks.first().ok_or(StartError::NothingRequired)?;
        Ok(timing_on(lock, self.timing)?.lease())
    }

    /// Registers each term with this sentinel, which releases the entry if this process dies.
    /// Default: the sentinel that wraps this program, by the variable `INCUMBENT_SENTINEL`;
    /// none without it.
    ///
    /// Setting one declares that the work of a leader dies with its process: see
    /// [`sentinel`](crate::sentinel).
    #[cfg(all(feature = "sentinel", unix))]
    pub fn sentinel(mut self, sentinel: Sentinel) -> Self {
        self.sentinel = sentinel;
        self
    }

    /// Sends each line of this candidate's history to `sink`, without its line break, before any
    /// action of the line is performed.
    ///
    /// `sink` runs in the task of the candidate, and delays it. Nothing else is kept.
    #[cfg(feature = "_history")]
    #[doc(hidden)]
    pub fn record_history(mut self, sink: impl FnMut(&str) + Send + 'static) -> Self {
        self.history = Some(Box::new(sink));
        self
    }

    /// Checks the configuration, and spawns the candidate on the current tokio runtime. Does no
    /// I/O: the lock may be unreachable.
    ///
    /// # Errors
    /// [`StartError`]. Nothing has been started then.
    pub fn start(self) -> Result<Election, StartError> {
        self.start_after(|_| ()).map(|(election, ())| election)
    }

    /// Starts as [`start`](Self::start) does, and returns every change from the first on:
    /// [`Election::changes`], called later, may have missed some.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with_changes(self) -> Result<(Election, Changes<Change>), StartError> {
        self.start_after(changes_of)
    }

    /// `before`: done before anything can change.
    fn start_after<T>(
        self,
        before: impl FnOnce(&Shared) -> T,
    ) -> Result<(Election, T), StartError> {
        self.lock
            .check_name(&self.name)
            .map_err(|rule| StartError::Name { name: self.name.clone(), rule })?;
        if self.checkpoint {
            check_checkpoint(&self.name, &self.lock)?;
        }
        let capabilities = self.lock.capabilities();
        let locks = members(&self.lock);
        for (lock, _) in &locks {
            timing_on(lock, self.timing)?;
        }
        let identity = self.identity.unwrap_or_else(|| default_identity(&self.lock));
        check_identity(&identity, capabilities.max_identity_len)?;
        if let Some(advertisement) = &self.advertisement {
            advertisement.check()?;
        }
        let advertisement = self.advertisement.map(Arc::new);
        check_span("takeover_delay", self.takeover_delay, MAX_LEASE)?;
        check_span("drain", self.drain, MAX_DRAIN)?;
        check_span("prefer_after", self.moves.prefer_after.unwrap_or_default(), MAX_DRAIN)?;
        if let Some(site) = &self.site {
            check_site(site)?;
        }
        let cool_down = custom(self.cool_down).unwrap_or_default();
        check_span("cool_down", cool_down, MAX_LEASE)?;
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| StartError::NoRuntime)?;
        let identity: Arc<str> = identity.into();
        let origin_unix_ms = unix_ms_at_origin(&*self.clock);
        let part = |(lock, need): &(Arc<dyn Lock>, Need)| {
            // Drawn for each lock: the same one given twice must not take itself for its own
            // earlier write.
            let nonce = Nonce(getrandom::u64().map_err(|_| StartError::NoRandomness)?);
            let capabilities = lock.capabilities();
            let timing = timing_on(lock, self.timing)?;
            let settings = Settings {
                advertisement: advertisement.clone(),
                cool_down: self.cool_down,
                backoff: Arc::clone(&self.backoff),
                takeover_delay: self.takeover_delay,
                priority: self.priority,
                site: self.site.clone(),
                with_choria: self.timing.with_choria || lock.timing().with_choria,
                eligible: self.eligible,
                readiness: self.moves.readiness(),
                rank: self.moves.rank,
                origin_unix_ms,
                ..Settings::new(Arc::clone(&identity), nonce, timing)
            };
            Ok::<_, StartError>(MemberSettings { settings, capabilities, need: *need })
        };
        let parts = locks.iter().map(part).collect::<Result<Vec<_>, _>>()?;
        #[cfg(feature = "_history")]
        let (parts, history) = HistoryWriter::begin(&self.name, parts, self.history);
        let machine =
            StateMachine::new(parts, Drain::new(self.drain)).ok_or(StartError::NothingRequired)?;
        #[cfg(feature = "_history")]
        let machine = machine.recorded(history);
        let nonce = machine.settings().nonce;
        let locks = locks.into_iter().map(|(lock, _)| lock).collect();
        let shared = Shared::new(self.name.into(), (identity, nonce), self.clock, self.lock);
        let done = before(&shared);
        driver::spawn(
            &runtime,
            Arc::clone(&shared),
            CandidateParts {
                locks,
                machine,
                callbacks: self.callbacks,
                options: self.moves,
                checkpoint: self.checkpoint,
                #[cfg(all(feature = "sentinel", unix))]
                sentinel: self.sentinel,
            },
        );
        Ok((Election::new(shared), done))
    }
}

partial_debug!(
    ElectionBuilder, self, name: self.name, lock: self.lock, identity: self.identity,
    timing: self.timing
);
