//! A process: its clock, its link, and what goes wrong with both. It takes part in one election, or
//! in each of the elections of a set.

use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::lock::Readiness;
use incumbent::protocol::Health;

use crate::faults::ProcessFaults;
use crate::moves::MoveSetup;
use crate::quorum::Host;
use crate::server::Time;
use crate::sets::Member;

/// What wall clocks show when the world begins.
pub const EPOCH_MS: u64 = 1_700_000_000_000;
/// Results of a check that change the health.
const FAILURES: u32 = 2;

pub(super) fn millis(ms: u16) -> Duration {
    Duration::from_millis(u64::from(ms))
}

/// A clock with its own rate and origin.
#[derive(Debug, Clone, Copy)]
pub struct Drifting {
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
pub struct Process {
    pub clock: Drifting,
    /// By how much its wall clock is ahead, in milliseconds: only objects and pauses show it.
    pub wall_ms: i16,
    /// Which process this is, counted from 1.
    pub life: u32,
    pub faults: ProcessFaults,
    /// Until when it is paused together with its clock.
    frozen_until: Time,
    pub stopping_since: Option<Time>,
    /// It crashes when it has sent its next write, and a new process starts so much later.
    pub crashes_at_write: Option<u16>,
    pub health: Option<Health>,
    pub aside: bool,
    /// Of a set, unless the process is down.
    pub member: Option<Box<Member>>,
    /// Its voter, on a quorum, unless the process is down.
    pub(super) voter: Option<Box<Host>>,
}

impl Process {
    pub fn new(origin: Duration, ppm: i16, wall_ms: i16) -> Self {
        Self {
            clock: Drifting { origin, ppm: i64::from(ppm), lost: Duration::ZERO },
            wall_ms,
            life: 0,
            faults: ProcessFaults::default(),
            frozen_until: Time::ZERO,
            stopping_since: None,
            crashes_at_write: None,
            health: None,
            aside: false,
            member: None,
            voter: None,
        }
    }

    /// A new process.
    pub fn start(&mut self, setup: Option<&MoveSetup>) {
        self.life += 1;
        self.stopping_since = None;
        let checks = setup.and_then(|setup| setup.check_ms);
        self.health = checks.and(FAILURES.try_into().ok()).map(Health::new);
        self.aside = setup.is_some_and(|setup| setup.aside);
    }

    pub fn ends(&mut self) {
        self.stopping_since = None;
        self.crashes_at_write = None;
        self.member = None;
        self.voter = None;
    }

    /// By its check, and by what its program wants.
    pub fn readiness(&self) -> Readiness {
        match &self.health {
            Some(health) if !health.is_healthy() => Readiness::Unhealthy,
            _ if self.aside => Readiness::Cordoned,
            _ => Readiness::Ready,
        }
    }

    /// Milliseconds since the Unix epoch at the origin of its clock, by its wall clock.
    pub fn origin_unix_ms(&self) -> u64 {
        EPOCH_MS.saturating_add_signed(i64::from(self.wall_ms))
            - self.clock.origin.as_millis() as u64
    }

    /// What its wall clock shows.
    pub fn unix_ms(&self, now: Time) -> u64 {
        self.origin_unix_ms() + self.clock.local(now).since_origin().as_millis() as u64
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
        self.crashes_at_write = None;
        let left = self.frozen_until.saturating_sub(now);
        self.clock.lost -= left;
        self.frozen_until = self.frozen_until.min(now);
        left
    }
}
