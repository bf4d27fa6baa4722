//! One process that is a member of a set: a production machine for each shard, and one for the
//! member.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::lock::{Capabilities, Nonce, Standing};
use incumbent::protocol::set::{Holder, SetMember, SetSettings, Share};
use incumbent::protocol::{
    Drain, Elector, Health, MoveRole, MoveSettings, Moves, Rank, Settings, State, Timing,
};

use super::calls::Open;
use super::{MemberSetup, SetSetup};
use crate::candidate::Drifting;
use crate::moves::origin_unix_ms;
use crate::process_faults::{ProcessFaults, millis};
use crate::server::Time;

/// Results of a check that change the health.
const FAILURES: u32 = 2;

#[derive(Debug)]
pub struct Member {
    pub setup: MemberSetup,
    pub clock: Drifting,
    pub timing: Timing,
    pub life: u32,
    /// Unless it is down.
    pub up: Option<Box<Process>>,
    pub faults: ProcessFaults,
}

#[derive(Debug)]
pub struct Process {
    pub identity: Arc<str>,
    pub set: SetMember,
    pub set_wake: u64,
    /// Something has changed that the member is to take in.
    pub poked: bool,
    pub share: Share,
    /// The shards on which it works, within the most that it may lead.
    pub admitted: BTreeSet<u32>,
    pub health: Option<Health>,
    pub aside: bool,
    pub standing: Standing,
    pub stopping: bool,
    pub seats: Vec<Seat>,
    /// The shards that are on their way to it: from whom, and until when at the latest.
    pub asked: BTreeMap<u32, (Arc<str>, Instant)>,
    /// Calls whose answers are awaited.
    pub open: BTreeMap<u64, Open>,
}

/// Its part in the election of one shard.
#[derive(Debug)]
pub struct Seat {
    pub nonce: Nonce,
    pub machine: Elector,
    pub drain: Drain,
    pub moves: Moves,
    /// Since when it leads.
    pub began: Option<Instant>,
    /// It leads, though the member leads as much as it may: since when.
    pub excess_since: Option<Time>,
    /// It counts as led, and as on its way to another member.
    pub leads: bool,
    pub gives: bool,
    pub request: Option<u64>,
    pub wake: u64,
    pub sent: HashMap<u64, Instant>,
    pub entitled_from: Option<Instant>,
    pub finished: bool,
}

impl Member {
    pub fn new(setup: MemberSetup, origin: Duration, timing: Timing) -> Self {
        let clock = Drifting { origin, ppm: i64::from(setup.ppm), lost: Duration::ZERO };
        Self { setup, clock, timing, life: 0, up: None, faults: ProcessFaults::default() }
    }

    /// A new process.
    pub fn start(&mut self, now: Time, who: usize, seed: u64, set: &SetSetup, locks: Capabilities) {
        self.life += 1;
        let local = self.clock.local(now);
        let identity: Arc<str> = match set.keeps_names {
            true => format!("m{who}").into(),
            false => format!("m{who}-{}", self.life).into(),
        };
        let seed = seed ^ ((who as u64 + 1) << 40) ^ (u64::from(self.life) << 8);
        let health = self.setup.check_ms.and(FAILURES.try_into().ok()).map(Health::new);
        let standing = standing(health.as_ref(), self.setup.aside);
        let lease = self.timing.lease();
        let drain = millis(set.drain_ms);
        let origin_unix_ms = origin_unix_ms(self.clock.origin, self.setup.wall_ms);
        let seat = |shard: u32| {
            let nonce = Nonce(seed ^ (u64::from(shard) << 24));
            let mut settings = Settings::new(Arc::clone(&identity), nonce, self.timing);
            (settings.rank, settings.standing) = (Rank::Never, standing);
            settings.origin_unix_ms = origin_unix_ms;
            let moves =
                MoveSettings { nonce, priority: 0, lease, prefer_after: None, in_set: true };
            Seat {
                nonce,
                machine: Elector::new(settings, locks.clone()),
                drain: Drain::new(drain),
                moves: Moves::new(moves, local, standing),
                began: None,
                excess_since: None,
                leads: false,
                gives: false,
                request: None,
                wake: 0,
                sent: HashMap::new(),
                entitled_from: None,
                finished: false,
            }
        };
        let settings = SetSettings {
            identity: Arc::clone(&identity),
            shards: set.shards,
            resizing: None,
            weight: self.setup.weight,
            max_load: self.setup.max_load,
            settle: millis(set.settle_ms),
            moves_at_once: set.moves_at_once,
            move_within: move_within(set, self.timing),
            lease,
            standing,
            seed,
        };
        let share = Share::new(settings.load(), set.moves_at_once);
        self.up = Some(Box::new(Process {
            set: SetMember::new(settings, local),
            set_wake: 0,
            poked: false,
            share,
            admitted: BTreeSet::new(),
            health,
            aside: self.setup.aside,
            standing,
            stopping: false,
            seats: (0..set.shards).map(seat).collect(),
            asked: BTreeMap::new(),
            open: BTreeMap::new(),
            identity,
        }));
    }

    pub fn unix_ms(&self, now: Time) -> u64 {
        origin_unix_ms(self.clock.origin, self.setup.wall_ms)
            + self.clock.local(now).since_origin().as_millis() as u64
    }

    pub fn seat(&mut self, shard: u32) -> Option<&mut Seat> {
        self.up.as_mut()?.seats.get_mut(shard as usize)
    }

    pub fn has_room(&self, load: u32) -> bool {
        self.setup.max_load.is_none_or(|max| load < max)
    }
}

impl Seat {
    /// As its driver reports it.
    pub fn holder(&self) -> Holder {
        match self.machine.leader() {
            Some(leader) if leader.is_me => Holder::Me,
            Some(leader) => Holder::Other(Arc::clone(&leader.identity)),
            None if self.machine.state() == State::Unknown => Holder::Unknown,
            None => Holder::Nobody,
        }
    }

    /// Its moves, with the role that it has now.
    pub fn moves(&mut self, now: Instant) -> &mut Moves {
        let role = match self.began {
            Some(began) => MoveRole::Leads(began),
            None => MoveRole::standby(self.machine.leader()),
        };
        self.moves.set_role(now, role, self.machine.pause_ends(now));
        &mut self.moves
    }

    /// Its shard is no longer on its way.
    pub fn keep(&mut self, share: &mut Share) {
        if std::mem::take(&mut self.gives) {
            share.given();
        }
    }
}

pub fn standing(health: Option<&Health>, aside: bool) -> Standing {
    match health {
        Some(health) if !health.is_healthy() => Standing::Sick,
        _ if aside => Standing::Aside,
        _ => Standing::Ready,
    }
}

/// For how long a move may take.
pub fn move_within(set: &SetSetup, timing: Timing) -> Duration {
    millis(set.drain_ms) + timing.lease() * 3
}
