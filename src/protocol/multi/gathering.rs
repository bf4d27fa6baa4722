//! Taking one lock after the other, and giving up where not all can be had.

use std::time::Duration;

use super::MultiElector;
use super::Part;
use super::Phase;
use crate::lock::Need;
use crate::protocol::types::{Action, Event};
use crate::time::clock::Instant;

/// Over how long campaigners that begin to stand at one moment spread their looks.
const SPREAD: Duration = Duration::from_millis(250);
/// Doublings after which the longest rest is reached.
const MOST_DOUBLINGS: u32 = 4;

impl Part {
    /// Whether a term may go on without it, as far as this lock is concerned: best effort, out of reach for as long as one
    /// request may take, and nobody else known to hold it.
    fn is_absent(&self, now: Instant) -> bool {
        self.absent_at().is_some_and(|at| at <= now) && self.campaign.other_holder(now).is_none()
    }

    fn absent_at(&self) -> Option<Instant> {
        let since = self.failing_since.filter(|_| self.need == Need::BestEffort)?;
        Some(since + self.campaign.settings().timing.request_timeout())
    }

    /// Required, and cannot be had just now: what is held meanwhile is held in vain. A refusal does not show that it has been
    /// lifted unless it is tried.
    fn fails(&self, refusals_count: bool) -> bool {
        self.need == Need::Required
            && self.campaign.lock_failure().is_some()
            && (refusals_count || self.campaign.refusal().is_none())
    }
}

impl MultiElector {
    pub(super) fn gather(&mut self, now: Instant) {
        for part in &mut self.parts {
            if part.ended.take().is_some() {
                // It led for itself, and nobody worked.
                part.campaign.handle(now, Event::TermEnded { work_stopped: true });
            }
        }
        self.open_gates(now);
        if let Some(deadline) = self.required_until().filter(|_| self.may_begin(now)) {
            return self.begin(deadline);
        }
        self.think_of_yielding(now);
        self.watch_the_clock(now);
    }

    /// Whether no lock stands in the way, given that all required machines lead.
    fn may_begin(&self, now: Instant) -> bool {
        self.stands
            && self.parts.iter().all(|part| part.campaign.term().is_some() || part.is_absent(now))
    }

    fn begin(&mut self, deadline: Instant) {
        let Some((token, _)) = self.first().term() else { return };
        self.yields = 0;
        self.wary_until = None;
        self.phase = Phase::Office { deadline };
        self.act(self.first, Action::Begin { token, deadline });
    }

    /// Each stands once every earlier one is held, or absent. What is held out of order is given back.
    fn open_gates(&mut self, now: Instant) {
        let holds_one = self.parts.iter().any(|part| part.campaign.holds());
        let mut turn = self.stands && (holds_one || self.may_start(now));
        let mut lost_one = false;
        for index in 0..self.parts.len() {
            let spread = if index == 0 { SPREAD } else { Duration::ZERO };
            let part = &mut self.parts[index];
            let holds = part.campaign.holds();
            if holds && lost_one {
                part.campaign.handle(now, Event::Resign);
            }
            let stands = turn && !lost_one;
            part.refused &= part.campaign.settings().eligible || !stands;
            part.campaign.set_eligible(now, stands, spread);
            turn &= holds || part.is_absent(now);
            lost_one |= part.need == Need::Required && !holds;
        }
    }

    /// Whether to take the first lock at all. One that could not get the rest and has given back what it held waits until
    /// all is free, so that it takes nothing in vain again.
    fn may_start(&self, now: Instant) -> bool {
        match self.wary_until {
            None => !self.parts.iter().skip(self.first + 1).any(|part| part.fails(false)),
            Some(until) => self.parts.iter().enumerate().all(|(index, part)| {
                let fails = index > self.first && part.fails(now < until);
                !fails && part.campaign.other_holder(now).is_none()
            }),
        }
    }

    /// What is held while the rest cannot be had keeps others out: it is given back after a while.
    fn think_of_yielding(&mut self, now: Instant) {
        let lacks = |part: &Part| !part.campaign.holds() && !part.is_absent(now);
        let waits =
            self.parts.iter().any(|part| part.campaign.holds()) && self.parts.iter().any(lacks);
        // A refusal of long ago is no reason: that it has been lifted shows only when it is tried.
        let refused =
            |part: &Part| part.need == Need::Required && part.refused && !part.campaign.holds();
        let lease = self.first().settings().timing.lease();
        let patience = lease.mul_f64(1.0 + self.random.f64());
        let Phase::Gathering { yield_at } = &mut self.phase else { return };
        if !waits {
            *yield_at = None;
            return;
        }
        let due = *yield_at.get_or_insert(now + patience) <= now;
        if !due && !self.parts.iter().any(refused) {
            return;
        }
        let doubled = self.yields.min(MOST_DOUBLINGS);
        self.yields = self.yields.saturating_add(1);
        let rest = lease.saturating_mul(1 << doubled).mul_f64(0.5 + self.random.f64() / 2.0);
        self.wary_until = Some(now + rest);
        self.give_back(Event::Resign);
    }

    /// When the passing of time alone changes what is to be done.
    fn watch_the_clock(&mut self, now: Instant) {
        let Phase::Gathering { yield_at } = self.phase else { return };
        let mut instants: Vec<Instant> = yield_at.into_iter().chain(self.wary_until).collect();
        for part in &self.parts {
            instants.extend(part.absent_at());
            instants.push(part.campaign.others_end());
        }
        self.wake_at = instants.into_iter().filter(|at| *at > now).min();
    }
}
