//! What befalls the simulated processes and their network.

use std::time::Duration;

use incumbent::peer::quorum::{Operation, VoterEvent};
use incumbent::protocol::Event;

use super::process::Process;
use super::{Due, EVICTION, LEASE, NAME, World};

impl World {
    pub fn fault(&mut self) {
        let index = self.time.random.usize(..self.processes.len());
        match self.time.random.u8(0..if self.named { 18 } else { 13 }) {
            13.. => self.namesake(),
            12 => {
                // The leader is cut off, and all others forget.
                let at = self.time.now;
                let leader = self.processes.iter().position(|process| process.leads(at));
                let alone = |index| u8::from(Some(index) == leader);
                self.sides = (0..self.sides.len()).map(alone).collect();
                let others = (0..self.processes.len()).filter(|index| Some(*index) != leader);
                others.for_each(|index| self.crash(index));
            }
            0..=2 => self.crash(index),
            3 if self.wipes => (0..self.processes.len()).for_each(|index| self.crash(index)),
            4 | 5 => {
                let pause = Duration::from_millis(self.time.random.u64(50..3_000));
                self.processes[index].paused_until = self.time.now + pause;
            }
            6 | 7 => {
                let sides = self.sides.len();
                self.sides = (0..sides).map(|_| self.time.random.u8(0..2)).collect();
            }
            8 | 9 => self.sides.fill(0),
            10 => {
                let now = self.processes[index].clock.local(self.time.now);
                let process = &mut self.processes[index];
                if process.up && process.paused_until <= self.time.now {
                    process.campaign.handle(now, Event::Resign);
                    self.settle(index);
                }
            }
            _ => {
                let process = &mut self.processes[index];
                if process.up && process.paused_until <= self.time.now {
                    let now = process.clock.local(self.time.now);
                    let evict = VoterEvent::Propose {
                        ticket: EVICTION,
                        name: NAME.into(),
                        operation: Operation::Read,
                        timeout: LEASE,
                    };
                    process.voter.handle(now, evict);
                    self.settle(index);
                }
            }
        }
        let next = self.time.now + Duration::from_millis(self.time.random.u64(100..1_500));
        self.time.at(next, Due::Fault);
    }

    /// No more faults; replaced members have ended.
    pub fn calm_down(&mut self) {
        self.time.calm = true;
        self.sides.fill(0);
        (self.lost, self.doubled) = (0, 0);
        self.late = self.late.min(LEASE / 40); // a quarter of the lease is longer than a round trip, by far
        for index in 0..self.processes.len() {
            self.processes[index].paused_until = self.time.now;
            self.processes[index].up &= !self.processes[index].replaced;
        }
    }

    /// Its memory is lost. It comes back a little later.
    fn crash(&mut self, index: usize) {
        if std::mem::take(&mut self.processes[index].up) && !self.processes[index].replaced {
            let back = self.time.now + Duration::from_millis(self.time.random.u64(1..1_500));
            self.time.at(back, Due::Restart(index));
        }
    }

    /// A replacement of a voter that still runs, in its partition or in another one. Fewer than a
    /// majority run on that were replaced.
    fn namesake(&mut self) {
        let run_on = self.processes.iter().filter(|process| process.up && process.replaced).count();
        let most = (self.size - 1) / 2;
        let index = self.time.random.usize(..self.processes.len());
        let Process { up, replaced, seat, .. } = self.processes[index];
        let spare = self.processes.iter().position(|process| !process.up && process.replaced);
        if let Some(spare) = spare
            && up
            && !replaced
            && run_on < most
        {
            self.tally.namesakes += 1;
            self.processes[index].replaced = true;
            self.replace(spare, seat);
            self.sides[spare] = self.time.random.u8(0..2);
        }
    }
}
