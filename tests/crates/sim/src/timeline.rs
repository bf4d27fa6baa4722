//! Virtual time: a queue of events in their order, and the seed from which everything is drawn.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;

use crate::server::Time;

/// Lines of a history: the last ones are kept.
const KEPT: usize = 5_000;

/// The clock, the queue and the lots of a world whose events are `E`.
pub struct Timeline<E> {
    pub now: Time,
    pub random: Rng,
    /// No more faults, losses or long delays.
    pub calm: bool,
    queue: BinaryHeap<Scheduled<E>>,
    order: u64,
    /// What happened, if it is wanted.
    history: Option<VecDeque<String>>,
}

impl<E> Timeline<E> {
    pub fn new(seed: u64, with_history: bool) -> Self {
        Self {
            now: Time::ZERO,
            random: Rng::with_seed(seed),
            calm: false,
            queue: BinaryHeap::new(),
            order: 0,
            history: with_history.then(VecDeque::new),
        }
    }

    /// `what` happens so much later.
    pub fn after(&mut self, after: Duration, what: E) {
        self.at(self.now + after, what);
    }

    /// `what` happens then.
    pub fn at(&mut self, at: Time, what: E) {
        self.order += 1;
        self.queue.push(Scheduled { at, order: self.order, what });
    }

    /// The next event until then, if any: it is its time now.
    pub fn next(&mut self, until: Time) -> Option<E> {
        self.queue.peek().filter(|next| next.at <= until)?;
        let Scheduled { at, what, .. } = self.queue.pop()?;
        self.now = at;
        Some(what)
    }

    pub fn log(&mut self, line: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history {
            if history.len() == KEPT {
                history.pop_front();
            }
            history.push_back(format!("{:>12.6}  {}", self.now.as_secs_f64(), line()));
        }
    }

    pub fn has_history(&self) -> bool {
        self.history.is_some()
    }

    pub fn history(&self) -> String {
        let lines: Vec<_> = self.history.iter().flatten().map(String::as_str).collect();
        lines.join("\n")
    }

    /// Between this many milliseconds.
    pub fn millis(&mut self, range: Range<u64>) -> Duration {
        millis(&mut self.random, range)
    }

    /// How late an event is noticed, by a timer or by a scheduler.
    pub fn lateness(&mut self) -> Duration {
        match self.random.u8(..) {
            0..4 if !self.calm => self.millis(0..80),
            _ => Duration::from_micros(self.random.u64(1..300)),
        }
    }

    /// How long a message is under way; `None`: it is lost.
    pub fn passage(&mut self, loss: f64) -> Option<Duration> {
        if self.calm {
            return Some(Duration::from_micros(self.random.u64(200..2000)));
        }
        if self.random.f64() < loss {
            return None;
        }
        let millis = [1.0, 1.0, 1.0, 2.0, 5.0, 20.0, 100.0, 600.0];
        let mut delay = millis[self.random.usize(..millis.len())] * (0.5 + self.random.f64());
        if self.random.u8(..) == 0 {
            delay *= 8.0;
            if self.random.u8(..8) == 0 {
                delay *= 8.0; // as what was stuck in a proxy for most of a minute
            }
        }
        Some(Duration::from_micros((delay * 1000.0) as u64))
    }

    /// How long each copy of a message is under way that arrives: a few are sent twice.
    pub fn passages(&mut self, loss: f64) -> impl Iterator<Item = Duration> + use<E> {
        let twice = !self.calm && self.random.u8(..) < 6;
        let first = self.passage(loss);
        let second = if twice { self.passage(loss) } else { None };
        [first, second].into_iter().flatten()
    }
}

/// Between this many milliseconds.
pub fn millis(random: &mut Rng, range: Range<u64>) -> Duration {
    Duration::from_micros(random.u64(range.start * 1000..range.end * 1000))
}

/// An event, and when: what comes first is the greatest.
struct Scheduled<E> {
    at: Time,
    order: u64,
    what: E,
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl<E> Eq for Scheduled<E> {}
impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Scheduled<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}
