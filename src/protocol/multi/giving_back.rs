//! Giving back what is held: the last lock first, each only when the one after it is free.

use super::MultiElector;
use super::Phase;
use super::events::leave_of;
use crate::protocol::types::{Action, Event};
use crate::time::clock::Instant;

impl MultiElector {
    pub(super) fn advance_giving_back(&mut self, now: Instant) {
        let Phase::GivingBack { leave, work_stopped } = &self.phase else { return };
        let (leave, work_stopped) = (leave.clone(), *work_stopped);
        // What is lost is not given back; its step-down is notified, and no candidate waits for
        // that in vain.
        for member in &mut self.members {
            if std::mem::take(&mut member.lost) && member.ended.take().is_some() {
                member.elector.handle(now, Event::TermEnded { work_stopped });
            }
            member.elector.set_eligible(now, false, std::time::Duration::ZERO);
        }
        for index in (0..self.members.len()).rev() {
            let stopping = self.stopping;
            let member = &mut self.members[index];
            if stopping {
                member.elector.handle(now, Event::Stop);
            } else if member.elector.holds() {
                member.elector.handle(now, leave_of(index == self.first, &leave));
            }
            self.collect(now);
            let member = &mut self.members[index];
            if member.ended.take().is_some() {
                member.elector.handle(now, Event::TermEnded { work_stopped });
                self.collect(now);
            }
            let member = &self.members[index];
            if member.elector.is_stepping_down() || member.elector.holds() {
                return;
            }
            if stopping && !member.elector.is_finished() {
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
