//! What goes wrong in the world.

use std::time::Duration;

use incumbent::lock::{CandidateRequest, Hint, MemberLoad, Nonce, Pause, Successor, TakeRequest};
use incumbent::protocol::Event;

use crate::event::{Inner, SimEvent};
use crate::moves::{self, MoveFault, PendingFaults};
use crate::process::{EPOCH_MS, millis};
use crate::scenario::Fault;
use crate::world::World;

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
            Fault::Move(ref fault) => self.inflict_on_moves(fault, key),
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
            _ => {}
        }
    }

    fn inflict_on_moves(&mut self, fault: &MoveFault, key: usize) {
        let fleet = self.processes.len();
        match *fault {
            MoveFault::HandOver { to } => {
                let to = to.filter(|to| *to < fleet).map(|to| self.of_process(to).start + key);
                let to = to.map_or(Successor::Any, |to| Successor::Identity(self.name(to).into()));
                self.others_call(key, CandidateRequest::HandOver(to));
            }
            MoveFault::ProgramHandsOver => {
                if let Some(who) = self.leader_of(key) {
                    self.later(who, Duration::ZERO, Inner::Moves(moves::Step::HandOver));
                }
            }
            MoveFault::StandAside { who, aside } if who < fleet => {
                let (first, step) = (self.of_process(who).start, moves::Step::StandAside(aside));
                self.later(first, Duration::ZERO, Inner::Moves(step));
            }
            MoveFault::Pause { for_ms } => {
                // As an operator's wall clock shows.
                let ends = self.time.now + millis(for_ms);
                let pause = Pause { until_unix_ms: EPOCH_MS + ends.as_millis() as u64 };
                for key in 0..self.servers.len() {
                    self.others_call(key, CandidateRequest::Pause(pause));
                }
            }
            MoveFault::Crash { step, successor, back_ms } => {
                self.pending_faults.crash = Some((step, successor, back_ms));
            }
            MoveFault::ForgedAnswer { of } => self.pending_faults.forged = Some(of),
            MoveFault::ForgedRequest { priority } => {
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
            MoveFault::Ill { .. } | MoveFault::StandAside { .. } => {}
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
}
