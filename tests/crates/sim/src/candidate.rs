//! A candidate: a production machine, in a process, for one election.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::lock::{Capabilities, Coverage, Nonce, Revision};
use incumbent::protocol::{
    Backoff, BackoffPolicy, CoolDown, Drain, Elector, Moves, Rank, RegisteredTerm, Settings,
    Timing, TimingOptions,
};

use crate::checkpoints::TimedKeeper;
use crate::moves::{MoveSetup, Mover};
use crate::objects::{Exchange, Room};
use crate::process::{Process, millis};
use crate::server::Time;

/// How one candidate is set up.
#[derive(Debug, Clone)]
pub struct CandidateSetup {
    pub lease_ms: u16,
    pub coverage: Coverage,
    pub reads: bool,
    pub cool_down: CoolDown,
    pub hold_back_ms: u16,
    pub priority: u8,
    /// How fast its clock runs, in parts per million.
    pub ppm: i16,
    /// Shows the same identity as the others.
    pub twin: bool,
    /// How often its work ends by itself or will not stop, of 255.
    pub unruly: u8,
    /// By how much its wall clock is ahead, in milliseconds: only objects and pauses show it.
    pub wall_ms: i16,
    /// On objects: shares its lock with the others for which this is set, as elections of one
    /// process do.
    pub shares: bool,
    /// How long its work may drain before it stops or resigns.
    pub drain_ms: u16,
    /// How it moves, where candidates do.
    pub moves: Option<MoveSetup>,
    /// How it polls while it receives no hints.
    pub polling: Polling,
}

impl CandidateSetup {
    /// As the bucket suggests, with the defaults, and a clock that runs exactly.
    pub fn new(coverage: Coverage) -> Self {
        Self {
            lease_ms: u16::MAX,
            coverage,
            reads: true,
            cool_down: CoolDown::Proven,
            hold_back_ms: 0,
            priority: 0,
            ppm: 0,
            twin: false,
            unruly: 0,
            wall_ms: 0,
            shares: false,
            drain_ms: 0,
            moves: None,
            polling: Polling::Choria(Backoff::FIVE_SEC),
        }
    }
}

fn timing(setup: &CandidateSetup, bucket_ttl: Duration, choria: bool) -> Timing {
    let options = TimingOptions {
        lease: Some(millis(setup.lease_ms).min(bucket_ttl)),
        with_choria: choria,
        ..TimingOptions::default()
    };
    Timing::new(options, bucket_ttl).expect("scenarios have valid timings")
}

#[derive(Debug)]
pub struct Candidate {
    /// Whose it is, and of which election.
    pub process: usize,
    pub key: usize,
    pub setup: CandidateSetup,
    pub timing: Timing,
    /// The bucket's TTL, as its lock knows it.
    pub known_ttl: Duration,
    /// `None` while the process is down.
    pub machine: Option<Elector>,
    pub drain: Drain,
    pub mover: Option<Box<Mover>>,
    /// The checkpoint, of the last term.
    pub(super) keeper: Option<Box<TimedKeeper>>,
    /// Whether it could not claim the checkpoint, since it last did.
    pub(super) stands_back: bool,
    nonce: Nonce,
    /// It has ended, though others of its process may not have.
    pub finished: bool,
    /// What it has last registered with its sentinel.
    pub registered: Option<RegisteredTerm>,
    /// From when it receives all hints, though its hints are sampled: a subscription takes time.
    pub receives_all_from: Option<Time>,
    /// The request whose answer is awaited.
    pub request: Option<u64>,
    pub wake: u64,
    /// When each write of this process was sent.
    pub sent: HashMap<u64, Instant>,
    /// When the latest write that was applied had been sent.
    pub entitled_from: Option<Instant>,
    /// Its lock, on objects.
    pub(crate) room: Arc<Room>,
    pub(crate) exchange: Option<Exchange>,
    /// The newest revision that its lock knew of when it sent its create.
    pub knew: Option<Revision>,
    /// When that create was sent.
    pub asked: Time,
    /// The newest revision that it knows of.
    pub newest: Option<Revision>,
    /// On which history of the server it last found nothing.
    pub empty_on: Option<u64>,
    /// The history of each answer under way that found nothing, and of each create that rests on
    /// one: by life and request.
    pub found_empty_on: HashMap<(u32, u64), u64>,
    pub rests_on: HashMap<(u32, u64), u64>,
}

impl Candidate {
    pub fn new(
        (process, key): (usize, usize),
        setup: CandidateSetup,
        bucket_ttl: Duration,
        choria: bool,
    ) -> Self {
        let timing = timing(&setup, bucket_ttl, choria);
        let drain = Drain::new(millis(setup.drain_ms));
        Self {
            process,
            key,
            setup,
            timing,
            known_ttl: bucket_ttl,
            machine: None,
            drain,
            mover: None,
            keeper: None,
            stands_back: false,
            nonce: Nonce(0),
            finished: false,
            registered: None,
            receives_all_from: None,
            request: None,
            wake: 0,
            sent: HashMap::new(),
            entitled_from: None,
            room: Arc::default(),
            exchange: None,
            knew: None,
            asked: Time::ZERO,
            newest: None,
            empty_on: None,
            found_empty_on: HashMap::new(),
            rests_on: HashMap::new(),
        }
    }

    /// It begins in `process`, a new one.
    pub fn start(
        &mut self,
        now: Instant,
        identity: Arc<str>,
        process: &Process,
        seed: u64,
        choria: bool,
        lock: Capabilities,
    ) {
        let in_set = process.member.is_some();
        let of_process = ((self.process as u64 + 1) << 40) ^ (u64::from(process.life) << 8);
        self.nonce = Nonce(seed ^ of_process ^ ((self.key as u64) << 24));
        self.known_ttl = lock.max_lease;
        self.timing = timing(&self.setup, lock.max_lease, choria);
        let mut settings = Settings::new(identity, self.nonce, self.timing);
        settings.cool_down = self.setup.cool_down;
        settings.backoff = self.setup.polling.policy();
        settings.takeover_delay = millis(self.setup.hold_back_ms);
        settings.priority = self.setup.priority;
        settings.with_choria = choria;
        settings.origin_unix_ms = process.origin_unix_ms();
        if in_set {
            settings.rank = Rank::Never;
        }
        self.mover = self.setup.moves.as_ref().map(|setup| {
            settings.readiness = process.readiness();
            let prefer_after = setup.prefer_after_ms.map(millis);
            let moves = Moves::new(&settings, prefer_after, in_set, now);
            Box::new(Mover { moves, began: None, calls: Vec::new() })
        });
        self.machine = Some(Elector::new(settings, lock));
        (self.keeper, self.stands_back) = (None, false);
        self.finished = false;
        self.receives_all_from = None;
        self.request = None;
        self.exchange = None;
        self.sent.clear();
        self.newest = None;
        self.empty_on = None;
        self.entitled_from = None;
    }

    /// Of the last process.
    pub fn nonce(&self) -> Nonce {
        // Another one since it has found a twin.
        self.machine.as_ref().map_or(self.nonce, |machine| machine.settings().nonce)
    }

    /// Its process is gone.
    pub fn crash(&mut self) {
        self.machine = None;
        self.mover = None;
        self.keeper = None;
        let _ = self.drain.end();
        self.registered = None;
        self.receives_all_from = None;
        self.request = None;
        self.exchange = None;
    }

    /// Whether a few hints are not enough for it now.
    pub fn wants_all_hints(&self, now: Instant) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.wants_all_hints(now))
    }

    /// Notes that its write `number` was applied.
    pub fn applied(&mut self, number: u64) {
        self.entitled_from = self.entitled_from.max(self.sent.get(&number).copied());
    }
}

/// The policy of a candidate.
#[derive(Debug, Clone, Copy)]
pub enum Polling {
    Choria(Backoff),
    /// As an `ExponentialBackoff` of the `backoff` crate, with its defaults.
    Exponential,
}

impl Polling {
    pub fn policy(self) -> Arc<dyn BackoffPolicy> {
        match self {
            Self::Choria(backoff) => Arc::new(backoff),
            Self::Exponential => Arc::new(exponential()),
        }
    }
}

const INITIAL: Duration = Duration::from_millis(500);
const MULTIPLIER: f64 = 1.5;
const MAX: Duration = Duration::from_secs(60);
/// Then that crate's policy ends, and the library begins it anew.
const MAX_ELAPSED: Duration = Duration::from_secs(900);

/// That crate's policy draws from a generator of its own, and reads the machine's clock.
fn exponential() -> impl Fn(u32, f64) -> Duration + Send + Sync {
    let state = Mutex::new((INITIAL, Duration::ZERO));
    move |attempt, random| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut mean, mut elapsed) = *state;
        if attempt == 0 || elapsed + mean.mul_f64(0.5 + random) > MAX_ELAPSED {
            (mean, elapsed) = (INITIAL, Duration::ZERO);
        }
        let delay = mean.mul_f64(0.5 + random);
        *state = (mean.mul_f64(MULTIPLIER).min(MAX), elapsed + delay);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_policy_grows_to_a_minute_and_begins_anew() {
        let policy = exponential();
        let delays: Vec<_> = (0..40).map(|attempt| policy(attempt, 0.5)).collect();
        assert_eq!(delays[..3], [500, 750, 1125].map(Duration::from_millis));
        let anew = delays.iter().rposition(|delay| *delay == INITIAL).expect("it begins anew");
        assert_eq!(delays[anew - 1], MAX);
        let elapsed: Duration = delays[..anew].iter().sum();
        assert!(elapsed <= MAX_ELAPSED && elapsed + MAX > MAX_ELAPSED, "{elapsed:?}");
    }
}
