//! Taking one lock after the other, and giving up where not all can be had.

use std::time::Duration;

use super::MemberElector;
use super::MultiElector;
use super::Phase;
use crate::lock::Need;
use crate::protocol::types::{Action, Event};
use crate::time::clock::Instant;

/// Over how long candidates that become eligible at one moment spread their reads.
const SPREAD: Duration = Duration::from_millis(250);
/// Doublings after which the longest rest is reached.
const MAX_DOUBLINGS: u32 = 4;

impl MemberElector {
    /// Whether a term may continue without it, as far as this lock is concerned: best effort, out
    /// of reach for as long as one request may take, and no other candidate known to hold it.
    fn is_absent(&self, now: Instant) -> bool {
        self.absent_at().is_some_and(|at| at <= now) && self.elector.other_holder(now).is_none()
    }

    fn absent_at(&self) -> Option<Instant> {
        let since = self.failing_since.filter(|_| self.need == Need::BestEffort)?;
        Some(since + self.elector.settings().timing.request_timeout())
    }

    /// Required, and cannot be had just now: holding the other locks is useless until then. A
    /// refusal does not show that it has been lifted unless it is tried.
    fn fails(&self, refusals_count: bool) -> bool {
        self.need == Need::Required
            && self.elector.lock_failure().is_some()
            && (refusals_count || self.elector.refusal().is_none())
    }
}

impl MultiElector {
    pub(super) fn gather(&mut self, now: Instant) {
        for member in &mut self.members {
            if member.ended.take().is_some() {
                // It led for itself, and no work ran.
                member.elector.handle(now, Event::TermEnded { work_stopped: true });
            }
        }
        self.open_gates(now);
        if let Some(deadline) = self.required_until().filter(|_| self.may_begin(now)) {
            return self.begin(deadline);
        }
        self.yield_if_stuck(now);
        self.set_wake(now);
    }

    /// Whether no lock is in the way, given that all required machines lead.
    fn may_begin(&self, now: Instant) -> bool {
        self.eligible
            && self
                .members
                .iter()
                .all(|member| member.elector.term().is_some() || member.is_absent(now))
    }

    fn begin(&mut self, deadline: Instant) {
        let Some((token, _)) = self.first().term() else { return };
        self.yields = 0;
        self.wary_until = None;
        self.phase = Phase::Leading { deadline };
        self.act(self.first, Action::Begin { token, deadline });
    }

    /// Each is eligible once every earlier one is held, or absent. What is held out of order is
    /// given back.
    fn open_gates(&mut self, now: Instant) {
        let holds_one = self.members.iter().any(|member| member.elector.holds());
        let mut turn = self.eligible && (holds_one || self.may_start(now));
        let mut lost_one = false;
        for index in 0..self.members.len() {
            let spread = if index == 0 { SPREAD } else { Duration::ZERO };
            let member = &mut self.members[index];
            let holds = member.elector.holds();
            if holds && lost_one {
                member.elector.handle(now, Event::Resign);
            }
            let eligible = turn && !lost_one;
            member.refused &= member.elector.settings().eligible || !eligible;
            member.elector.set_eligible(now, eligible, spread);
            turn &= holds || member.is_absent(now);
            lost_one |= member.need == Need::Required && !holds;
        }
    }

    /// Whether to take the first lock at all. One that could not get the rest and has given back
    /// what it held waits until all is free, so that it takes nothing in vain again.
    fn may_start(&self, now: Instant) -> bool {
        match self.wary_until {
            None => !self.members.iter().skip(self.first + 1).any(|member| member.fails(false)),
            Some(until) => self.members.iter().enumerate().all(|(index, member)| {
                let fails = index > self.first && member.fails(now < until);
                !fails && member.elector.other_holder(now).is_none()
            }),
        }
    }

    /// What is held while the rest cannot be had keeps others out: it is given back after a while.
    fn yield_if_stuck(&mut self, now: Instant) {
        let lacks = |member: &MemberElector| !member.elector.holds() && !member.is_absent(now);
        let waits = self.members.iter().any(|member| member.elector.holds())
            && self.members.iter().any(lacks);
        // A refusal of long ago is no reason: that it has been lifted shows only when it is tried.
        let refused = |member: &MemberElector| {
            member.need == Need::Required && member.refused && !member.elector.holds()
        };
        let lease = self.first().settings().timing.lease();
        let yield_after = lease.mul_f64(1.0 + self.random.f64());
        let Phase::Gathering { yield_at } = &mut self.phase else { return };
        if !waits {
            *yield_at = None;
            return;
        }
        let due = *yield_at.get_or_insert(now + yield_after) <= now;
        if !due && !self.members.iter().any(refused) {
            return;
        }
        let doubled = self.yields.min(MAX_DOUBLINGS);
        self.yields = self.yields.saturating_add(1);
        let rest = lease.saturating_mul(1 << doubled).mul_f64(0.5 + self.random.f64() / 2.0);
        self.wary_until = Some(now + rest);
        self.give_back(Event::Resign);
    }

    /// When the passing of time alone changes what is to be done.
    fn set_wake(&mut self, now: Instant) {
        let Phase::Gathering { yield_at } = self.phase else { return };
        let mut instants: Vec<Instant> = yield_at.into_iter().chain(self.wary_until).collect();
        for member in &self.members {
            instants.extend(member.absent_at());
            instants.push(member.elector.others_end());
        }
        self.wake_at = instants.into_iter().filter(|at| *at > now).min();
    }
}
