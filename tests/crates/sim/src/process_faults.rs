//! What goes wrong with one process and its connection.

use std::time::Duration;

use fastrand::Rng;

use crate::moves::MoveFault;
use crate::network;
use crate::scenario::{Fault, STORM};
use crate::server::Time;

pub(super) fn millis(ms: u16) -> Duration {
    Duration::from_millis(u64::from(ms))
}

/// For good if it is `None`.
fn span(for_ms: Option<u16>) -> Duration {
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
                let reconnects = network::millis(random, 1..600);
                let wakes = now + millis(for_ms);
                self.paused_until = self.paused_until.max(wakes);
                self.cut_out_until = self.cut_out_until.max(wakes + reconnects);
                self.cut_in_until = self.cut_in_until.max(wakes + reconnects);
            }
            Fault::Denied { for_ms, .. } => {
                self.denied_until = self.denied_until.max(now + span(for_ms));
            }
            Fault::Move(MoveFault::Ill { for_ms, .. }) => {
                self.ill_until = self.ill_until.max(now + span(for_ms));
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
