//! What goes wrong around a set.

use std::time::Duration;

use incumbent::lock::Hint;
use incumbent::lock::{CandidateRequest, MemberLoad, Nonce, Pause, Successor, TakeRequest};
use incumbent::protocol::Event;

use super::moves::{PendingFaults, Step};
use super::world::{Inner, SetEvent, SetWorld};
use crate::moves::{EPOCH_MS, MoveFault};
use crate::process_faults::millis;
use crate::scenario::Fault;

impl SetWorld {
    pub(super) fn inflict(&mut self, fault: &Fault) {
        if self.calm {
            return; // the rest of a rolling restart
        }
        let now = self.now;
        let fleet = self.members.len();
        let shard = self.random.u32(..self.set.shards);
        if let Some(who) = fault.of_process() {
            if let Some(member) = self.members.get_mut(who) {
                member.faults.inflict(now, fault, &mut self.random);
            }
            return;
        }
        match *fault {
            Fault::Crash { who, back_ms } if who < fleet => {
                self.process_ends(who);
                self.after(millis(back_ms), SetEvent::Start { who });
            }
            Fault::Stop { who } if who < fleet => self.stop(who),
            Fault::RollingRestart { every_ms } => {
                for who in 0..fleet {
                    let fault = Fault::Stop { who };
                    self.after(millis(every_ms) * who as u32, SetEvent::Fault(fault));
                }
            }
            Fault::Resign { who } if who < fleet => self.own(who, shard, Event::Resign),
            Fault::WorkEnds { who, panicked } if who < fleet => {
                self.own(who, shard, Event::WorkEnded { panicked });
            }
            Fault::Look { who } if who < fleet => {
                self.own(who, shard, Event::Hint(Hint::Recheck));
            }
            Fault::AdminDelete => self.admin_deletes(shard),
            Fault::AdminPut => self.admin_stores(shard),
            Fault::Outage { for_ms } => {
                for server in &mut self.servers {
                    server.down_until = now + millis(for_ms);
                }
            }
            Fault::Move(ref fault) => self.inflict_on_moves(fault, shard),
            _ => {}
        }
    }

    fn inflict_on_moves(&mut self, fault: &MoveFault, shard: u32) {
        let fleet = self.members.len();
        match *fault {
            MoveFault::HandOver { to } => {
                let to = to.filter(|to| *to < fleet).and_then(|to| self.members[to].up.as_deref());
                let to = to.map_or(Successor::Any, |up| Successor::Identity(up.identity.clone()));
                self.others_call(shard, CandidateRequest::HandOver(to));
            }
            MoveFault::StandAside { who, aside } if who < fleet => {
                self.later(Duration::ZERO, who, Inner::Step(Step::StandAside(aside)));
            }
            MoveFault::Pause { for_ms } => {
                let now_ms = EPOCH_MS + self.now.as_millis() as u64;
                let pause = Pause { until_unix_ms: now_ms + u64::from(for_ms) };
                for shard in 0..self.set.shards {
                    self.others_call(shard, CandidateRequest::Pause(pause));
                }
            }
            MoveFault::Crash { step, successor, back_ms } => {
                self.pending_faults.crash = Some((step, successor, back_ms));
            }
            MoveFault::ForgedRequest { .. } => {
                let by = Nonce(self.random.u64(..));
                let load = MemberLoad::new(self.set.shards, 1);
                let request = TakeRequest { by, identity: "m0".into(), load };
                self.others_call(shard, CandidateRequest::Take(request));
            }
            _ => {}
        }
    }

    fn stop(&mut self, who: usize) {
        let Some(up) = self.members[who].up.as_deref_mut() else { return };
        if std::mem::replace(&mut up.stopping, true) {
            return;
        }
        for shard in 0..self.set.shards {
            self.own(who, shard, Event::Stop);
        }
    }

    /// All faults cease.
    pub(super) fn calm_down(&mut self) {
        self.calm = true;
        self.pending_faults = PendingFaults::default();
        let now = self.now;
        for member in &mut self.members {
            member.faults.cease(now);
        }
        for server in &mut self.servers {
            server.recover(now);
        }
    }
}
