//! What drivers do with what their machines answer.

use incumbent::clock::Instant;
use incumbent::protocol::{Action, Cause, Event};

use crate::candidate::Candidate;
use crate::event::{Inner, SimEvent};
use crate::server::Time;
use crate::trace;
use crate::world::World;

impl World {
    pub(super) fn perform(&mut self, who: usize, action: Action) {
        if self.time.has_history() {
            let told = trace::action(&action, self.process(who).clock);
            self.time.log(|| format!("c{who} {told}"));
        }
        let calm = self.time.calm;
        let unruly = !calm && self.time.random.u8(..) < self.candidates[who].setup.unruly;
        match action {
            Action::Request { id, request } => self.send(who, id, request),
            Action::Begin { token, deadline } => {
                let deadline = self.entitled(who, deadline);
                self.judge_token(who);
                self.checker.begin(who, self.time.now, token, deadline);
                self.term_begins(who);
                self.member_leads(who);
                if unruly {
                    let (after, panicked) = (self.time.millis(0..4000), self.time.random.bool());
                    self.later(who, after, Inner::Own(Event::WorkEnded { panicked }));
                }
            }
            Action::Extend { deadline } => {
                let deadline = self.entitled(who, deadline);
                self.checker.extend(who, self.time.now, deadline);
            }
            Action::End { by, cause } => {
                self.checker.end(who);
                let hands_over = matches!(cause, Cause::HandedOver { .. });
                if hands_over {
                    self.hands_over(who);
                }
                self.term_ends(who);
                self.end_drain(who);
                self.member_leads_no_more(who, hands_over);
                let grace = self.process(who).clock.real(by).saturating_sub(self.time.now);
                let after =
                    if unruly { grace } else { grace.mul_f64(self.time.random.f64().powi(3)) };
                let event = Event::TermEnded { work_stopped: !unruly };
                self.later(who, after, Inner::Own(event));
            }
            Action::Finished => {
                self.candidates[who].finished = true;
                let process = self.candidates[who].process;
                if self.of_process(process).all(|who| self.candidates[who].finished) {
                    self.process_ends(process, false);
                    let after = self.time.millis(0..1500);
                    self.time.after(after, SimEvent::Start { process });
                }
            }
            _ => {}
        }
    }

    /// Whether the last token was lost, and cannot be known to a candidate that begins a term.
    fn judge_token(&mut self, who: usize) {
        let clocks_agree = self.candidates.iter().all(|it| it.setup.wall_ms == 0);
        let Candidate { knew, asked, key, .. } = self.candidates[who];
        if let (Some(store), Some(last)) = (&self.store, self.checker.last_token(key))
            && store.excuses_token(last, knew, asked, clocks_agree)
        {
            self.checker.excuse_token(key);
        }
    }

    /// The deadline in the world's time, after seeing that a write entitles to it.
    fn entitled(&mut self, who: usize, deadline: Instant) -> Time {
        let candidate = &self.candidates[who];
        let lease = candidate.timing.lease();
        if candidate.entitled_from.is_none_or(|from| deadline > from + lease) {
            self.checker.fail(format!("no write entitles candidate {who} to {deadline:?}"));
        }
        self.process(who).clock.real(deadline)
    }
}
