//! Everything that goes wrong in the world: the faults, how often each comes in a fleet, and what
//! it does.

use std::time::Duration;

use fastrand::Rng;
use incumbent::lock::{
    CandidateInfo, CandidateRequest, Coverage, Hint, MemberLoad, Nonce, Pause, Successor,
    TakeRequest,
};
use incumbent::protocol::Event;
use proptest::prelude::*;

use crate::fleet::{Fleet, any_coverage};
use crate::moves;
use crate::process::{EPOCH_MS, millis};
use crate::scenario::STORM;
use crate::server::Time;
use crate::timeline;
use crate::world::{Inner, SimEvent, World};

/// What goes wrong.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The process dies, and another one starts later.
    Crash { who: usize, back_ms: u16 },
    /// The process of the leader dies; `writing`: when it has sent its next write.
    CrashLeader { back_ms: u16, writing: bool },
    /// The process of the next winner that waits before it leads dies; `stopping`: once it has
    /// begun to stop.
    CrashWinner { back_ms: u16, stopping: bool },
    /// The process is stopped, and continues later.
    Pause { who: usize, for_ms: u16 },
    /// The process is stopped, its clock too, and continues later.
    Freeze { who: usize, for_ms: u16 },
    /// What it sends, what it should receive, or both is lost.
    Cut { who: usize, out: bool, back: bool, for_ms: u16 },
    /// The machine sleeps, and its connections are dead when it wakes.
    Suspend { who: usize, for_ms: u16 },
    /// A graceful stop; a new process starts once it has finished.
    Stop { who: usize },
    /// A graceful stop of each in turn.
    RollingRestart { every_ms: u16 },
    /// A candidate resigns, if it leads.
    Resign { who: usize },
    /// Its work ends by itself, if it leads.
    WorkEnds { who: usize, panicked: bool },
    /// The server refuses it every write for this long, or for good.
    Denied { who: usize, for_ms: Option<u16> },
    /// From now on it receives hints so.
    HintCoverage { who: usize, coverage: Coverage },
    /// It is told to look at the entry.
    Look { who: usize },
    /// An administrator deletes the entry.
    AdminDelete,
    /// Another program writes over the entry.
    AdminPut,
    /// The bucket is deleted, and another program recreates it.
    Remade { after_ms: u16 },
    /// The server is down.
    Outage { for_ms: u16 },
    /// An operator changes the bucket's TTL to this many times what it was at first, and to no less
    /// than the leases of all processes that run.
    ChangeTtl { factor: u8 },
    /// The server's wall clock is stepped.
    ClockStep { by_ms: i16 },
    /// The server forgets its last writes, which it had acknowledged.
    Forget { writes: u8 },
    /// Another server takes over, which lacks the last writes.
    Failover { loses: u8, for_ms: u16 },
    /// The synchronous replica does not answer: writes are stored and visible, and not
    /// acknowledged.
    ReplicaAway { for_ms: u16 },
    /// An object store answers 429 or 503 for a while; or 409 to every write, without a competing
    /// one.
    Busy {
        status: u16,
        /// When to retry, if it states that.
        after_ms: Option<u16>,
        for_ms: u16,
    },
    /// The key is purged, which leaves no tombstone.
    Purge,
    /// The last release is stored once more, over whatever is there.
    ReplayRelease,
    /// The leader is evicted, as an operator does.
    Evict,
    /// The object is overwritten with unreadable content, until an administrator deletes it, or
    /// puts the last content back.
    Spoil { for_ms: u16, restored: bool },
    /// The object's content of this many writes before is put back, in the place of the last one or
    /// of none.
    SetBack { by: u8 },
    /// The process of a candidate that is not of this library dies.
    PeerCrash { which: usize },
    /// A candidate that is not of this library ends, after it has released what it holds.
    PeerStop { which: usize },
    /// A candidate that is not of this library is cut off.
    PeerCut { which: usize, for_ms: u16 },
    /// A sentinel is killed, and forgets everything; another one starts later.
    SentinelDown { who: usize, for_ms: u16 },
    /// It is stopped, and continues later.
    SentinelPause { who: usize, for_ms: u16 },
    /// What it sends and what it should receive is lost.
    SentinelCut { who: usize, for_ms: u16 },
    /// An operator wants the leader to hand over: to this one, or any.
    HandOver { to: Option<usize> },
    /// The leader's program wants it to.
    ProgramHandsOver,
    /// The check of a candidate fails for this long, or for good.
    Ill { who: usize, for_ms: Option<u16> },
    /// A process stands aside, or no longer does.
    StandAside { who: usize, aside: bool },
    /// An operator pauses the election, or ends a pause.
    PauseElection { for_ms: u16 },
    /// In the next move the leader or its successor crashes at this point.
    CrashInMove { step: MoveStep, successor: bool, back_ms: u16 },
    /// Somebody answers the next call of a candidate: that this one is ready, or one that nobody
    /// is.
    ForgedAnswer { of: usize },
    /// Somebody asks in the place of a candidate that is to be preferred, or of a member that leads
    /// less.
    ForgedRequest { priority: u8 },
}

impl Fault {
    /// Of which process it is a fault that lasts, whatever that process does.
    pub fn of_process(&self) -> Option<usize> {
        match *self {
            Self::Pause { who, .. }
            | Self::Cut { who, .. }
            | Self::Suspend { who, .. }
            | Self::Denied { who, .. }
            | Self::Ill { who, .. } => Some(who),
            _ => None,
        }
    }
}

/// A point of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveStep {
    /// The leader calls the roll.
    Calls,
    /// It has chosen a successor.
    Chooses,
    /// Its term has ended.
    Ends,
    /// It sends its release.
    Releases,
    /// The successor holds the entry.
    Succeeds,
}

/// What waits for a move.
#[derive(Debug, Default)]
pub(crate) struct PendingFaults {
    pub crash: Option<(MoveStep, bool, u16)>,
    pub forged: Option<usize>,
}

fn who() -> std::ops::Range<usize> {
    0..5
}

fn span() -> impl Strategy<Value = u16> + Clone {
    proptest::sample::select(vec![50u16, 300, 1000, 2500, 5000])
}

/// The faults of each fleet.
pub(super) fn any_fault(fleet: Fleet) -> BoxedStrategy<Fault> {
    let one = |fault: BoxedStrategy<Fault>| {
        prop_oneof![5 => common_fault(), 2 => admin_fault(), 1 => fault].boxed()
    };
    let peer = || {
        let crash = (0..2usize).prop_map(|which| Fault::PeerCrash { which });
        let cut = (0..2usize, span()).prop_map(|(which, for_ms)| Fault::PeerCut { which, for_ms });
        prop_oneof![crash, cut].boxed()
    };
    let remade = span().prop_map(|after_ms| Fault::Remade { after_ms });
    match fleet {
        Fleet::Plain => one(prop_oneof![1 => remade, 4 => common_fault()].boxed()),
        Fleet::Quorum => prop_oneof![9 => common_fault(), 1 => Just(Fault::Evict)].boxed(),
        Fleet::Mixed | Fleet::Short | Fleet::Judged => {
            one(prop_oneof![1 => Just(Fault::Evict), 9 => common_fault()].boxed())
        }
        Fleet::ChangedTtl => {
            let ttl = (1..=5u8).prop_map(|factor| Fault::ChangeTtl { factor });
            let cut = (who(), span()).prop_map(|(who, for_ms)| Fault::Cut {
                who,
                out: true,
                back: true,
                for_ms,
            });
            let deleted = Just(Fault::AdminDelete);
            prop_oneof![4 => common_fault(), 2 => cut, 2 => deleted, 1 => ttl].boxed()
        }
        Fleet::Choria => one(peer()),
        Fleet::ClientGo => {
            let stop = (0..2usize).prop_map(|which| Fault::PeerStop { which });
            let evict = Just(Fault::Evict);
            prop_oneof![5 => common_fault(), 1 => peer(), 1 => stop, 1 => evict].boxed()
        }
        Fleet::Objects => {
            let admin = || prop_oneof![2 => admin_fault(), 1 => Just(Fault::Evict)];
            prop_oneof![5 => common_fault(), 1 => admin(), 1 => busy(), 1 => set_back()].boxed()
        }
        Fleet::Vimeo => {
            let evict = Just(Fault::Evict);
            prop_oneof![10 => common_fault(), 2 => peer(), 1 => busy(), 1 => evict].boxed()
        }
        Fleet::ChoriaBackOff => prop_oneof![6 => common_fault(), 1 => peer()].boxed(),
        Fleet::Rows => one(span().prop_map(|ms| Fault::ClockStep { by_ms: -(ms as i16) }).boxed()),
        Fleet::SteppedClock | Fleet::SteppedRows => {
            let step =
                prop_oneof![span().prop_map(|ms| ms as i16), span().prop_map(|ms| -(ms as i16))];
            one(step.prop_map(|by_ms| Fault::ClockStep { by_ms }).boxed())
        }
        Fleet::Failover => {
            let failover = (0..4u8, span());
            one(failover.prop_map(|(loses, for_ms)| Fault::Failover { loses, for_ms }).boxed())
        }
        Fleet::Synchronous => {
            let away = span().prop_map(|for_ms| Fault::ReplicaAway { for_ms });
            let failover = span().prop_map(|for_ms| Fault::Failover { loses: 0, for_ms });
            one(prop_oneof![2 => away, 1 => failover, 1 => common_fault()].boxed())
        }
        Fleet::Tampered => {
            let tools = prop_oneof![Just(Fault::Purge), Just(Fault::ReplayRelease)];
            prop_oneof![3 => common_fault(), 1 => tools].boxed()
        }
        Fleet::Frozen | Fleet::Checkpoint => {
            let freeze =
                (0..5usize, span()).prop_map(|(who, for_ms)| Fault::Freeze { who, for_ms });
            prop_oneof![7 => common_fault(), 1 => freeze].boxed()
        }
        Fleet::Drains => {
            let stop = who().prop_map(|who| Fault::Stop { who });
            let resign = who().prop_map(|who| Fault::Resign { who });
            prop_oneof![4 => common_fault(), 1 => admin_fault(), 6 => stop, 6 => resign].boxed()
        }
        Fleet::Refused => {
            // The first candidate is the one whose writes are always accepted in the end.
            let for_good = (1..5usize).prop_map(|who| Fault::Denied { who, for_ms: None });
            let denied =
                (who(), span()).prop_map(|(who, ms)| Fault::Denied { who, for_ms: Some(ms) });
            let moved = move_fault();
            prop_oneof![4 => common_fault(), 2 => moved, 2 => denied, 1 => for_good].boxed()
        }
        Fleet::Moves | Fleet::Sets => prop_oneof![
            4 => common_fault(),
            1 => admin_fault(),
            8 => move_fault(),
        ]
        .boxed(),
        Fleet::Sentinel => {
            let crash = (span(), any::<bool>())
                .prop_map(|(back_ms, writing)| Fault::CrashLeader { back_ms, writing });
            let winner = (span(), any::<bool>())
                .prop_map(|(back_ms, stopping)| Fault::CrashWinner { back_ms, stopping });
            prop_oneof![
                5 => common_fault(),
                2 => admin_fault(),
                2 => sentinel(),
                3 => crash,
                1 => winner,
            ]
            .boxed()
        }
        Fleet::Forgetful => one((1..4u8).prop_map(|writes| Fault::Forget { writes }).boxed()),
    }
}

fn busy() -> impl Strategy<Value = Fault> {
    let after = prop::option::of(proptest::sample::select(vec![0u16, 200, 1000]));
    let status = prop_oneof![Just(429u16), Just(503u16), Just(409u16)];
    (status, after, span()).prop_map(|(status, after_ms, for_ms)| Fault::Busy {
        status,
        after_ms,
        for_ms,
    })
}

fn set_back() -> impl Strategy<Value = Fault> {
    let spoil = (span(), any::<bool>());
    prop_oneof![
        2 => (0..8u8).prop_map(|by| Fault::SetBack { by }),
        1 => spoil.prop_map(|(for_ms, restored)| Fault::Spoil { for_ms, restored }),
    ]
}

fn sentinel() -> impl Strategy<Value = Fault> {
    let who_for = || (who(), span());
    prop_oneof![
        who_for().prop_map(|(who, for_ms)| Fault::SentinelDown { who, for_ms }),
        who_for().prop_map(|(who, for_ms)| Fault::SentinelPause { who, for_ms }),
        who_for().prop_map(|(who, for_ms)| Fault::SentinelCut { who, for_ms }),
    ]
}

fn move_fault() -> impl Strategy<Value = Fault> {
    let step = proptest::sample::select(vec![
        MoveStep::Calls,
        MoveStep::Chooses,
        MoveStep::Ends,
        MoveStep::Releases,
        MoveStep::Succeeds,
    ]);
    let for_ms = prop_oneof![4 => span().prop_map(Some), 1 => Just(None)];
    // Zero ends a pause.
    let pause = proptest::sample::select(vec![0u16, 5000, 15_000, 30_000]);
    prop_oneof![
        6 => prop::option::of(who()).prop_map(|to| Fault::HandOver { to }),
        3 => Just(Fault::ProgramHandsOver),
        6 => (who(), for_ms).prop_map(|(who, for_ms)| Fault::Ill { who, for_ms }),
        2 => (who(), any::<bool>()).prop_map(|(who, aside)| Fault::StandAside { who, aside }),
        3 => pause.prop_map(|for_ms| Fault::PauseElection { for_ms }),
        4 => (step, any::<bool>(), span()).prop_map(|(step, successor, back_ms)| Fault::CrashInMove {
            step,
            successor,
            back_ms
        }),
        1 => (0..6usize).prop_map(|of| Fault::ForgedAnswer { of }),
        1 => (0..4u8).prop_map(|priority| Fault::ForgedRequest { priority }),
    ]
}

fn admin_fault() -> impl Strategy<Value = Fault> {
    prop_oneof![9 => Just(Fault::AdminDelete), 2 => Just(Fault::AdminPut)]
}

fn common_fault() -> impl Strategy<Value = Fault> {
    let who_for = || (who(), span());
    prop_oneof![
        8 => who_for().prop_map(|(who, back_ms)| Fault::Crash { who, back_ms }),
        8 => who_for().prop_map(|(who, for_ms)| Fault::Pause { who, for_ms }),
        12 => (who(), 0..3u8, span()).prop_map(|(who, way, for_ms)| Fault::Cut {
            who,
            out: way != 1,
            back: way != 2,
            for_ms
        }),
        2 => who_for().prop_map(|(who, for_ms)| Fault::Suspend { who, for_ms }),
        10 => who().prop_map(|who| Fault::Stop { who }),
        1 => span().prop_map(|every_ms| Fault::RollingRestart { every_ms }),
        6 => who().prop_map(|who| Fault::Resign { who }),
        2 => (who(), any::<bool>()).prop_map(|(who, panicked)| Fault::WorkEnds { who, panicked }),
        2 => who_for().prop_map(|(who, ms)| Fault::Denied { who, for_ms: Some(ms) }),
        2 => (who(), any_coverage()).prop_map(|(who, coverage)| Fault::HintCoverage { who, coverage }),
        2 => who().prop_map(|who| Fault::Look { who }),
        2 => span().prop_map(|for_ms| Fault::Outage { for_ms }),
    ]
}

/// For good if it is `None`.
fn lasting(for_ms: Option<u16>) -> Duration {
    for_ms.map_or(STORM * 100, millis)
}

/// Until when each fault of a process lasts.
#[derive(Debug, Default)]
pub struct ProcessFaults {
    pub paused_until: Time,
    pub cut_out_until: Time,
    pub cut_in_until: Time,
    /// Whether its client knows that it has no connection, while it is cut off.
    pub knows_cut: bool,
    pub denied_until: Time,
    /// Until when its check fails.
    pub ill_until: Time,
}

impl ProcessFaults {
    /// Has `fault` happen now, which is one of those.
    pub fn inflict(&mut self, now: Time, fault: &Fault, random: &mut Rng) {
        match *fault {
            Fault::Pause { for_ms, .. } => {
                self.paused_until = self.paused_until.max(now + millis(for_ms));
            }
            Fault::Cut { out, back, for_ms, .. } => {
                self.knows_cut = random.bool();
                let until = now + millis(for_ms);
                if out {
                    self.cut_out_until = self.cut_out_until.max(until);
                }
                if back {
                    self.cut_in_until = self.cut_in_until.max(until);
                }
            }
            Fault::Suspend { for_ms, .. } => {
                let reconnects = timeline::millis(random, 1..600);
                let wakes = now + millis(for_ms);
                self.paused_until = self.paused_until.max(wakes);
                self.cut_out_until = self.cut_out_until.max(wakes + reconnects);
                self.cut_in_until = self.cut_in_until.max(wakes + reconnects);
            }
            Fault::Denied { for_ms, .. } => {
                self.denied_until = self.denied_until.max(now + lasting(for_ms));
            }
            Fault::Ill { for_ms, .. } => {
                self.ill_until = self.ill_until.max(now + lasting(for_ms));
            }
            _ => {}
        }
    }

    /// All faults cease. A check that fails for good still does, as do writes that are denied so.
    pub fn cease(&mut self, now: Time) {
        self.paused_until = self.paused_until.min(now);
        self.cut_out_until = now;
        self.cut_in_until = now;
        for until in [&mut self.denied_until, &mut self.ill_until] {
            if *until < STORM * 10 {
                *until = now.min(*until);
            }
        }
    }

    pub fn is_paused(&self, now: Time) -> bool {
        now < self.paused_until
    }
}

impl World {
    /// Has `fault` happen now.
    pub fn inflict(&mut self, fault: &Fault) {
        let of_set = self.scenario.set.is_some();
        if self.time.calm && of_set {
            return; // the rest of a rolling restart
        }
        let now = self.time.now;
        // In which of the elections it happens.
        let elections = self.servers.len();
        let key = if of_set { self.time.random.usize(..elections) } else { 0 };
        if let Some(process) = fault.of_process() {
            if let Some(process) = self.processes.get_mut(process) {
                let random = self.process_random.as_mut().unwrap_or(&mut self.time.random);
                process.faults.inflict(now, fault, random);
            }
            return;
        }
        let fleet = self.processes.len();
        // The candidate of a process in that election.
        let of = |process: usize| process * elections + key;
        match *fault {
            Fault::Crash { who, back_ms } if who < fleet => {
                self.process_ends(who, true);
                self.processes[who].life += 1;
                self.time.after(millis(back_ms), SimEvent::Start { process: who });
            }
            Fault::CrashLeader { back_ms, writing } => match self.leader_of(key) {
                Some(who) if writing => {
                    let process = self.candidates[who].process;
                    self.processes[process].crashes_at_write = Some(back_ms);
                }
                Some(who) => {
                    let who = self.candidates[who].process;
                    self.inflict(&Fault::Crash { who, back_ms });
                }
                None => {}
            },
            Fault::CrashWinner { back_ms, stopping } => {
                self.winner_crashes = Some((back_ms, stopping));
            }
            Fault::Freeze { who, for_ms } if who < fleet => {
                let process = &mut self.processes[who];
                if !process.faults.is_paused(now) {
                    process.freeze(now, millis(for_ms));
                    for who in self.of_process(who) {
                        self.checker.set_on(who, now, millis(for_ms));
                    }
                    // It may believe for as long in a term that has been over for as long as it was
                    // paused.
                    let lasts = self.servers[key].bucket_ttl.mul_f64(1.01);
                    self.checker.excuse(now + millis(for_ms) + lasts);
                }
            }
            Fault::Stop { who } if who < fleet && self.is_up(who) => {
                self.processes[who].stopping_since.get_or_insert(now);
                self.of_process(who).for_each(|who| self.inside(who, Event::Stop));
            }
            Fault::RollingRestart { every_ms } => {
                for who in 0..fleet {
                    let stop = SimEvent::Fault(Fault::Stop { who });
                    self.time.after(millis(every_ms) * who as u32, stop);
                }
            }
            Fault::Resign { who } if who < fleet => self.inside(of(who), Event::Resign),
            Fault::WorkEnds { who, panicked } if who < fleet => {
                self.inside(of(who), Event::WorkEnded { panicked });
            }
            // The members of a set keep their hints.
            Fault::HintCoverage { who, coverage } if who < fleet && !of_set => {
                self.candidates[who].setup.coverage = coverage;
                self.inside(who, Event::Hint(Hint::Coverage(coverage)));
            }
            Fault::Look { who } if who < fleet => {
                self.inside(of(who), Event::Hint(Hint::Recheck));
            }
            Fault::AdminDelete if self.store.is_some() => self.object_is_deleted(),
            Fault::AdminDelete => self.admin_deletes(key),
            Fault::AdminPut if self.store.is_some() => {
                let numbered = self.time.random.bool();
                self.object_is_overwritten(numbered);
            }
            Fault::AdminPut => self.stores_plainly(key, "junk"),
            Fault::Remade { after_ms } => {
                self.servers[key].remake(now + millis(after_ms));
                self.time.after(millis(after_ms), SimEvent::Remade);
            }
            Fault::Outage { for_ms } => {
                self.servers.iter_mut().for_each(|it| it.down_until = now + millis(for_ms));
            }
            Fault::ChangeTtl { factor } => {
                let running = self.candidates.iter().filter(|it| it.machine.is_some());
                let leases = running.map(|candidate| candidate.timing.lease()).max();
                let ttl = self.scenario.bucket_ttl * u32::from(factor);
                self.servers[key].change_ttl(ttl.max(leases.unwrap_or_default()));
                self.expiry_changed(key);
            }
            Fault::ClockStep { by_ms } => {
                self.servers[key].step_clock(by_ms);
                self.time.after(Duration::ZERO, SimEvent::Expire { key });
                self.expiry_changed(key);
            }
            Fault::Forget { writes } => {
                self.servers[key].forget(usize::from(writes));
                self.expiry_changed(key);
            }
            Fault::Failover { loses, for_ms } => {
                let server = &mut self.servers[key];
                server.fail_over(now, usize::from(loses));
                if server.synchronous {
                    // Their clocks differ.
                    server.step_clock(self.time.random.i16(-5000..5000));
                }
                server.down_until = now + millis(for_ms);
            }
            Fault::ReplicaAway { for_ms } => {
                self.servers[key].lose_replica(now, now + millis(for_ms));
            }
            Fault::Purge => self.purge(),
            Fault::ReplayRelease => self.replay_release(),
            Fault::Busy { status, after_ms, for_ms } => {
                self.store_is_busy(status, after_ms.map(millis), millis(for_ms));
            }
            Fault::Evict if self.store.is_some() => self.object_is_evicted(),
            Fault::Evict if self.scenario.quorum.is_some() => self.quorum_evicts(),
            Fault::Evict => self.operator_evicts(key),
            Fault::Spoil { for_ms, restored } => self.object_is_spoiled(millis(for_ms), restored),
            Fault::SetBack { by } => self.object_is_set_back(by),
            Fault::PeerCut { which, for_ms } => {
                if let Some(peer) = self.peers.get_mut(which) {
                    peer.cut_until = now + millis(for_ms);
                }
            }
            Fault::PeerCrash { which } => self.crash_peer(which),
            Fault::PeerStop { which } => self.stop_peer(which),
            Fault::SentinelDown { who, for_ms } => self.sentinel_is_killed(who, millis(for_ms)),
            Fault::SentinelPause { who, for_ms } => {
                if let Some(sentinel) = self.sentinels.get_mut(who) {
                    sentinel.paused_until = now + millis(for_ms);
                }
            }
            Fault::SentinelCut { who, for_ms } => {
                if let Some(sentinel) = self.sentinels.get_mut(who) {
                    sentinel.cut_until = now + millis(for_ms);
                }
            }
            _ => self.inflict_on_moves(fault, key),
        }
    }

    fn inflict_on_moves(&mut self, fault: &Fault, key: usize) {
        let fleet = self.processes.len();
        match *fault {
            Fault::HandOver { to } => {
                let to = to.filter(|to| *to < fleet).map(|to| self.of_process(to).start + key);
                let to = to.map_or(Successor::Any, |to| Successor::Identity(self.name(to).into()));
                self.others_call(key, CandidateRequest::HandOver(to));
            }
            Fault::ProgramHandsOver => {
                if let Some(who) = self.leader_of(key) {
                    self.later(who, Duration::ZERO, Inner::Moves(moves::Step::HandOver));
                }
            }
            Fault::StandAside { who, aside } if who < fleet => {
                let (first, step) = (self.of_process(who).start, moves::Step::StandAside(aside));
                self.later(first, Duration::ZERO, Inner::Moves(step));
            }
            Fault::PauseElection { for_ms } => {
                // As an operator's wall clock shows.
                let ends = self.time.now + millis(for_ms);
                let pause = Pause { until_unix_ms: EPOCH_MS + ends.as_millis() as u64 };
                for key in 0..self.servers.len() {
                    self.others_call(key, CandidateRequest::Pause(pause));
                }
            }
            Fault::CrashInMove { step, successor, back_ms } => {
                self.pending_faults.crash = Some((step, successor, back_ms));
            }
            Fault::ForgedAnswer { of } => self.pending_faults.forged = Some(of),
            Fault::ForgedRequest { priority } => {
                let by = Nonce(self.time.random.u64(..));
                let request = match &self.scenario.set {
                    Some(set) => {
                        let load = MemberLoad::new(set.shards, 1);
                        CandidateRequest::Take(TakeRequest { by, identity: "m0".into(), load })
                    }
                    None => CandidateRequest::Prefer { by, priority },
                };
                self.others_call(key, request);
            }
            _ => {}
        }
    }

    /// All faults cease.
    pub(super) fn calm_down(&mut self) {
        self.time.calm = true;
        self.winner_crashes = None;
        let now = self.time.now;
        for process in 0..self.processes.len() {
            let not_frozen = self.processes[process].recover(now);
            for who in self.of_process(process) {
                self.checker.set_back(who, now, not_frozen);
            }
        }
        if self.scenario.set.is_none() {
            (0..self.candidates.len()).for_each(|who| self.end_drain(who));
        }
        self.peers.iter_mut().for_each(|it| it.cut_until = now);
        self.sentinels.iter_mut().for_each(|it| it.recover(now));
        self.pending_faults = PendingFaults::default();
        self.store_recovers();
        self.servers.iter_mut().for_each(|it| it.recover(now));
    }

    pub(crate) fn forged_answers(&mut self, request: &CandidateRequest) -> Vec<CandidateInfo> {
        if *request != CandidateRequest::Identify {
            return Vec::new();
        }
        let Some(of) = self.pending_faults.forged.take() else { return Vec::new() };
        let mut info = match self.candidates.get(of) {
            Some(candidate) => CandidateInfo::new(self.name(of), candidate.nonce()),
            None => CandidateInfo::new("nobody", Nonce(self.time.random.u64(..))),
        };
        info.priority = u8::MAX;
        vec![info]
    }

    /// A move of the candidate `who` comes to this point: a fault may wait for it there.
    pub(crate) fn move_comes_to(&mut self, at: MoveStep, who: usize, to: Option<Nonce>) {
        let Some((step, of_successor, back_ms)) = self.pending_faults.crash else { return };
        let who = if of_successor { to.and_then(|to| self.of_nonce(to)) } else { Some(who) };
        if let Some(who) = who.filter(|_| step == at) {
            self.pending_faults.crash = None;
            let crash = Fault::Crash { who: self.candidates[who].process, back_ms };
            self.time.after(Duration::ZERO, SimEvent::Fault(crash));
        }
    }
}
