//! What an elector does with hints, and which it needs.

use std::time::Duration;

use super::{Elector, Phase};
use crate::lock::{
    CandidateRequest, Coverage, Hint, Record, Revision, RollCall, StepDownNotice, Successor,
};
use crate::protocol::context::{Context, Source};
use crate::protocol::cool_down::KnownStepDown;
use crate::protocol::sampling::{HintRate, SentNotice};
use crate::protocol::standby::read_spread;
use crate::protocol::types::Rank;
use crate::time::clock::Instant;
use crate::time::timing::with_drift;

impl Elector {
    /// Whether a few hints are not enough for it: it holds the entry or is about to, its successor
    /// may have missed its step-down notice, or it observes.
    pub fn wants_all_hints(&self, now: Instant) -> bool {
        let settings = &self.cx.settings;
        match &self.phase {
            Phase::Idle | Phase::Finished => false,
            Phase::Holding(_) | Phase::SteppingDown(_) => true,
            Phase::Standby(standby) => {
                !settings.eligible
                    || settings.rank == Rank::Next
                    || standby.is_about_to_acquire()
                    || self.cx.requests.is_writing()
                    || self.cx.sent_notice.as_ref().is_some_and(|sent| now < sent.until)
            }
        }
    }

    pub(super) fn on_hint(&mut self, now: Instant, hint: Hint) {
        match hint {
            Hint::Stored { record, previous, age } => {
                let few = !self.wants_all_hints(now);
                if let Some(rate) = self.cx.hint_rate.as_mut().filter(|_| few) {
                    rate.hint_came(now);
                }
                if let Some(age) = age {
                    self.cx.latency.hint_came_after(age);
                }
                self.cx.heard_from_lock = true;
                self.on_stored(now, record, previous.flatten());
                if matches!(&self.phase, Phase::Standby(s) if !s.is_about_to_acquire()) {
                    self.cx.hints_arrive();
                }
            }
            Hint::SteppedDown(notice) => self.on_step_down(now, &notice),
            Hint::Recheck => self.read_soon(now),
            Hint::RollCall(call) => self.on_call(now, &call),
            Hint::Coverage(coverage) => {
                let sampled = coverage == Coverage::Sampled;
                if !sampled || self.cx.hint_rate.is_none() {
                    self.cx.hint_rate = sampled.then(|| Box::new(HintRate::new(now)));
                }
                let before = std::mem::replace(&mut self.cx.coverage, coverage);
                if !sampled || before != Coverage::Full {
                    self.read_soon(now); // nothing is missed where few follow all
                }
            }
        }
    }

    fn on_stored(&mut self, now: Instant, record: Record, previous: Option<Revision>) {
        let cx = &mut self.cx;
        cx.observed.record_previous(&record, previous);
        let mine = cx.own_mark_in(&record).is_some();
        let expected = matches!(&self.phase, Phase::Holding(h) if h.expects(&record, mine));
        let response_on_the_way = mine && cx.requests.is_writing();
        if record.revision <= cx.observed.newest_revision() || expected || response_on_the_way {
            return;
        }
        if let Phase::Holding(holding) = &self.phase {
            self.enter(now, holding.superseded_by_hint(&record));
        }
        if let Phase::Standby(standby) = &mut self.phase {
            standby.on_stored(&mut self.cx, now, record, previous);
        } else {
            let source = Source { from_hint: true, on_standby: false };
            let held = self.cx.record(now, record, previous, source);
            // Not while work stops: the notice may be of an earlier term.
            let stopped = matches!(&self.phase, Phase::SteppingDown(s) if s.next_wake().is_some());
            if held && !mine && stopped {
                self.cx.repeat_notice(now);
            }
        }
    }

    fn on_step_down(&mut self, now: Instant, notice: &StepDownNotice) {
        let step_down = KnownStepDown {
            by: notice.by,
            token: notice.token,
            revision: notice.revision,
            clear_at: now + with_drift(notice.left),
        };
        self.cx.observed.record_step_down(step_down);
        if let Phase::Holding(holding) = &mut self.phase {
            holding.on_step_down(&step_down);
        }
    }

    /// The last leader names this candidate as its successor, to which its release may not have
    /// been reported. Anybody may say so: it costs a read.
    fn on_call(&mut self, now: Instant, call: &RollCall) {
        let names = Successor::Candidate(self.cx.settings.nonce);
        if self.cx.coverage != Coverage::Full
            && call.request == CandidateRequest::Succeed(names)
            && let Phase::Standby(standby) = &mut self.phase
        {
            standby.read_soon(&self.cx, now, Duration::ZERO, now);
        }
    }

    /// A hint suggests a read, or hints have begun or ended.
    fn read_soon(&mut self, now: Instant) {
        let spread = read_spread(self.cx.coverage);
        let soon = now + spread.mul_f64(self.cx.random.f64());
        match &mut self.phase {
            Phase::Standby(standby) => standby.read_soon(&self.cx, now, spread, soon),
            Phase::Holding(holding) => holding.read_soon(),
            _ => {}
        }
    }
}

impl Context {
    /// Keeps a notice that is sent now, if its receivers are drawn at random too.
    pub(in crate::protocol) fn keep_notice(&mut self, now: Instant, notice: StepDownNotice) {
        if self.coverage == Coverage::Sampled {
            let until = now + self.capabilities.max_lease;
            self.sent_notice = Some(Box::new(SentNotice { notice, until }));
        }
    }

    /// Another candidate has created or renewed its entry. It may have missed the notice, and would
    /// wait for the end of a lease. Before its create it has subscribed to all hints, but in a
    /// cluster that may not be known everywhere yet: so each renewal repeats the notice, too.
    pub(in crate::protocol) fn repeat_notice(&mut self, now: Instant) {
        if self.requests.is_busy() {
            return;
        }
        match self.sent_notice.as_deref() {
            Some(sent) if now < sent.until => self.send_notice(now, sent.notice),
            _ => self.sent_notice = None,
        }
    }
}
