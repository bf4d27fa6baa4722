//! What an elector on one of several locks shows the others, and how it is held back.

use std::time::Duration;

use super::{Elector, Phase};
use crate::lock::Token;
use crate::protocol::types::{Event, Leader, LockFailure};
use crate::time::clock::Instant;

impl Elector {
    /// Has it only watch, before it begins.
    pub(in crate::protocol) fn begin_ineligible(&mut self) {
        self.cx.settings.eligible = false;
    }

    /// Has it take part from now on, or only watch. One that comes to take part reads first, within
    /// `spread`, as what it knows may be old. One that holds the entry, or whose create is in
    /// flight, is not touched.
    pub(in crate::protocol) fn set_eligible(
        &mut self,
        now: Instant,
        eligible: bool,
        spread: Duration,
    ) {
        if self.cx.settings.eligible == eligible {
            return;
        }
        self.cx.settings.eligible = eligible;
        let at = now + spread.mul_f64(self.cx.random.f64());
        if let Phase::Standby(standby) = &mut self.phase
            && eligible
        {
            standby.becomes_eligible(at);
        }
        self.handle(now, Event::Wake);
    }

    /// Whether it holds the entry, cooling down or leading.
    pub(in crate::protocol) fn holds(&self) -> bool {
        matches!(self.phase, Phase::Holding(_))
    }

    /// The token and the deadline, while it leads.
    pub(in crate::protocol) fn term(&self) -> Option<(Token, Instant)> {
        match &self.phase {
            Phase::Holding(holding) => holding.term(),
            _ => None,
        }
    }

    pub(in crate::protocol) fn is_stepping_down(&self) -> bool {
        matches!(self.phase, Phase::SteppingDown(_))
    }

    pub(in crate::protocol) fn has_heard(&self) -> bool {
        self.cx.heard_from_lock
    }

    pub(in crate::protocol) fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished)
    }

    /// Another candidate that holds the entry, as far as is known.
    pub(in crate::protocol) fn other_holder(&self, now: Instant) -> Option<&Leader> {
        self.cx.other_holder(now)
    }

    /// When what was last seen of other holders entitles them to nothing any more.
    pub(in crate::protocol) fn others_end(&self) -> Instant {
        self.cx.observed.seen_leases_end()
    }

    /// What keeps it from acquiring the entry that another try soon will not fix.
    pub(in crate::protocol) fn refusal(&self) -> Option<&LockFailure> {
        self.cx.refusal()
    }
}
