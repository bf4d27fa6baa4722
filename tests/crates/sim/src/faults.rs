//! What goes wrong in the world, and what go-choria's candidates do in it.

use std::time::Duration;

use incumbent::lock::{Content, Hint};
use incumbent::protocol::Event;

use crate::Time;
use crate::choria::{HANG, Pace, SETTLE, Step};
use crate::clientgo;
use crate::event::SimEvent;
use crate::moves::PendingFaults;
use crate::objects;
use crate::process_faults::millis;
use crate::scenario::Fault;
use crate::world::World;

impl World {
    /// Has `fault` happen now.
    pub fn inflict(&mut self, fault: &Fault) {
        let fleet = self.candidates.len();
        let now = self.now;
        if let Some(who) = fault.of_process() {
            if let Some(candidate) = self.candidates.get_mut(who) {
                let random = self.process_random.as_mut().unwrap_or(&mut self.random);
                candidate.faults.inflict(now, fault, random);
            }
            return;
        }
        match *fault {
            Fault::Crash { who, back_ms } if who < fleet => {
                self.process_ends(who, true);
                self.candidates[who].life += 1;
                self.after(millis(back_ms), SimEvent::Start { who });
            }
            Fault::CrashLeader { back_ms, writing } => {
                match (0..fleet).find(|who| self.checker.is_leading(*who)) {
                    Some(who) if writing => self.candidates[who].crashes_at_write = Some(back_ms),
                    Some(who) => self.inflict(&Fault::Crash { who, back_ms }),
                    None => {}
                }
            }
            Fault::CrashWinner { back_ms, stopping } => {
                self.winner_crashes = Some((back_ms, stopping));
            }
            Fault::Freeze { who, for_ms } if who < fleet => {
                let candidate = &mut self.candidates[who];
                if !candidate.faults.is_paused(now) {
                    candidate.freeze(now, millis(for_ms));
                    self.checker.set_on(who, now, millis(for_ms));
                    // It may believe for as long in a term that has been over for as long as it was
                    // paused.
                    let lasts = self.server.bucket_ttl.mul_f64(1.01);
                    self.checker.excuse(now + millis(for_ms) + lasts);
                }
            }
            Fault::Stop { who } if who < fleet && self.candidates[who].machine.is_some() => {
                self.candidates[who].stopping_since.get_or_insert(now);
                self.inside(who, Event::Stop);
            }
            Fault::RollingRestart { every_ms } => {
                for who in 0..fleet {
                    self.after(millis(every_ms) * who as u32, SimEvent::Fault(Fault::Stop { who }));
                }
            }
            Fault::Resign { who } if who < fleet => self.inside(who, Event::Resign),
            Fault::WorkEnds { who, panicked } if who < fleet => {
                self.inside(who, Event::WorkEnded { panicked });
            }
            Fault::HintCoverage { who, coverage } if who < fleet => {
                self.candidates[who].setup.coverage = coverage;
                self.inside(who, Event::Hint(Hint::Coverage(coverage)));
            }
            Fault::Look { who } if who < fleet => self.inside(who, Event::Hint(Hint::Recheck)),
            Fault::AdminDelete if self.store.is_some() => self.object_is_deleted(),
            Fault::AdminDelete => self.admin_deletes(),
            Fault::AdminPut if self.store.is_some() => {
                let numbered = self.random.bool();
                self.object_is_overwritten(numbered);
            }
            Fault::AdminPut => {
                let junk = self.plain_entry("junk");
                self.admin_stores(junk);
            }
            Fault::Remade { after_ms } => {
                self.server.remake(now + millis(after_ms));
                self.after(millis(after_ms), SimEvent::Remade);
            }
            Fault::Outage { for_ms } => self.server.down_until = now + millis(for_ms),
            Fault::ChangeTtl { factor } => {
                let running = self.candidates.iter().filter(|it| it.machine.is_some());
                let leases = running.map(|candidate| candidate.timing.lease()).max();
                let ttl = self.scenario.bucket_ttl * u32::from(factor);
                self.server.change_ttl(ttl.max(leases.unwrap_or_default()));
                if let Some(last) = &self.server.last {
                    let left = last.expires.saturating_sub(now);
                    self.after(left, SimEvent::Expire);
                }
            }
            Fault::ClockStep { by_ms } => {
                self.server.step_clock(by_ms);
                self.after(Duration::ZERO, SimEvent::Expire);
                if let Some(last) = &self.server.last {
                    let left = last.expires.saturating_sub(now);
                    self.after(left, SimEvent::Expire);
                }
            }
            Fault::Forget { writes } => {
                self.server.forget(usize::from(writes));
                if let Some(last) = &self.server.last {
                    let left = last.expires.saturating_sub(now);
                    self.after(left, SimEvent::Expire);
                }
            }
            Fault::Failover { loses, for_ms } => {
                self.server.fail_over(now, usize::from(loses));
                if self.server.synchronous {
                    // Their clocks differ.
                    let by_ms = self.random.i16(-5000..5000);
                    self.server.step_clock(by_ms);
                }
                self.server.down_until = now + millis(for_ms);
            }
            Fault::ReplicaAway { for_ms } => self.server.lose_replica(now, now + millis(for_ms)),
            Fault::Purge => self.purge(),
            Fault::ReplayRelease => self.replay_release(),
            Fault::Busy { status, after_ms, for_ms } => {
                self.store_is_busy(status, after_ms.map(millis), millis(for_ms));
            }
            Fault::Evict if self.store.is_some() => self.object_is_evicted(),
            Fault::Evict => self.operator_evicts(),
            Fault::Spoil { for_ms, restored } => self.object_is_spoiled(millis(for_ms), restored),
            Fault::SetBack { by } => self.object_is_set_back(by),
            Fault::PeerCut { which, for_ms } => {
                if let Some(until) = self.cut_until(which) {
                    *until = now + millis(for_ms);
                }
            }
            Fault::PeerCrash { which } => {
                if let Some(again) = self.crash_peer(which) {
                    self.checker.peer(which, false, now);
                    self.after(millis(500), again);
                }
            }
            Fault::PeerStop { which } if which < self.client_gos.len() => {
                self.go_stops(which);
                self.inflict(&Fault::PeerCrash { which });
            }
            Fault::Move(ref fault) => self.inflict_on_moves(fault),
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

    /// Of whichever kind there are. Answers how the next process of it begins.
    fn crash_peer(&mut self, which: usize) -> Option<SimEvent> {
        if let Some(vimeo) = self.vimeos.get_mut(which) {
            vimeo.crash();
            let step = objects::Step::Look;
            return Some(SimEvent::Vimeo { which, life: vimeo.life, step });
        }
        if let Some(choria) = self.chorias.get_mut(which) {
            choria.crash();
            return Some(SimEvent::Choria { which, life: choria.life, step: Step::Tick });
        }
        let go = self.client_gos.get_mut(which)?;
        go.crash();
        Some(SimEvent::ClientGo { which, life: go.life, step: clientgo::Step::Try })
    }

    /// Until when a peer is cut off, of whichever kind there are.
    fn cut_until(&mut self, which: usize) -> Option<&mut Time> {
        let vimeo = self.vimeos.get_mut(which).map(|vimeo| &mut vimeo.cut_until);
        let choria = self.chorias.get_mut(which).map(|choria| &mut choria.cut_until);
        let go = self.client_gos.get_mut(which).map(|go| &mut go.cut_until);
        vimeo.or(choria).or(go)
    }

    /// An event within the process itself.
    pub(super) fn inside(&mut self, who: usize, event: Event) {
        let life = self.candidates[who].life;
        self.after(Duration::ZERO, SimEvent::Inside { who, life, event });
    }

    /// All faults cease.
    pub(super) fn calm_down(&mut self) {
        self.calm = true;
        self.winner_crashes = None;
        for (who, candidate) in self.candidates.iter_mut().enumerate() {
            let not_frozen = candidate.recover(self.now);
            self.checker.set_back(who, self.now, not_frozen);
            candidate.crashes_at_write = None;
        }
        for who in 0..self.candidates.len() {
            self.end_drain(who);
        }
        for choria in &mut self.chorias {
            choria.cut_until = self.now;
        }
        for go in &mut self.client_gos {
            go.cut_until = self.now;
        }
        for go in &mut self.vimeos {
            go.cut_until = self.now;
        }
        for sentinel in &mut self.sentinels {
            sentinel.recover(self.now);
        }
        self.pending_faults = PendingFaults::default();
        self.store_recovers();
        self.server.recover(self.now);
    }

    /// Its ticker runs on while a request hangs, and its back-off begins with the answer.
    fn next_campaign(&mut self, which: usize) {
        let Some(pace) = self.scenario.chorias else { return };
        let (choria, ttl) = (&self.chorias[which], self.server.bucket_ttl);
        let life = choria.life;
        let from = if pace == Pace::Interval { choria.ticked } else { self.now };
        let at = from + choria.interval(pace, ttl, &mut self.random);
        self.after(at.saturating_sub(self.now), SimEvent::Choria { which, life, step: Step::Tick });
    }

    pub(super) fn step_choria(&mut self, which: usize, life: u32, step: Step) {
        if self.chorias[which].life != life {
            return;
        }
        let cut = self.now < self.chorias[which].cut_until;
        let again = |step| SimEvent::Choria { which, life, step };
        match step {
            Step::Tick => {
                self.chorias[which].ticked = self.now;
                let held = self.chorias[which].revision;
                let vacant = self
                    .server
                    .last
                    .as_ref()
                    .is_none_or(|last| matches!(last.record.content, Content::Vacant(_)));
                if held.is_none() && !vacant {
                    // Refused, as a create is.
                    return self.next_campaign(which);
                }
                let choria = &mut self.chorias[which];
                choria.campaigns += 1;
                let campaign = choria.campaigns;
                choria.unanswered.push(campaign);
                let expected = held.or(self.server.last_revision());
                if let Some(after) = self.passage(0.05).filter(|_| !cut) {
                    self.after(after, again(Step::Arrive { campaign, expected }));
                }
                self.after(HANG, again(Step::Answer { campaign, answer: None }));
            }
            Step::Arrive { campaign, expected } => {
                if !self.server.is_up(self.now) {
                    return;
                }
                let applied = self.server.last_revision() == expected;
                if applied {
                    let (entry, life) = (self.plain_entry("choria"), self.server.bucket_ttl);
                    self.server.store(self.now, entry, life);
                    self.log(|| format!("server: of choria {which} over {expected:?}"));
                    self.stored();
                }
                let answer = self.server.last_revision().filter(|_| applied);
                if let Some(after) = self.passage(0.08) {
                    self.after(after, again(Step::Answer { campaign, answer }));
                }
            }
            Step::Answer { campaign, answer } => {
                let choria = &mut self.chorias[which];
                let known = choria.unanswered.iter().position(|open| *open == campaign);
                let Some(known) = known.filter(|_| !(cut && answer.is_some())) else { return };
                choria.unanswered.remove(known);
                if choria.answer(answer) {
                    self.after(SETTLE, again(Step::Win));
                }
                if !self.chorias[which].won {
                    self.checker.peer(which, false, self.now);
                }
                self.next_campaign(which);
            }
            Step::Win => {
                if self.chorias[which].revision.is_some() && !self.chorias[which].won {
                    self.chorias[which].won = true;
                    self.log(|| format!("choria {which} LEADS"));
                    self.checker.peer(which, true, self.now);
                }
            }
        }
    }
}
