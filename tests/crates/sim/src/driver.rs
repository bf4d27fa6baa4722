//! What the driver of a candidate does: it hands the machine what happens, unless the work drains
//! first, and does what the machine answers.

use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::protocol::{Action, Cause, Event, State};

use crate::candidate::Candidate;
use crate::process::millis;
use crate::server::Time;
use crate::trace;
use crate::world::{Inner, SimEvent, World};

impl World {
    /// Hands a machine an event, and does what it answers.
    pub(super) fn feed(&mut self, who: usize, event: Event) {
        let events = self.drained(who, event);
        if !events.is_empty() {
            self.feed_now(who, events);
        }
    }

    /// Hands a machine events at once, whatever drains, and does what it answers.
    pub(super) fn feed_now(&mut self, who: usize, events: Vec<Event>) {
        let now = self.local(who);
        let Some(machine) = &mut self.candidates[who].machine else { return };
        for event in events {
            machine.handle(now, event);
        }
        let mut actions = Vec::new();
        while let Some(action) = machine.poll_action() {
            actions.push(action);
        }
        let state = machine.state();
        self.subscribe(who);
        for action in actions {
            self.perform(who, action);
        }
        if (state == State::Leader) != self.checker.is_leading(who) {
            self.checker.fail(format!("c{who} says {state} against what it told"));
        }
        self.register(who);
        self.readiness_of_machine(who);
        self.advance_moves(who);
        self.poke_member(self.candidates[who].process);
        self.set_wake(who);
    }

    /// Wakes it when there is something to do at the latest.
    pub(super) fn set_wake(&mut self, who: usize) {
        let candidate = &mut self.candidates[who];
        let of_machine = candidate.machine.as_ref().and_then(|machine| machine.next_wake());
        let of_moves = candidate.mover.as_ref().and_then(|mover| mover.moves.next_wake());
        let wakes = [of_machine, candidate.drain.until(), of_moves];
        candidate.wake += 1;
        let wake = candidate.wake;
        if let Some(at) = wakes.into_iter().flatten().min() {
            let after = self.until_timer(who, at);
            self.later(who, after, Inner::Wake { wake });
        }
    }

    /// How long a timer takes that is to go off then.
    pub(super) fn until_timer(&mut self, who: usize, at: Instant) -> Duration {
        let late = self.time.lateness();
        self.process(who).clock.real(at).saturating_sub(self.time.now) + late
    }

    /// What the machine hears of an event now.
    fn drained(&mut self, who: usize, event: Event) -> Vec<Event> {
        let now = self.local(who);
        // A drain that begins with the last stop would outlast the time for a recovery of one
        // election.
        let in_time = !self.time.calm || self.scenario.set.is_some();
        let works = in_time && self.checker.is_leading(who) && !self.is_one_too_many(who);
        let candidate = &mut self.candidates[who];
        match event {
            Event::Resign | Event::HandOver { .. } | Event::Stop => {
                let drained_before = candidate.drain.until().is_some();
                let event = candidate.drain.hold(now, event, works);
                if event.is_none() && !drained_before {
                    self.work_drains(who);
                }
                event.into_iter().collect()
            }
            Event::WorkEnded { panicked: false } => {
                let drained = candidate.drain.end();
                self.checker.drains += u64::from(!drained.is_empty());
                if drained.is_empty() { vec![event] } else { drained }
            }
            Event::Wake => [vec![event], candidate.drain.due(now)].concat(),
            event => vec![event],
        }
    }

    /// It ends in time, or would take up to twice that time.
    fn work_drains(&mut self, who: usize) {
        let limit = millis(self.candidates[who].setup.drain_ms);
        let after = limit.mul_f64(2.0 * self.time.random.f64());
        self.time.log(|| format!("c{who} drains"));
        self.later(who, after, Inner::Own(Event::WorkEnded { panicked: false }));
    }

    /// Nobody waits for the drain any longer.
    pub(super) fn end_drain(&mut self, who: usize) {
        for event in self.candidates[who].drain.end() {
            self.inside(who, event);
        }
    }

    fn perform(&mut self, who: usize, action: Action) {
        if self.time.has_history() {
            let told = trace::action(&action, self.process(who).clock);
            self.time.log(|| format!("c{who} {told}"));
        }
        let calm = self.time.calm;
        let unruly = !calm && self.time.random.u8(..) < self.candidates[who].setup.unruly;
        match action {
            Action::Request { id, request } => self.send(who, id, request),
            Action::Begin { token, deadline } => {
                let until = deadline;
                let deadline = self.entitled(who, deadline);
                self.judge_token(who);
                self.checker.begin(who, self.time.now, token, deadline);
                self.term_begins(who);
                self.member_leads(who);
                self.claims(who, token, until);
                if unruly {
                    let (after, panicked) = (self.time.millis(0..4000), self.time.random.bool());
                    self.later(who, after, Inner::Own(Event::WorkEnded { panicked }));
                }
            }
            Action::Extend { deadline } => {
                if let Some(keeper) = &mut self.candidates[who].keeper {
                    keeper.deadline = deadline;
                }
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
                self.claims_no_more(who);
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
