//! A seeded, single-threaded world of discrete events around production machines: the locks of one
//! or more elections, processes that take part in all of them, and candidates of other programs.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use incumbent::clock::Instant;
use incumbent::lock::{Capabilities, Coverage, Hint, Reading, Request, Token};
use incumbent::protocol::{CheckpointRequest, Event, Response};

use crate::candidate::Candidate;
use crate::checker::Checker;
use crate::checkpoints::Step;
use crate::choria::Choria;
use crate::clientgo::ClientGo;
use crate::faults::{Fault, PendingFaults};
use crate::figures::{Checkpoints, Moved, Releases, SetFigures};
use crate::moves::{self, Judge};
use crate::objects::{HttpRequest, Reply, Room, Store, Vimeo};
use crate::peers::{self, Peer, Program};
use crate::process::Process;
use crate::quorum::Datagram;
use crate::scenario::{STORM, Scenario};
use crate::sentinel::{self, Run, Sentinel};
use crate::server::{Retention, Server, Time};
use crate::shelf::Shelf;
use crate::tampering::{answered_revision, hinted_revision};
use crate::timeline::Timeline;
use crate::trace;

/// The queue groups of the candidates whose hints are sampled.
pub(super) const GROUPS: usize = 8;
/// Those of small fleets: few, so that hints are missed.
const FEW_GROUPS: usize = 2;
/// Fleets that are not larger are small.
pub(super) const SMALL: usize = 100;

pub struct World {
    pub(super) time: Timeline<SimEvent>,
    pub(super) scenario: Scenario,
    /// For faults of processes that take part in other elections too.
    pub(super) process_random: Option<Rng>,
    /// Of each election.
    pub servers: Vec<Server>,
    /// Their checkpoints.
    pub(super) shelves: Vec<Shelf>,
    pub(super) judges: Vec<Judge>,
    pub processes: Vec<Process>,
    /// Of each process one for each election.
    pub candidates: Vec<Candidate>,
    pub(super) peers: Vec<Peer>,
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
    pub(super) moved: Moved,
    pub(super) checkpoints: Checkpoints,
    pub(super) figures: SetFigures,
    /// Terms of sets that have ended other than by a handover.
    pub(super) other_ends: u64,
    pub(super) pending_faults: PendingFaults,
    /// The roll calls so far.
    pub(super) calls: u64,
    /// Until when no newcomer can know what became of the entry.
    pub(super) tampered_until: Time,
    /// The queue groups of the candidates whose hints are sampled.
    pub(super) groups: usize,
}

impl World {
    pub fn new(scenario: &Scenario, with_history: bool) -> Self {
        let mut time = Timeline::new(scenario.seed, with_history);
        let (ttl, with_choria) = (scenario.bucket_ttl, scenario.chorias.is_some());
        let elections = scenario.set.as_ref().map_or(1, |set| set.shards as usize);
        let mut processes = Vec::new();
        let mut candidates = Vec::new();
        for (who, setup) in scenario.setups().into_iter().enumerate() {
            let origin = Duration::from_secs(time.random.u64(3600..1_000_000));
            processes.push(Process::new(origin, setup.ppm, setup.wall_ms));
            for key in 0..elections {
                candidates.push(Candidate::new((who, key), setup.clone(), ttl, with_choria));
            }
        }
        let skew = ttl.as_millis() as i16 / 4;
        let chorias = scenario.chorias.into_iter().flat_map(|pace| [pace; 2]);
        let mut peers: Vec<_> = chorias.map(|pace| Program::Choria(Choria::new(pace))).collect();
        for _ in 0..scenario.client_gos {
            peers.push(Program::ClientGo(ClientGo::new(time.random.i64(-1000..=1000))));
        }
        for _ in 0..scenario.vimeos {
            peers.push(Program::Vimeo(Vimeo::new(time.random.i16(-skew..=skew))));
        }
        let store = match scenario.retention {
            Retention::Objects { hashed } => Some(Store::new(hashed, ttl)),
            _ => None,
        };
        let keys = candidates.iter().map(|candidate| candidate.key);
        let sentinels = if scenario.sentinels { processes.len() } else { 0 };
        let mut world = Self {
            time,
            process_random: scenario.further_elections.map(Rng::with_seed),
            servers: (0..elections).map(|_| scenario.server()).collect(),
            shelves: vec![Shelf::default(); elections],
            judges: (0..elections).map(|_| Judge::new(processes.len())).collect(),
            checker: Checker::new(keys, peers.len(), !scenario.forgets()),
            sentinels: (0..sentinels).map(|_| Sentinel::default()).collect(),
            runs: Vec::new(),
            moved: Moved::default(),
            checkpoints: Checkpoints::default(),
            figures: SetFigures::default(),
            other_ends: 0,
            pending_faults: PendingFaults::default(),
            calls: 0,
            releases: Releases::default(),
            winner_crashes: None,
            processes,
            candidates,
            peers: Vec::new(),
            store,
            shared: Arc::default(),
            tampered_until: Time::ZERO,
            groups: if scenario.candidates.len() > SMALL { GROUPS } else { FEW_GROUPS },
            scenario: scenario.clone(),
        };
        world.schedule(peers);
        world
    }

    /// Everybody begins, and what is to go wrong will.
    fn schedule(&mut self, peers: Vec<Program>) {
        for process in 0..self.processes.len() {
            let after = self.time.millis(0..200);
            self.time.after(after, SimEvent::Start { process });
        }
        for (which, program) in peers.into_iter().enumerate() {
            let (step, within_ms) = program.begins();
            let after = self.time.millis(0..within_ms);
            self.time.after(after, SimEvent::Peer { which, life: 0, step });
            self.add_peer(program);
        }
        for (at, fault) in &self.scenario.faults {
            let at = Duration::from_millis(u64::from(*at));
            self.time.after(at, SimEvent::Fault(fault.clone()));
        }
        self.time.after(STORM, SimEvent::Calm);
    }

    pub fn run(&mut self, until: Time) {
        while self.checker.violation.is_none() {
            let Some(what) = self.time.next(until) else {
                self.time.now = until;
                return;
            };
            self.happen(what);
        }
    }

    pub fn now(&self) -> Time {
        self.time.now
    }

    /// No faults happen but those that are inflicted, and nothing is lost.
    pub fn calm(&mut self) {
        self.time.calm = true;
    }

    pub fn history(&self) -> String {
        self.time.history()
    }

    /// Whether the last fault was this long ago.
    pub(super) fn is_calm_for(&self, span: Duration) -> bool {
        self.time.calm && self.time.now > STORM + span
    }

    /// The candidates of a process.
    pub(super) fn of_process(&self, process: usize) -> Range<usize> {
        let elections = self.servers.len();
        process * elections..(process + 1) * elections
    }

    /// The candidates of an election.
    pub(super) fn of_election(&self, key: usize) -> impl Iterator<Item = usize> + use<> {
        (key..self.candidates.len()).step_by(self.servers.len())
    }

    /// The process of a candidate.
    pub(super) fn process(&self, who: usize) -> &Process {
        &self.processes[self.candidates[who].process]
    }

    /// What the clock of a candidate shows.
    pub(super) fn local(&self, who: usize) -> Instant {
        self.process(who).clock.local(self.time.now)
    }

    /// In which of its processes a candidate is.
    pub(super) fn life(&self, who: usize) -> u32 {
        self.process(who).life
    }

    pub(super) fn is_up(&self, process: usize) -> bool {
        self.of_process(process).any(|who| self.candidates[who].machine.is_some())
    }

    /// What people read.
    pub(super) fn name(&self, who: usize) -> String {
        match &self.process(who).member {
            Some(member) => member.identity.to_string(),
            None if self.candidates[who].setup.twin => "twin".to_owned(),
            None => format!("c{who}"),
        }
    }

    /// Something happens later in the process that `who` runs in now.
    pub(super) fn later(&mut self, who: usize, after: Duration, what: Inner) {
        let life = self.life(who);
        self.time.after(after, SimEvent::In { who, life, what });
    }

    /// An event within the process itself.
    pub(super) fn inside(&mut self, who: usize, event: Event) {
        self.later(who, Duration::ZERO, Inner::Own(event));
    }

    pub(super) fn capabilities(&self, who: usize) -> Capabilities {
        let server = &self.servers[self.candidates[who].key];
        let lock = server.capabilities(self.scenario.old_bucket);
        Capabilities {
            can_read: self.candidates[who].setup.reads,
            empty_is_proof: lock.empty_is_proof || self.scenario.quorum.is_some(),
            reads_are_durable: !self.scenario.synchronous,
            ..lock
        }
    }

    fn happen(&mut self, what: SimEvent) {
        match what {
            SimEvent::Start { process } => self.start(process),
            SimEvent::In { who, life, what } => self.happen_in(who, life, what),
            SimEvent::Request { who, life, id, request } => self.serve(who, life, id, request),
            SimEvent::Checkpoint { who, life, token, id, request } => {
                self.serve_checkpoint((who, life), (token, id), request);
            }
            SimEvent::Expire { key } => self.expire(key),
            SimEvent::Remade => self.deliver_hints(0, |_| Some(Hint::Recheck)),
            SimEvent::Fault(fault) => {
                self.time.log(|| format!("*** {fault:?}"));
                self.inflict(&fault);
            }
            SimEvent::Peer { which, life, step } => self.step_peer(which, life, step),
            SimEvent::Asked { who, life, id, attempt, asked } => {
                self.store_serves(who, life, id, attempt, asked);
            }
            SimEvent::Mended { restored } => self.object_is_mended(restored),
            SimEvent::Datagram(datagram) => self.voter_receives(datagram),
            SimEvent::Sentinel { at, life, step } => self.step_sentinel(at, life, step),
            SimEvent::Calm => self.calm_down(),
        }
        self.checker.beside_peers(self.time.now);
    }

    fn happen_in(&mut self, who: usize, life: u32, what: Inner) {
        let now = self.time.now;
        let process = self.process(who);
        let faults = &process.faults;
        if faults.is_paused(now) {
            return self.time.at(faults.paused_until, SimEvent::In { who, life, what });
        }
        if process.life != life {
            return;
        }
        let (connects, cut) = (faults.cut_in_until, now < faults.cut_in_until);
        match what {
            Inner::Wake { wake } => {
                if self.candidates[who].wake == wake {
                    self.checker.wake(who, now);
                    self.feed(who, Event::Wake);
                }
            }
            Inner::Own(event) => self.happen_within(who, event),
            // What the lock reports when it has subscribed at last.
            Inner::Hint(Hint::Coverage(_)) if cut => {
                self.time.at(connects, SimEvent::In { who, life, what });
            }
            Inner::Hint(_) if cut => {}
            Inner::Hint(hint) => {
                self.time.log(|| format!("c{who} hears {}", trace::hint(&hint)));
                let told = hinted_revision(&hint);
                self.candidates[who].newest = self.candidates[who].newest.max(told);
                self.feed(who, Event::Hint(hint));
            }
            Inner::Response { from_server: true, .. } if cut => {}
            Inner::Response { id, answer, from_server } => {
                let candidate = &mut self.candidates[who];
                // A second copy comes through, and a late answer too: they must be ignored.
                let awaited = candidate.request == Some(id);
                if !from_server && !awaited {
                    return;
                }
                if awaited {
                    if matches!(answer, Response::Read(Ok(Reading::Empty { .. }))) {
                        candidate.empty_on = candidate.found_empty_on.get(&(life, id)).copied();
                    }
                    candidate.newest = candidate.newest.max(answered_revision(&answer));
                    candidate.request = None;
                }
                candidate.exchange = None;
                self.time.log(|| format!("c{who} <- #{id} {}", trace::answer(&answer)));
                self.feed(who, Event::Response { id, response: answer });
            }
            Inner::Checkpoint(_, Step::Response { from_server: true, .. }) if cut => {}
            Inner::Checkpoint(token, step) => self.step_checkpoint(who, token, step),
            Inner::Replied { .. } if cut => {}
            Inner::Replied { id, attempt, reply } => self.room_receives(who, id, attempt, reply),
            Inner::AskAgain { id, attempt } => self.room_asks_again(who, id, attempt),
            Inner::Moves(step) => self.step_moves(who, step),
            Inner::GivesBack if self.checker.is_leading(who) => {
                self.feed_now(who, vec![Event::Resign]);
            }
            Inner::GivesBack => {}
            Inner::MemberWake { wake } => self.member_wakes(who, wake),
            Inner::MemberAdvances => self.member_advances(who),
            Inner::VoterWakes { wake } => self.voter_wakes(who, wake),
        }
    }

    fn happen_within(&mut self, who: usize, event: Event) {
        match event {
            Event::TermEnded { work_stopped } => {
                let stopped = if work_stopped { "ended" } else { "WOULD NOT END" };
                self.time.log(|| format!("c{who}: work {stopped}"));
                self.checker.ended(who, work_stopped);
                self.member_has_stopped(who);
            }
            Event::WorkEnded { .. } if !self.checker.is_leading(who) => return,
            _ => {}
        }
        self.feed(who, event);
    }

    fn start(&mut self, process: usize) {
        if self.is_up(process) {
            return;
        }
        let (seed, with_choria) = (self.scenario.seed, self.scenario.chorias.is_some());
        let seats = self.of_process(process);
        let first = seats.start;
        let moves = self.candidates[first].setup.moves.as_ref();
        let checks = moves.is_some_and(|setup| setup.check_ms.is_some());
        self.processes[process].start(moves);
        self.member_starts(process);
        self.voter_starts(process);
        if checks {
            let after = self.time.millis(0..100);
            self.later(first, after, Inner::Moves(moves::Step::Check));
        }
        for who in seats {
            let (now, lock, name) = (self.local(who), self.capabilities(who), self.name(who));
            let candidate = &mut self.candidates[who];
            let of_process = &self.processes[process];
            candidate.start(now, name.into(), of_process, seed, with_choria, lock);
            let shares = candidate.setup.shares;
            candidate.room = if shares { self.shared.clone() } else { Arc::default() };
            let (key, coverage) = (candidate.key, candidate.setup.coverage);
            if let Some(store) = self.store.as_mut().filter(|_| !shares) {
                store.newcomer(who);
            }
            if self.time.now < self.tampered_until {
                self.checker.excuse(self.tampered_until);
            }
            self.judges[key].forgets(process);
            self.time.log(|| format!("c{who} starts"));
            self.feed(who, Event::Start);
            if coverage != Coverage::None {
                let after = self.time.millis(0..50);
                self.later(who, after, Inner::Hint(Hint::Coverage(coverage)));
            }
        }
        self.poke_member(process);
    }
}

/// An event at a later instant.
#[derive(Debug, Clone)]
pub(super) enum SimEvent {
    /// A process starts.
    Start { process: usize },
    /// Something happens to a candidate, in this process of it.
    In { who: usize, life: u32, what: Inner },
    /// A request arrives at the server.
    Request { who: usize, life: u32, id: u64, request: Request },
    /// A request for the checkpoint arrives at the server.
    Checkpoint { who: usize, life: u32, token: Token, id: u64, request: CheckpointRequest },
    /// What is stored under this key may have outlived its life.
    Expire { key: usize },
    /// The bucket is there again.
    Remade,
    /// Something goes wrong.
    Fault(Fault),
    /// Something happens to a candidate of another program.
    Peer { which: usize, life: u32, step: peers::Step },
    /// A request of the lock arrives at the store.
    Asked { who: usize, life: u32, id: u64, attempt: u32, asked: HttpRequest },
    /// An administrator repairs an unreadable object.
    Mended { restored: bool },
    /// A message of a voter arrives.
    Datagram(Datagram),
    /// Something happens to a sentinel.
    Sentinel { at: usize, life: u32, step: sentinel::Step },
    /// All faults cease.
    Calm,
}

/// What happens to a candidate, in its process: later if that is paused.
#[derive(Debug, Clone)]
pub(super) enum Inner {
    Wake {
        wake: u64,
    },
    /// Something within the process.
    Own(Event),
    /// A hint arrives.
    Hint(Hint),
    /// The answer to a request arrives, or its timeout.
    Response {
        id: u64,
        answer: Response,
        from_server: bool,
    },
    /// The store's reply arrives.
    Replied {
        id: u64,
        attempt: u32,
        reply: Reply,
    },
    /// The time is over for which a store wanted to be left alone.
    AskAgain {
        id: u64,
        attempt: u32,
    },
    /// Something happens to the checkpoint of this term of it.
    Checkpoint(Token, Step),
    /// Something happens to its moves.
    Moves(moves::Step),
    /// Its member has the term given back.
    GivesBack,
    /// The member itself is woken.
    MemberWake {
        wake: u64,
    },
    /// The member takes in what has changed.
    MemberAdvances,
    /// Its voter is woken.
    VoterWakes {
        wake: u64,
    },
}
