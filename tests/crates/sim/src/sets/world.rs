//! A seeded, single-threaded world of discrete events around the members of a set.

use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use incumbent::lock::{Capabilities, Coverage, Hint, Request};
use incumbent::protocol::set::{Holder, SetAction};
use incumbent::protocol::{Event, Response, Timing, TimingOptions};

use super::member::{Member, Process, Seat};
use super::moves::{PendingFaults, Step};
use super::{SetFigures, SetSetup};
use crate::checker::Checker;
use crate::event::Scheduled;
use crate::network;
use crate::scenario::{Fault, STORM, Scenario};
use crate::server::{Server, Time};

/// An event at a later instant.
#[derive(Debug, Clone)]
pub(super) enum SetEvent {
    Start {
        who: usize,
    },
    /// Something happens in one process.
    In {
        who: usize,
        life: u32,
        what: Inner,
    },
    /// A request arrives at the server of a shard.
    Request {
        who: usize,
        life: u32,
        shard: u32,
        id: u64,
        request: Request,
    },
    Expire {
        shard: u32,
    },
    Fault(Fault),
    Calm,
}

/// The same, within one process.
#[derive(Debug, Clone)]
pub(super) enum Inner {
    Wake {
        shard: u32,
        wake: u64,
    },
    /// The member's own timer.
    SetWake {
        wake: u64,
    },
    /// The member takes in what has changed.
    Poked,
    Own {
        shard: u32,
        event: Event,
    },
    /// The member has a term given back.
    GivesBack {
        shard: u32,
    },
    Hint {
        shard: u32,
        hint: Hint,
    },
    Response {
        shard: u32,
        id: u64,
        answer: Response,
        from_server: bool,
    },
    Step(Step),
}

pub struct SetWorld {
    pub now: Time,
    pub(super) scenario: Scenario,
    pub(super) set: SetSetup,
    pub(super) random: Rng,
    queue: BinaryHeap<Scheduled<SetEvent>>,
    order: u64,
    /// Of each shard.
    pub(super) servers: Vec<Server>,
    pub(super) checkers: Vec<Checker>,
    pub(super) members: Vec<Member>,
    pub(super) pending_faults: PendingFaults,
    pub(super) calls: u64,
    pub(super) calm: bool,
    pub(super) figures: SetFigures,
    /// Terms that have ended since the last fault, other than by a handover.
    pub(super) other_ends: u64,
    pub(super) violation: Option<String>,
    history: Option<VecDeque<String>>,
}

/// Lines of a history.
const KEPT: usize = 400;

impl SetWorld {
    pub fn new(scenario: &Scenario, set: &SetSetup, with_history: bool) -> Self {
        let mut random = Rng::with_seed(scenario.seed);
        let ttl = scenario.bucket_ttl;
        let timing = Timing::new(TimingOptions::default(), ttl);
        let timing = timing.expect("scenarios have valid timings");
        let members: Vec<_> = set
            .members
            .iter()
            .map(|setup| {
                let origin = Duration::from_secs(random.u64(3600..1_000_000));
                Member::new(setup.clone(), origin, timing)
            })
            .collect();
        let age = if scenario.old_bucket { ttl * 2 } else { Duration::ZERO };
        let server = || {
            let mut server = Server::new(ttl, scenario.keeping, age);
            server.per_write_ttl = scenario.per_write_ttl;
            server.dates_foreign = scenario.per_write_ttl;
            server
        };
        let mut world = Self {
            now: Time::ZERO,
            queue: BinaryHeap::new(),
            order: 0,
            servers: (0..set.shards).map(|_| server()).collect(),
            checkers: (0..set.shards).map(|_| Checker::new(members.len(), 0, true)).collect(),
            members,
            pending_faults: PendingFaults::default(),
            calls: 0,
            calm: false,
            figures: SetFigures::default(),
            other_ends: 0,
            violation: None,
            history: with_history.then(VecDeque::new),
            scenario: scenario.clone(),
            set: set.clone(),
            random,
        };
        for who in 0..world.members.len() {
            let after = world.millis(0..200);
            world.after(after, SetEvent::Start { who });
        }
        for (at, fault) in &scenario.faults {
            let at = Duration::from_millis(u64::from(*at));
            world.after(at, SetEvent::Fault(fault.clone()));
        }
        world.after(STORM, SetEvent::Calm);
        world
    }

    pub fn run(&mut self, until: Time) {
        while self.violation.is_none() {
            let Some(next) = self.queue.peek() else { break };
            if next.at > until {
                break;
            }
            let Some(Scheduled { at, what, .. }) = self.queue.pop() else { break };
            self.now = at;
            self.happen(what);
        }
        if self.violation.is_none() {
            self.now = until;
        }
    }

    pub fn history(&self) -> String {
        let lines: Vec<_> = self.history.iter().flatten().cloned().collect();
        lines.join("\n")
    }

    pub fn fail(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    pub(super) fn log(&mut self, line: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history {
            if history.len() == KEPT {
                history.pop_front();
            }
            history.push_back(format!("{:>12.6}  {}", self.now.as_secs_f64(), line()));
        }
    }

    pub(super) fn after(&mut self, after: Duration, what: SetEvent) {
        self.order += 1;
        self.queue.push(Scheduled { at: self.now + after, order: self.order, what });
    }

    /// Something happens later in the process that `who` runs now.
    pub(super) fn later(&mut self, after: Duration, who: usize, what: Inner) {
        let life = self.members[who].life;
        self.after(after, SetEvent::In { who, life, what });
    }

    /// An event of the process itself.
    pub(super) fn own(&mut self, who: usize, shard: u32, event: Event) {
        self.later(Duration::ZERO, who, Inner::Own { shard, event });
    }

    pub(super) fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        network::millis(&mut self.random, range)
    }

    pub(super) fn passage(&mut self, loss: f64) -> Option<Duration> {
        network::passage(&mut self.random, self.calm, loss)
    }

    pub(super) fn copies(&mut self) -> u8 {
        network::copies(&mut self.random, self.calm)
    }

    /// The process of a member, and the part of it in one election.
    pub(super) fn seat(&mut self, who: usize, shard: u32) -> Option<(&mut Process, usize)> {
        let up = self.members[who].up.as_deref_mut()?;
        Some((up, shard as usize))
    }

    fn happen(&mut self, what: SetEvent) {
        match what {
            SetEvent::In { who, .. } if self.members[who].faults.is_paused(self.now) => {
                let resumes = self.members[who].faults.paused_until - self.now;
                self.after(resumes, what);
            }
            SetEvent::In { who, life, what } => {
                if self.members[who].life == life && self.members[who].up.is_some() {
                    self.happen_in(who, what);
                }
            }
            SetEvent::Start { who } => self.start(who),
            SetEvent::Request { who, life, shard, id, request } => {
                self.serve(who, life, shard, id, request);
            }
            SetEvent::Expire { shard } => self.expire(shard),
            SetEvent::Fault(fault) => {
                self.log(|| format!("*** {fault:?}"));
                self.inflict(&fault);
            }
            SetEvent::Calm => self.calm_down(),
        }
    }

    fn happen_in(&mut self, who: usize, what: Inner) {
        let cut = self.now < self.members[who].faults.cut_in_until;
        match what {
            Inner::Wake { shard, wake } => {
                if self.members[who].seat(shard).is_some_and(|seat| seat.wake == wake) {
                    self.checkers[shard as usize].wake(who, self.now);
                    self.feed(who, shard, Event::Wake);
                }
            }
            Inner::SetWake { wake } => {
                if self.members[who].up.as_ref().is_some_and(|up| up.set_wake == wake) {
                    self.advance(who);
                }
            }
            Inner::Poked => self.advance(who),
            Inner::Own { shard, event } => {
                match event {
                    Event::TermEnded { work_stopped } => {
                        self.checkers[shard as usize].ended(who, work_stopped);
                        if let Some(up) = &mut self.members[who].up {
                            up.admitted.remove(&shard);
                        }
                    }
                    Event::WorkEnded { .. } if !self.leads(who, shard) => return,
                    _ => {}
                }
                self.feed(who, shard, event);
            }
            Inner::GivesBack { shard } => {
                if self.leads(who, shard) {
                    self.feed_now(who, shard, vec![Event::Resign]);
                }
            }
            Inner::Hint { shard, hint } if !cut => self.feed(who, shard, Event::Hint(hint)),
            Inner::Hint { .. } => {}
            Inner::Response { shard, id, answer, from_server } => {
                let Some(seat) = self.members[who].seat(shard) else { return };
                let lost = from_server && cut || !from_server && seat.request != Some(id);
                if !lost {
                    seat.request = seat.request.filter(|open| *open != id);
                    self.feed(who, shard, Event::Response { id, response: answer });
                }
            }
            Inner::Step(step) => self.step(who, step),
        }
    }

    pub(super) fn leads(&self, who: usize, shard: u32) -> bool {
        self.checkers[shard as usize].is_leading(who)
    }

    fn start(&mut self, who: usize) {
        if self.members[who].up.is_some() {
            return;
        }
        let locks = Capabilities {
            max_lease: self.scenario.bucket_ttl,
            can_read: true,
            empty_is_proof: self.servers[0].vouches()
                && self.scenario.keeping.frees()
                && self.scenario.old_bucket,
            expires_entries: self.scenario.keeping.frees(),
            reads_are_durable: true,
            max_identity_len: 100,
        };
        self.members[who].start(self.now, who, self.scenario.seed, &self.set, locks);
        self.log(|| format!("m{who} starts"));
        for shard in 0..self.set.shards {
            self.feed(who, shard, Event::Start);
            let after = self.millis(0..50);
            let hint = Hint::Coverage(Coverage::Full);
            self.later(after, who, Inner::Hint { shard, hint });
        }
        self.begin_checks(who);
        self.poke(who);
    }

    /// How long a timer takes that is to go off at `at`.
    pub(super) fn lateness(&mut self, at: Time) -> Duration {
        let late = match self.random.u8(..) {
            0..4 if !self.calm => self.millis(0..80),
            _ => Duration::from_micros(self.random.u64(1..300)),
        };
        at.saturating_sub(self.now) + late
    }

    /// Something has changed for the member's task.
    pub(super) fn poke(&mut self, who: usize) {
        if let Some(up) = &mut self.members[who].up
            && !std::mem::replace(&mut up.poked, true)
        {
            let after = Duration::from_micros(self.random.u64(1..1000));
            self.later(after, who, Inner::Poked);
        }
    }

    /// The member takes in what has changed, and does what is due.
    fn advance(&mut self, who: usize) {
        let clock = self.members[who].clock;
        let now = clock.local(self.now);
        let Some(up) = self.members[who].up.as_deref_mut() else { return };
        up.poked = false;
        if up.stopping {
            return;
        }
        for (shard, seat) in (0..).zip(&up.seats) {
            let holder = Seat::holder(seat);
            let leaves = |from: &Arc<str>| match &holder {
                Holder::Me => false,
                Holder::Other(other) => other == from,
                Holder::Nobody | Holder::Unknown => true,
            };
            if up.asked.get(&shard).is_some_and(|(from, until)| now >= *until || !leaves(from)) {
                up.asked.remove(&shard);
            }
            up.set.set_holder(now, shard, holder);
        }
        up.set.advance(now);
        let mut actions = Vec::new();
        while let Some(action) = up.set.poll_action() {
            actions.push(action);
        }
        let wake = up.set.next_wake(now);
        up.set_wake += 1;
        let serial = up.set_wake;
        for action in actions {
            if !matches!(action, SetAction::CallRoll) {
                self.log(|| format!("m{who}: {action:?}"));
            }
            self.perform_of_set(who, action);
        }
        if let Some(wake) = wake {
            let after = self.lateness(clock.real(wake));
            self.later(after, who, Inner::SetWake { wake: serial });
        }
    }
}
