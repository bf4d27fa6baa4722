//! What a campaign that is one of several shows the others, and how it is held back.

use std::time::Duration;

use super::elector::{Campaign, Phase};
use super::standby::Plan;
use super::types::{Event, Failure, Leader};
use crate::lock::{LockErrorKind, Token};
use crate::time::clock::Instant;

impl Campaign {
    /// Has it stand from now on, or only watch. One that comes to stand looks first, within `spread`, as what it knows may
    /// be old. One in office, or whose create is under way, is not touched.
    pub(super) fn let_stand(&mut self, now: Instant, stands: bool, spread: Duration) {
        if self.settings.stands == stands {
            return;
        }
        self.settings.stands = stands;
        let at = now + spread.mul_f64(self.random.f64());
        if let Phase::Standby(standby) = &mut self.phase
            && stands
        {
            standby.plan = Plan::Look;
            standby.at = standby.at.min(at).max(standby.not_before);
        }
        self.handle(now, Event::Wake);
    }

    /// Whether it holds the entry, cooling down or leading.
    pub(super) fn holds(&self) -> bool {
        matches!(self.phase, Phase::Office(_))
    }

    /// The token and the deadline, while it leads.
    pub(super) fn term(&self) -> Option<(Token, Instant)> {
        match &self.phase {
            Phase::Office(office) if office.began => Some((office.token, office.deadline)),
            _ => None,
        }
    }

    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Leaving(_))
    }

    pub(super) fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished)
    }

    pub(super) fn has_heard(&self) -> bool {
        self.heard_from_lock
    }

    /// Whoever else holds the entry, as far as is known: as last seen where the lock can be read, else for as long as
    /// what was last seen entitles them.
    pub(super) fn other_holder(&self, now: Instant) -> Option<&Leader> {
        let current = self.trouble.is_none() || !self.only_reading_fails;
        self.leader
            .as_ref()
            .filter(|leader| !leader.is_me && (current || now < self.rights_seen_end))
    }

    /// When what was last seen of other holders entitles them to nothing any more.
    pub(super) fn others_end(&self) -> Instant {
        self.rights_seen_end
    }

    /// What keeps it from taking the entry that asking again soon will not mend.
    pub(super) fn refusal(&self) -> Option<&Failure> {
        self.trouble.as_ref().filter(|trouble| {
            matches!(trouble.kind, LockErrorKind::Denied | LockErrorKind::Misconfigured)
        })
    }
}
