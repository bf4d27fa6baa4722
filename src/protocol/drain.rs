//! Draining: a leader that is to stop continues to lead while its work comes to its end.

use std::time::Duration;

use super::types::Event;
use crate::time::clock::Instant;

/// Holds back a resignation, a handover or a stop while the work of the term drains.
///
/// The elector learns of it when the drain is over. Until then it renews, and its right to lead is
/// that of any other term: a drain adds no rule of its own to the promise.
///
/// ```
/// # use std::time::Duration;
/// use incumbent::clock::Instant;
/// use incumbent::protocol::{Drain, Event};
///
/// let mut drain = Drain::new(Duration::from_secs(60));
/// let now = Instant::from_origin(Duration::from_secs(100));
/// assert_eq!(drain.hold(now, Event::Stop, true), None); // work is running
/// assert_eq!(drain.due(now + Duration::from_secs(59)), []);
/// assert_eq!(drain.due(now + Duration::from_secs(60)), [Event::Stop]);
/// ```
#[derive(Debug, Clone)]
pub struct Drain {
    limit: Duration,
    held: Option<Box<Held>>,
}

/// What is held back.
#[derive(Debug, Clone)]
struct Held {
    /// A resignation or a handover.
    leave: Option<Event>,
    stop: bool,
    until: Instant,
}

impl Drain {
    /// `limit`: how long a drain may take. Zero: nothing is held back.
    pub fn new(limit: Duration) -> Self {
        Self { limit, held: None }
    }

    /// Takes an [`Event::Resign`], [`Event::HandOver`] or [`Event::Stop`]. Returns it if the
    /// elector is to handle it now. `works`: whether this candidate leads, and work of the term is
    /// running.
    ///
    /// A handover takes the place of a resignation that is held back, and a stop comes after
    /// either. None of them prolongs the drain.
    pub fn hold(&mut self, now: Instant, event: Event, works: bool) -> Option<Event> {
        if !works || self.limit.is_zero() {
            return Some(event);
        }
        let until = now + self.limit;
        let held =
            self.held.get_or_insert_with(|| Box::new(Held { leave: None, stop: false, until }));
        match event {
            Event::Stop => held.stop = true,
            Event::HandOver { .. } => held.leave = Some(event),
            event => held.leave = held.leave.take().or(Some(event)),
        }
        None
    }

    /// When the drain ends at the latest; `None` unless there is one.
    pub fn until(&self) -> Option<Instant> {
        self.held.as_ref().map(|held| held.until)
    }

    /// Ends a drain whose time is over at `now`: see [`end`](Self::end).
    pub fn due(&mut self, now: Instant) -> Vec<Event> {
        match self.until() {
            Some(until) if now >= until => self.end(),
            _ => Vec::new(),
        }
    }

    /// Ends the drain: the work has ended, or the term, or it is cut short. Returns
    /// what was held back, for the elector, in order.
    pub fn end(&mut self) -> Vec<Event> {
        let Some(held) = self.held.take() else { return Vec::new() };
        let handover = held.leave.filter(|leave| !held.stop || *leave != Event::Resign);
        handover.into_iter().chain(held.stop.then_some(Event::Stop)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Nonce;

    const LIMIT: Duration = Duration::from_secs(60);

    fn at(secs: u64) -> Instant {
        Instant::from_origin(Duration::from_secs(secs))
    }

    #[test]
    fn nothing_is_held_back_without_work_or_without_a_limit() {
        for (limit, works) in [(LIMIT, false), (Duration::ZERO, true)] {
            let mut drain = Drain::new(limit);
            assert_eq!(drain.hold(at(1), Event::Resign, works), Some(Event::Resign));
            assert_eq!((drain.until(), drain.end()), (None, Vec::new()));
        }
    }

    #[test]
    fn a_stop_in_a_drain_stops_and_prolongs_nothing() {
        let mut drain = Drain::new(LIMIT);
        assert_eq!(drain.hold(at(100), Event::Resign, true), None);
        assert_eq!(drain.hold(at(130), Event::Stop, true), None);
        assert_eq!(drain.hold(at(140), Event::Resign, true), None);
        assert_eq!(drain.until(), Some(at(160)));
        assert_eq!(drain.due(at(159)), []);
        assert_eq!(drain.due(at(160)), [Event::Stop]);
        assert_eq!(drain.due(at(161)), []);
    }

    #[test]
    fn the_end_of_the_work_ends_the_drain() {
        let mut drain = Drain::new(LIMIT);
        assert_eq!(drain.hold(at(100), Event::Resign, true), None);
        assert_eq!(drain.end(), [Event::Resign]);
        assert_eq!(drain.until(), None);
    }

    #[test]
    fn a_stop_in_the_drain_of_a_handover_hands_over_first() {
        let hand_over = Event::HandOver { to: Nonce(7), identity: "b".into() };
        for (first, second) in
            [(Event::Resign, hand_over.clone()), (hand_over.clone(), Event::Resign)]
        {
            let mut drain = Drain::new(LIMIT);
            assert_eq!(drain.hold(at(100), first, true), None);
            assert_eq!(drain.hold(at(101), second, true), None);
            assert_eq!(drain.hold(at(102), Event::Stop, true), None);
            assert_eq!(drain.end(), [hand_over.clone(), Event::Stop]);
        }
    }
}
