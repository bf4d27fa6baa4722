//! A seeded, single-threaded world of discrete events around production machines.

use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use incumbent::lock::{Capabilities, Coverage, Hint, Reading};
use incumbent::protocol::{Elector, Event, Response, State};

use crate::candidate::Candidate;
use crate::checker::Checker;
use crate::choria::{self, Choria};
use crate::clientgo::{self, ClientGo};
use crate::event::{Scheduled, SimEvent};
use crate::moves::{Judge, Moved, PendingFaults};
use crate::network;
use crate::objects::{self, Room, Store, Vimeo};
use crate::scenario::{STORM, Scenario};
use crate::sentinel::{Releases, Run, Sentinel};
use crate::server::{Keeping, Server, Time};
use crate::tampering::{answered_revision, hinted_revision};
use crate::trace;

/// The queue groups of the candidates whose hints are sampled.
pub(super) const GROUPS: usize = 8;
/// Those of small fleets: few, so that hints are missed.
const FEW_GROUPS: usize = 2;
/// Fleets that are not larger are small.
pub(super) const SMALL: usize = 100;

pub struct World {
    pub now: Time,
    pub(super) scenario: Scenario,
    pub(super) random: Rng,
    /// For faults of processes that take part in other elections too.
    pub(super) process_random: Option<Rng>,
    queue: BinaryHeap<Scheduled>,
    order: u64,
    pub server: Server,
    pub candidates: Vec<Candidate>,
    pub(super) chorias: Vec<Choria>,
    pub(super) client_gos: Vec<ClientGo>,
    pub(super) vimeos: Vec<Vimeo>,
    /// Beside each candidate, if any.
    pub(super) sentinels: Vec<Sentinel>,
    /// The releases that they have begun.
    pub(super) runs: Vec<Run>,
    pub releases: Releases,
    /// The next candidate that waits before it leads crashes, and a new process starts so much
    /// later; whether it stops first.
    pub(super) winner_crashes: Option<(u16, bool)>,
    /// Where the lock is an object.
    pub(super) store: Option<Store>,
    /// The lock that several campaigns have in common.
    shared: Arc<Room>,
    pub checker: Checker,
    /// Of moves.
    pub(super) judge: Judge,
    pub(super) moved: Moved,
    pub(super) pending_faults: PendingFaults,
    /// The roll calls so far.
    pub(super) calls: u64,
    /// Until when no newcomer can know what became of the entry.
    pub(super) tampered_until: Time,
    /// No more faults, losses or long delays.
    pub calm: bool,
    /// The queue groups of the candidates whose hints are sampled.
    pub(super) groups: usize,
    /// What happened, if it is wanted.
    history: Option<Vec<String>>,
}

impl World {
    pub fn new(scenario: &Scenario, with_history: bool) -> Self {
        let mut random = Rng::with_seed(scenario.seed);
        let ttl = scenario.bucket_ttl;
        let candidates: Vec<_> = scenario
            .candidates
            .iter()
            .map(|setup| {
                let origin = Duration::from_secs(random.u64(3600..1_000_000));
                Candidate::new(setup.clone(), origin, ttl, scenario.chorias.is_some())
            })
            .collect();
        let chorias: Vec<_> = (0..if scenario.chorias.is_some() { 2 } else { 0 })
            .map(|_| Choria::default())
            .collect();
        let client_gos: Vec<_> =
            (0..scenario.client_gos).map(|_| ClientGo::new(random.i64(-1000..=1000))).collect();
        let store = match scenario.keeping {
            Keeping::Objects { hashed } => Some(Store::new(hashed, ttl)),
            _ => None,
        };
        let skew = ttl.as_millis() as i16 / 4;
        let vimeos: Vec<_> =
            (0..scenario.vimeos).map(|_| Vimeo::new(random.i16(-skew..=skew))).collect();
        let peers = chorias.len() + client_gos.len() + vimeos.len();
        let age = if scenario.old_bucket { ttl * 2 } else { Duration::ZERO };
        let mut world = Self {
            now: Time::ZERO,
            random,
            process_random: scenario.further_elections.map(Rng::with_seed),
            queue: BinaryHeap::new(),
            order: 0,
            server: Server::new(ttl, scenario.keeping, age),
            checker: Checker::new(candidates.len(), peers, !scenario.forgets()),
            sentinels: candidates
                .iter()
                .filter(|_| scenario.sentinels)
                .map(|_| Sentinel::default())
                .collect(),
            runs: Vec::new(),
            judge: Judge::new(candidates.len()),
            moved: Moved::default(),
            pending_faults: PendingFaults::default(),
            calls: 0,
            releases: Releases::default(),
            winner_crashes: None,
            candidates,
            chorias,
            client_gos,
            vimeos,
            store,
            shared: Arc::default(),
            tampered_until: Time::ZERO,
            calm: false,
            groups: if scenario.candidates.len() > SMALL { GROUPS } else { FEW_GROUPS },
            history: with_history.then(Vec::new),
            scenario: scenario.clone(),
        };
        world.server.synchronous = scenario.synchronous;
        // By the same lot, as no lock needs both.
        world.server.per_write_ttl = scenario.per_write_ttl;
        world.server.dates_foreign = scenario.per_write_ttl;
        for who in 0..world.candidates.len() {
            let after = world.millis(0..200);
            world.after(after, SimEvent::Start { who });
        }
        for which in 0..world.chorias.len() {
            let after = world.millis(0..5000);
            world.after(after, SimEvent::Choria { which, life: 0, step: choria::Step::Tick });
        }
        for which in 0..world.client_gos.len() {
            let after = world.millis(0..2000);
            world.after(after, SimEvent::ClientGo { which, life: 0, step: clientgo::Step::Try });
        }
        for which in 0..world.vimeos.len() {
            let after = world.millis(0..2000);
            world.after(after, SimEvent::Vimeo { which, life: 0, step: objects::Step::Look });
        }
        for (at, fault) in &scenario.faults {
            let at = Duration::from_millis(u64::from(*at));
            world.after(at, SimEvent::Fault(fault.clone()));
        }
        world.after(STORM, SimEvent::Calm);
        world
    }

    pub fn run(&mut self, until: Time) {
        while self.checker.violation.is_none() {
            let Some(next) = self.queue.peek() else { break };
            if next.at > until {
                break;
            }
            let Some(Scheduled { at, what, .. }) = self.queue.pop() else { break };
            self.now = at;
            self.happen(what);
        }
        if self.checker.violation.is_none() {
            self.now = until;
        }
    }

    pub fn history(&self) -> String {
        let lines = self.history.as_deref().unwrap_or_default();
        lines[lines.len().saturating_sub(200)..].join("\n")
    }

    pub(super) fn has_history(&self) -> bool {
        self.history.is_some()
    }

    pub(super) fn log(&mut self, line: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history {
            history.push(format!("{:>12.6}  {}", self.now.as_secs_f64(), line()));
        }
    }

    pub(super) fn after(&mut self, after: Duration, what: SimEvent) {
        self.order += 1;
        self.queue.push(Scheduled { at: self.now + after, order: self.order, what });
    }

    /// Whether the last fault was so long ago.
    pub(super) fn is_calm_for(&self, span: Duration) -> bool {
        self.calm && self.now > STORM + span
    }

    pub(super) fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        network::millis(&mut self.random, range)
    }

    pub(super) fn capabilities(&self, who: usize) -> Capabilities {
        Capabilities {
            max_lease: self.server.bucket_ttl,
            can_read: self.candidates[who].setup.reads,
            empty_is_proof: self.server.vouches()
                && self.scenario.keeping.frees()
                && self.scenario.old_bucket,
            expires_entries: self.scenario.keeping.frees(),
            reads_are_durable: !self.scenario.synchronous,
            max_identity_len: 100,
        }
    }

    fn happen(&mut self, what: SimEvent) {
        if let SimEvent::Inside { who, .. }
        | SimEvent::Wake { who, .. }
        | SimEvent::Hint { who, .. }
        | SimEvent::Replied { who, .. }
        | SimEvent::AskAgain { who, .. }
        | SimEvent::Moves { who, .. }
        | SimEvent::Response { who, .. } = &what
            && self.candidates[*who].faults.is_paused(self.now)
        {
            let resumes = self.candidates[*who].faults.paused_until - self.now;
            return self.after(resumes, what);
        }
        match what {
            SimEvent::Start { who } => self.start(who),
            SimEvent::Wake { who, life, wake } => {
                if self.candidates[who].life == life && self.candidates[who].wake == wake {
                    self.checker.wake(who, self.now);
                    self.feed(who, Event::Wake);
                }
            }
            SimEvent::Inside { who, life, event } => {
                if self.candidates[who].life != life {
                    return;
                }
                match event {
                    Event::TermEnded { work_stopped } => {
                        let stopped = if work_stopped { "ended" } else { "WOULD NOT END" };
                        self.log(|| format!("c{who}: work {stopped}"));
                        self.checker.ended(who, work_stopped);
                    }
                    Event::WorkEnded { .. } if !self.checker.is_leading(who) => return,
                    _ => {}
                }
                self.feed(who, event);
            }
            SimEvent::Hint { who, life, hint } => {
                let candidate = &self.candidates[who];
                let ends = candidate.faults.cut_in_until;
                if self.now < ends && matches!(hint, Hint::Coverage(_)) {
                    // What the lock reports when it has subscribed at last.
                    return self.after(ends - self.now, SimEvent::Hint { who, life, hint });
                }
                if candidate.life == life && self.now >= ends {
                    self.log(|| format!("c{who} hears {}", trace::hint(&hint)));
                    let told = hinted_revision(&hint);
                    self.candidates[who].newest = self.candidates[who].newest.max(told);
                    self.feed(who, Event::Hint(hint));
                }
            }
            SimEvent::Request { who, life, id, request } => self.serve(who, life, id, request),
            SimEvent::Response { who, life, id, answer, from_server } => {
                let candidate = &mut self.candidates[who];
                let cut = from_server && self.now < candidate.faults.cut_in_until;
                // A second copy comes through, and a late answer too: they must be ignored.
                if candidate.life == life && !cut && (from_server || candidate.request == Some(id))
                {
                    if candidate.request == Some(id)
                        && matches!(answer, Response::Read(Ok(Reading::Empty { .. })))
                    {
                        candidate.empty_on = candidate.found_empty_on.get(&(life, id)).copied();
                    }
                    if candidate.request == Some(id) {
                        candidate.newest = candidate.newest.max(answered_revision(&answer));
                    }
                    candidate.request = candidate.request.filter(|open| *open != id);
                    candidate.exchange = None;
                    self.log(|| format!("c{who} <- #{id} {}", trace::answer(&answer)));
                    self.feed(who, Event::Response { id, response: answer });
                }
            }
            SimEvent::Expire => self.expire(),
            SimEvent::Remade => self.deliver_hints(|_| Some(Hint::Recheck)),
            SimEvent::Fault(fault) => {
                self.log(|| format!("*** {fault:?}"));
                self.inflict(&fault);
            }
            SimEvent::Choria { which, life, step } => self.step_choria(which, life, step),
            SimEvent::ClientGo { which, life, step } => self.step_client_go(which, life, step),
            SimEvent::Asked { who, life, id, attempt, asked } => {
                self.store_serves(who, life, id, attempt, asked);
            }
            SimEvent::Replied { who, life, id, attempt, reply } => {
                self.room_receives(who, life, id, attempt, reply);
            }
            SimEvent::AskAgain { who, life, id, attempt } => {
                self.room_asks_again(who, life, id, attempt);
            }
            SimEvent::Mended { restored } => self.object_is_mended(restored),
            SimEvent::Vimeo { which, life, step } => self.step_vimeo(which, life, step),
            SimEvent::Sentinel { at, life, step } => self.step_sentinel(at, life, step),
            SimEvent::Moves { who, life, step } => self.step_moves(who, life, step),
            SimEvent::Calm => self.calm_down(),
        }
        self.checker.beside_peers(self.now);
    }

    fn start(&mut self, who: usize) {
        if self.candidates[who].machine.is_some() {
            return;
        }
        let lock = self.capabilities(who);
        let (seed, choria) = (self.scenario.seed, self.scenario.chorias.is_some());
        self.candidates[who].start(self.now, who, seed, choria, lock);
        let shares = self.candidates[who].setup.shares;
        self.candidates[who].room = if shares { self.shared.clone() } else { Arc::default() };
        if let Some(store) = self.store.as_mut().filter(|_| !shares) {
            store.newcomer(who);
        }
        if self.now < self.tampered_until {
            self.checker.excuse(self.tampered_until);
        }
        self.begin_moves(who);
        self.log(|| format!("c{who} starts"));
        self.feed(who, Event::Start);
        let coverage = self.candidates[who].setup.coverage;
        if coverage != Coverage::None {
            let (after, life) = (self.millis(0..50), self.candidates[who].life);
            let hint = Hint::Coverage(coverage);
            self.after(after, SimEvent::Hint { who, life, hint });
        }
    }

    /// Hands a machine an event, and does what it answers.
    pub(super) fn feed(&mut self, who: usize, event: Event) {
        let now = self.candidates[who].local(self.now);
        let events = self.drained(who, now, event);
        if events.is_empty() {
            return;
        }
        let Some(machine) = &mut self.candidates[who].machine else { return };
        for event in events {
            machine.handle(now, event);
        }
        let mut actions = Vec::new();
        while let Some(action) = machine.poll_action() {
            actions.push(action);
        }
        let state = machine.state();
        self.subscribe(who);
        for action in actions {
            self.perform(who, action);
        }
        if (state == State::Leader) != self.checker.is_leading(who) {
            self.checker.fail(format!("c{who} says {state} against what it told"));
        }
        self.register(who);
        self.standing_of_machine(who);
        self.advance_moves(who);
        self.set_wake(who);
    }

    /// Wakes it when there is something to do at the latest.
    pub(super) fn set_wake(&mut self, who: usize) {
        let candidate = &mut self.candidates[who];
        let machine_wake = candidate.machine.as_ref().and_then(Elector::next_wake);
        let moves_wake = candidate.mover.as_ref().and_then(|mover| mover.moves.next_wake());
        let wakes = [machine_wake, candidate.drain.until(), moves_wake];
        candidate.wake += 1;
        let (life, serial) = (candidate.life, candidate.wake);
        let Some(wake) = wakes.into_iter().flatten().min() else { return };
        let at = candidate.real(wake);
        let late = match self.random.u8(..) {
            0..4 if !self.calm => self.millis(0..80),
            _ => Duration::from_micros(self.random.u64(1..300)),
        };
        let after = at.saturating_sub(self.now) + late;
        self.after(after, SimEvent::Wake { who, life, wake: serial });
    }
}
