//! One process with a production machine in it, its clock and its link.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::lock::{Capabilities, Coverage, Nonce, Revision};
use incumbent::protocol::{
    Backoff, CoolDown, Drain, Elector, MoveSettings, RegisteredTerm, Settings, Timing,
    TimingOptions,
};

use crate::moves::{MoveSetup, Mover, origin_unix_ms};
use crate::objects::{Exchange, Room};
use crate::polling::Polling;
use crate::process_faults::ProcessFaults;
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
        lease: Some(Duration::from_millis(u64::from(setup.lease_ms)).min(bucket_ttl)),
        with_choria: choria,
        ..TimingOptions::default()
    };
    Timing::new(options, bucket_ttl).expect("scenarios have valid timings")
}

/// A clock with its own rate and origin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drifting {
    pub origin: Duration,
    pub ppm: i64,
    /// For how long it has been paused.
    pub lost: Duration,
}

impl Drifting {
    pub fn local(self, now: Time) -> Instant {
        let nanos = now.saturating_sub(self.lost).as_nanos() as i128;
        let local = nanos + nanos * i128::from(self.ppm) / 1_000_000;
        Instant::from_origin(self.origin + Duration::from_nanos(local as u64))
    }

    /// The first instant of the world's time at which this clock shows `local`, or a little later.
    pub fn real(self, local: Instant) -> Time {
        let nanos = local.since_origin().saturating_sub(self.origin).as_nanos() as i128;
        let real = nanos * 1_000_000 / (1_000_000 + i128::from(self.ppm));
        Duration::from_nanos(real as u64 + 2) + self.lost
    }
}

#[derive(Debug)]
pub struct Candidate {
    pub setup: CandidateSetup,
    pub timing: Timing,
    /// The bucket's TTL, as its lock knows it.
    pub known_ttl: Duration,
    /// `None` while the process is down.
    pub machine: Option<Elector>,
    pub drain: Drain,
    pub mover: Option<Box<Mover>>,
    pub faults: ProcessFaults,
    nonce: Nonce,
    /// Which process this is, counted from 1.
    pub life: u32,
    clock: Drifting,
    /// Until when it is paused together with its clock.
    frozen_until: Time,
    pub stopping_since: Option<Time>,
    /// It crashes when it has sent its next write, and a new process starts so much later.
    pub crashes_at_write: Option<u16>,
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
    /// The same, of each answer that is under way, and of each create that rests on one: by life
    /// and request.
    pub found_empty_on: HashMap<(u32, u64), u64>,
    pub rests_on: HashMap<(u32, u64), u64>,
}

impl Candidate {
    pub fn new(
        setup: CandidateSetup,
        origin: Duration,
        bucket_ttl: Duration,
        choria: bool,
    ) -> Self {
        let timing = timing(&setup, bucket_ttl, choria);
        let clock = Drifting { origin, ppm: i64::from(setup.ppm), lost: Duration::ZERO };
        let drain = Drain::new(Duration::from_millis(u64::from(setup.drain_ms)));
        Self {
            setup,
            timing,
            known_ttl: bucket_ttl,
            machine: None,
            drain,
            mover: None,
            faults: ProcessFaults::default(),
            nonce: Nonce(0),
            life: 0,
            clock,
            frozen_until: Time::ZERO,
            stopping_since: None,
            crashes_at_write: None,
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

    /// A new process.
    pub fn start(&mut self, now: Time, who: usize, seed: u64, choria: bool, lock: Capabilities) {
        self.life += 1;
        let nonce = Nonce(seed ^ ((who as u64 + 1) << 40) ^ (u64::from(self.life) << 8));
        self.known_ttl = lock.max_lease;
        self.timing = timing(&self.setup, lock.max_lease, choria);
        let mut settings = Settings::new(self.name(who), nonce, self.timing);
        settings.cool_down = self.setup.cool_down;
        settings.backoff = self.setup.polling.policy();
        settings.takeover_delay = Duration::from_millis(u64::from(self.setup.hold_back_ms));
        settings.priority = self.setup.priority;
        settings.with_choria = choria;
        settings.origin_unix_ms = self.origin_unix_ms();
        self.nonce = nonce;
        self.mover = self.setup.moves.as_ref().map(|setup| {
            let settings = MoveSettings {
                in_set: false,
                nonce,
                priority: settings.priority,
                lease: self.timing.lease(),
                prefer_after: setup.prefer_after_ms.map(|ms| Duration::from_millis(ms.into())),
            };
            Box::new(Mover::new(setup, settings, self.local(now)))
        });
        if let Some(mover) = &self.mover {
            settings.standing = mover.moves.standing();
        }
        self.machine = Some(Elector::new(settings, lock));
        self.receives_all_from = None;
        self.request = None;
        self.exchange = None;
        self.stopping_since = None;
        self.sent.clear();
        self.newest = None;
        self.empty_on = None;
        self.entitled_from = None;
    }

    /// What people read.
    pub fn name(&self, who: usize) -> String {
        if self.setup.twin { "twin".to_owned() } else { format!("c{who}") }
    }

    /// Of the last process.
    pub fn nonce(&self) -> Nonce {
        self.nonce
    }

    pub fn crash(&mut self) {
        self.machine = None;
        self.mover = None;
        let _ = self.drain.end();
        self.registered = None;
        self.crashes_at_write = None;
        self.receives_all_from = None;
        self.request = None;
        self.exchange = None;
        self.stopping_since = None;
    }

    /// What its wall clock shows.
    pub fn unix_ms(&self, now: Time) -> u64 {
        self.origin_unix_ms() + self.local(now).since_origin().as_millis() as u64
    }

    fn origin_unix_ms(&self) -> u64 {
        origin_unix_ms(self.clock.origin, self.setup.wall_ms)
    }

    pub fn local(&self, now: Time) -> Instant {
        self.clock.local(now)
    }

    pub fn real(&self, local: Instant) -> Time {
        self.clock.real(local)
    }

    /// It is paused together with its clock, which is behind from then on.
    pub fn freeze(&mut self, now: Time, span: Duration) {
        self.faults.paused_until = now + span;
        self.frozen_until = now + span;
        self.clock.lost += span;
    }

    /// All faults cease. Returns the rest of the time for which its clock is stopped.
    pub fn recover(&mut self, now: Time) -> Duration {
        self.faults.cease(now);
        let left = self.frozen_until.saturating_sub(now);
        self.clock.lost -= left;
        self.frozen_until = self.frozen_until.min(now);
        left
    }

    /// Whether a few hints are not enough for it now.
    pub fn wants_all_hints(&self, now: Time) -> bool {
        let local = self.local(now);
        self.machine.as_ref().is_some_and(|machine| machine.wants_all_hints(local))
    }

    /// Notes that its write `number` was applied.
    pub fn applied(&mut self, number: u64) {
        self.entitled_from = self.entitled_from.max(self.sent.get(&number).copied());
    }
}
