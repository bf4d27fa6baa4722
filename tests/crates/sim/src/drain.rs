//! What drivers do with the drains of their candidates.

use incumbent::protocol::Event;

use crate::event::Inner;
use crate::process::millis;
use crate::world::World;

impl World {
    /// What the machine hears of an event now.
    pub(super) fn drained(&mut self, who: usize, event: Event) -> Vec<Event> {
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
}
