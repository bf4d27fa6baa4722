//! What drivers do with the drains of their candidates.

use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::protocol::Event;

use crate::event::SimEvent;
use crate::world::World;

impl World {
    /// What the machine hears of an event now.
    pub(super) fn drained(&mut self, who: usize, now: Instant, event: Event) -> Vec<Event> {
        // A drain that begins with the last stop would outlast the time for a recovery.
        let works = !self.calm && self.checker.is_leading(who);
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
        let life = self.candidates[who].life;
        let limit = Duration::from_millis(u64::from(self.candidates[who].setup.drain_ms));
        let (after, event) =
            (limit.mul_f64(2.0 * self.random.f64()), Event::WorkEnded { panicked: false });
        self.log(|| format!("c{who} drains"));
        self.after(after, SimEvent::Inside { who, life, event });
    }

    /// Nobody waits for the drain any longer.
    pub(super) fn end_drain(&mut self, who: usize) {
        for event in self.candidates[who].drain.end() {
            self.inside(who, event);
        }
    }
}
