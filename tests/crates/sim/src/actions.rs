//! What drivers do with what their machines answer.

use incumbent::protocol::{Action, Cause, Event};

use crate::candidate::Candidate;
use crate::event::SimEvent;
use crate::server::Time;
use crate::trace;
use crate::world::World;

impl World {
    pub(super) fn perform(&mut self, who: usize, action: Action) {
        if self.has_history() {
            let told = trace::action(&action, &self.candidates[who]);
            self.log(|| format!("c{who} {told}"));
        }
        let life = self.candidates[who].life;
        let unruly = !self.calm && self.random.u8(..) < self.candidates[who].setup.unruly;
        match action {
            Action::Request { id, request } => self.send(who, id, request),
            Action::Begin { token, deadline } => {
                let deadline = self.entitled(who, deadline);
                self.judge_token(who);
                self.checker.begin(who, self.now, token, deadline);
                let began = self.candidates[who].local(self.now);
                self.term_of_mover(who, Some(began));
                if unruly {
                    let (after, panicked) = (self.millis(0..4000), self.random.bool());
                    let event = Event::WorkEnded { panicked };
                    self.after(after, SimEvent::Inside { who, life, event });
                }
            }
            Action::Extend { deadline } => {
                let deadline = self.entitled(who, deadline);
                self.checker.extend(who, self.now, deadline);
            }
            Action::End { by, cause } => {
                self.checker.end(who);
                if matches!(cause, Cause::HandedOver { .. }) {
                    self.hands_over(who);
                }
                self.term_of_mover(who, None);
                self.end_drain(who);
                let grace = self.candidates[who].real(by).saturating_sub(self.now);
                let after = if unruly { grace } else { grace.mul_f64(self.random.f64().powi(3)) };
                let event = Event::TermEnded { work_stopped: !unruly };
                self.after(after, SimEvent::Inside { who, life, event });
            }
            Action::Finished => {
                self.process_ends(who, false);
                let after = self.millis(0..1500);
                self.after(after, SimEvent::Start { who });
            }
            _ => {}
        }
    }

    /// Whether the last token was lost, and cannot be known to a candidate that begins a term.
    fn judge_token(&mut self, who: usize) {
        let clocks_agree = self.candidates.iter().all(|it| it.setup.wall_ms == 0);
        let Candidate { knew, asked, .. } = self.candidates[who];
        if let (Some(store), Some(last)) = (&self.store, self.checker.last_token())
            && store.excuses_token(last, knew, asked, clocks_agree)
        {
            self.checker.excuse_token();
        }
    }

    /// The deadline in the world's time, after seeing that a write entitles to it.
    fn entitled(&mut self, who: usize, deadline: incumbent::clock::Instant) -> Time {
        let candidate = &self.candidates[who];
        let lease = candidate.timing.lease();
        if candidate.entitled_from.is_none_or(|from| deadline > from + lease) {
            self.checker.fail(format!("no write entitles candidate {who} to {deadline:?}"));
        }
        candidate.real(deadline)
    }
}
