//! What drivers hand the machines of their shards, and what they do with what these answer.

use incumbent::protocol::{Action, Cause, Event, State};

use super::member::Process;
use super::world::{Inner, SetEvent, SetWorld};
use crate::process_faults::millis;
use crate::server::Time;

impl SetWorld {
    /// Hands the machine of a shard an event, and does what it answers.
    pub(super) fn feed(&mut self, who: usize, shard: u32, event: Event) {
        let now = self.members[who].clock.local(self.now);
        // A drain that begins with the last stop would outlast the time for a recovery.
        let leads = self.leads(who, shard);
        let Some(seat) = self.members[who].seat(shard) else { return };
        let works = leads && seat.excess_since.is_none();
        let events = match event {
            Event::Resign | Event::HandOver { .. } | Event::Stop => {
                let drained_before = seat.drain.until().is_some();
                let event = seat.drain.hold(now, event, works);
                if event.is_none() && !drained_before {
                    // The work ends in time, or would take up to twice that time.
                    let limit = millis(self.set.drain_ms);
                    let after = limit.mul_f64(2.0 * self.random.f64());
                    self.log(|| format!("m{who}/{shard} drains"));
                    let event = Event::WorkEnded { panicked: false };
                    self.later(after, who, Inner::Own { shard, event });
                }
                event.into_iter().collect()
            }
            Event::WorkEnded { panicked: false } => {
                let drained = seat.drain.end();
                if drained.is_empty() { vec![event] } else { drained }
            }
            Event::Wake => [vec![event], seat.drain.due(now)].concat(),
            event => vec![event],
        };
        self.feed_now(who, shard, events);
    }

    pub(super) fn feed_now(&mut self, who: usize, shard: u32, events: Vec<Event>) {
        let now = self.members[who].clock.local(self.now);
        let Some(seat) = self.members[who].seat(shard) else { return };
        for event in events {
            seat.machine.handle(now, event);
        }
        let mut actions = Vec::new();
        while let Some(action) = seat.machine.poll_action() {
            actions.push(action);
        }
        let state = seat.machine.state();
        for action in actions {
            self.perform(who, shard, action);
        }
        if (state == State::Leader) != self.leads(who, shard) {
            self.fail(format!("m{who}/{shard} says {state} against what it told"));
        }
        self.poke(who);
        self.set_wake(who, shard);
        if let Some(violation) = self.checkers[shard as usize].violation.take() {
            self.fail(format!("shard {shard}: {violation}"));
        }
    }

    fn set_wake(&mut self, who: usize, shard: u32) {
        let clock = self.members[who].clock;
        let Some(seat) = self.members[who].seat(shard) else { return };
        let wakes = [seat.machine.next_wake(), seat.drain.until(), seat.moves.next_wake()];
        seat.wake += 1;
        let wake = seat.wake;
        let Some(at) = wakes.into_iter().flatten().min() else { return };
        let after = self.lateness(clock.real(at));
        self.later(after, who, Inner::Wake { shard, wake });
    }

    pub(super) fn perform(&mut self, who: usize, shard: u32, action: Action) {
        let unruly = !self.calm && self.random.u8(..) < self.members[who].setup.unruly;
        match action {
            Action::Request { id, request } => self.send(who, shard, id, request),
            Action::Begin { token, deadline } => {
                self.log(|| format!("m{who}/{shard} LEADS"));
                let deadline = self.entitled(who, shard, deadline);
                self.checkers[shard as usize].begin(who, self.now, token, deadline);
                self.term_begins(who, shard);
                if unruly {
                    let (after, panicked) = (self.millis(0..4000), self.random.bool());
                    let event = Event::WorkEnded { panicked };
                    self.later(after, who, Inner::Own { shard, event });
                }
            }
            Action::Extend { deadline } => {
                let deadline = self.entitled(who, shard, deadline);
                self.checkers[shard as usize].extend(who, self.now, deadline);
            }
            Action::End { by, cause } => {
                self.log(|| format!("m{who}/{shard} ends ({cause:?})"));
                self.checkers[shard as usize].end(who);
                self.term_ends(who, shard, &cause);
                let clock = self.members[who].clock;
                let grace = clock.real(by).saturating_sub(self.now);
                let after = if unruly { grace } else { grace.mul_f64(self.random.f64().powi(3)) };
                let event = Event::TermEnded { work_stopped: !unruly };
                self.later(after, who, Inner::Own { shard, event });
            }
            Action::Finished => {
                if let Some(seat) = self.members[who].seat(shard) {
                    seat.finished = true;
                }
                let finished =
                    |up: &Process| up.seats.iter().all(|seat| seat.finished) && up.stopping;
                if self.members[who].up.as_deref().is_some_and(finished) {
                    self.process_ends(who);
                    let after = self.millis(0..1500);
                    self.after(after, SetEvent::Start { who });
                }
            }
            _ => {}
        }
    }

    /// The deadline in the world's time, after seeing that a write entitles to it.
    fn entitled(&mut self, who: usize, shard: u32, deadline: incumbent::clock::Instant) -> Time {
        let lease = self.members[who].timing.lease();
        let from = self.members[who].seat(shard).and_then(|seat| seat.entitled_from);
        if from.is_none_or(|from| deadline > from + lease) {
            self.fail(format!("no write entitles m{who}/{shard} to {deadline:?}"));
        }
        self.members[who].clock.real(deadline)
    }

    /// The process is gone, and its work with it.
    pub(super) fn process_ends(&mut self, who: usize) {
        self.log(|| format!("m{who} is gone"));
        self.members[who].up = None;
        self.members[who].life += 1;
        for checker in &mut self.checkers {
            checker.gone(who);
        }
    }

    fn term_begins(&mut self, who: usize, shard: u32) {
        let (now, since) = (self.members[who].clock.local(self.now), self.now);
        let max = self.members[who].setup.max_load;
        let Some(up) = self.members[who].up.as_deref_mut() else { return };
        let Some(seat) = up.seats.get_mut(shard as usize) else { return };
        seat.began = Some(now);
        if !std::mem::replace(&mut seat.leads, true) {
            up.share.begin();
        }
        let full = max.is_some_and(|max| up.admitted.len() >= max as usize);
        if full && !up.admitted.contains(&shard) {
            seat.excess_since = Some(since);
            self.figures.given_back += 1;
            self.log(|| format!("m{who}/{shard} is one too many"));
            let after = self.millis(0..3);
            return self.later(after, who, Inner::GivesBack { shard });
        }
        up.admitted.insert(shard);
        self.taken(who, shard);
    }

    fn term_ends(&mut self, who: usize, shard: u32, cause: &Cause) {
        let Some(up) = self.members[who].up.as_deref_mut() else { return };
        let Some(seat) = up.seats.get_mut(shard as usize) else { return };
        seat.began = None;
        if std::mem::take(&mut seat.leads) {
            up.share.end();
        }
        seat.keep(&mut up.share);
        let drained = seat.drain.end();
        let excess = seat.excess_since.take();
        for event in drained {
            self.own(who, shard, event);
        }
        match (cause, excess) {
            (Cause::HandedOver { .. }, _) => self.hands_over(who, shard),
            (_, Some(since)) => self.gave_back(who, since),
            _ => self.other_ends += 1,
        }
    }
}
