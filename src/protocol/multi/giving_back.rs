//! Giving back what is held: the last lock first, each only when the one after it is free.

use super::MultiElector;
use super::Phase;
use crate::protocol::types::{Action, Event};
use crate::time::clock::Instant;

impl MultiElector {
    pub(super) fn proceed_giving_back(&mut self, now: Instant) {
        let Phase::GivingBack { leave, work_stopped } = &self.phase else { return };
        let (leave, work_stopped) = (leave.clone(), *work_stopped);
        // What is lost is not given back but conceded, and nobody waits for that in vain.
        for part in &mut self.parts {
            if std::mem::take(&mut part.lost) && part.ended.take().is_some() {
                part.campaign.handle(now, Event::TermEnded { work_stopped });
            }
            part.campaign.set_eligible(now, false, std::time::Duration::ZERO);
        }
        for index in (0..self.parts.len()).rev() {
            let stopping = self.stopping;
            let part = &mut self.parts[index];
            if stopping {
                part.campaign.handle(now, Event::Stop);
            } else if part.campaign.holds() {
                part.campaign.handle(now, leave.clone());
            }
            self.collect(now);
            let part = &mut self.parts[index];
            if part.ended.take().is_some() {
                part.campaign.handle(now, Event::TermEnded { work_stopped });
                self.collect(now);
            }
            let part = &self.parts[index];
            if part.campaign.is_stepping_down() || part.campaign.holds() {
                return;
            }
            if stopping && !part.campaign.is_finished() {
                return;
            }
        }
        if self.stopping {
            self.phase = Phase::Finished;
            self.act(self.first, Action::Finished);
        } else {
            self.phase = Phase::Gathering { yield_at: None };
        }
    }
}
