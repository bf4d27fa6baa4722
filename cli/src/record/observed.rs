//! The times in which every transition was seen.

use std::collections::VecDeque;
use std::time::Duration;

use time::OffsetDateTime;

use crate::history::{Observation, Period};

/// The longest time between two quick reads: more is a suspension, or a clock that was set.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// The longest time between two reads of any duration. Too much may happen in more.
const MAX_SLOW_PAUSE: Duration = Duration::from_secs(300);
/// The most periods that wait for the file.
const MAX_WAITING: usize = 1000;

/// The periods that are not written yet, of which the last one may still last.
#[derive(Debug, Default)]
pub struct Observed {
    periods: VecDeque<Observation>,
    is_interrupted: bool,
    /// How long the last read took.
    took: Duration,
}

impl Observed {
    /// Nothing is seen from now until the next read.
    pub fn interrupt(&mut self) {
        self.is_interrupted = true;
    }

    /// What is not written was overlooked up to this time.
    pub fn lose_until(&mut self, time: OffsetDateTime) {
        self.periods.retain(|observation| observation.id.is_some());
        self.is_interrupted = true;
        for observation in &mut self.periods {
            let period = &mut observation.period;
            period.end = period.end.min(time).max(period.begin);
        }
    }

    /// The lock was read at this time, and no transition was missed since the last read. Returns
    /// whether reads are quick enough for that.
    pub fn read(&mut self, now: OffsetDateTime, took: Duration) -> bool {
        // A lock that is slow is read less often. The read itself may have been suspended.
        let max_pause = MAX_PAUSE.saturating_add(self.took.saturating_mul(2)).min(MAX_SLOW_PAUSE);
        self.took = took;
        let last = self.periods.back_mut().filter(|_| !self.is_interrupted);
        let last = last.filter(|last| {
            let pause = now - last.period.end;
            !pause.is_negative() && pause.unsigned_abs() <= max_pause
        });
        match last {
            Some(last) => last.period.end = now,
            None => {
                if self.periods.len() == MAX_WAITING {
                    self.periods.pop_front();
                }
                let period = Period { begin: now, end: now };
                self.periods.push_back(Observation { id: None, period });
            }
        }
        self.is_interrupted = false;
        took <= MAX_SLOW_PAUSE
    }

    pub fn has_periods(&self) -> bool {
        !self.periods.is_empty()
    }

    /// Whether a period has no row yet.
    pub fn has_new(&self) -> bool {
        self.periods.iter().any(|observation| observation.id.is_none())
    }

    pub fn periods(&mut self) -> &mut [Observation] {
        self.periods.make_contiguous()
    }

    /// All have been written: only the last one may change.
    pub fn written(&mut self) {
        self.periods.drain(..self.periods.len().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_700_000_000 + seconds).expect("a time")
    }

    fn read(observed: &mut Observed, second: i64) {
        assert!(observed.read(at(second), Duration::ZERO));
    }

    fn periods(observed: &mut Observed) -> Vec<(i64, i64)> {
        let second = |time: OffsetDateTime| time.unix_timestamp() - 1_700_000_000;
        let all = observed.periods().iter().map(|observation| observation.period);
        all.map(|period| (second(period.begin), second(period.end))).collect()
    }

    #[test]
    fn failure_suspension_and_clock_that_is_set_end_a_period() {
        let mut observed = Observed::default();
        [0, 5, 10].into_iter().for_each(|second| read(&mut observed, second));
        assert_eq!(periods(&mut observed), [(0, 10)]);
        observed.interrupt();
        [15, 20].into_iter().for_each(|second| read(&mut observed, second));
        assert_eq!(periods(&mut observed), [(0, 10), (15, 20)]);
        [500, 505].into_iter().for_each(|second| read(&mut observed, second));
        [100, 101].into_iter().for_each(|second| read(&mut observed, second));
        assert_eq!(periods(&mut observed), [(0, 10), (15, 20), (500, 505), (100, 101)]);
        observed.written();
        read(&mut observed, 105);
        assert_eq!(periods(&mut observed), [(100, 105)]);
    }

    #[test]
    fn lost_transitions_leave_an_unknown_time() {
        let mut observed = Observed::default();
        [0, 5].into_iter().for_each(|second| read(&mut observed, second));
        observed.periods()[0].id = Some(1);
        observed.written();
        [10, 15].into_iter().for_each(|second| read(&mut observed, second));
        observed.lose_until(at(7));
        assert_eq!(periods(&mut observed), [(0, 7)]);
        read(&mut observed, 20);
        assert_eq!(periods(&mut observed), [(0, 7), (20, 20)]);
    }

    #[test]
    fn slow_lock_is_seen_and_a_suspension_is_not() {
        let slow = Duration::from_secs(60);
        let mut observed = Observed::default();
        [0, 61, 122].into_iter().for_each(|second| assert!(observed.read(at(second), slow)));
        assert_eq!(periods(&mut observed), [(0, 122)]);
        observed.read(at(1000), slow);
        assert_eq!(periods(&mut observed), [(0, 122), (1000, 1000)]);
        let too_slow = Duration::from_secs(400);
        [1401, 1802].into_iter().for_each(|second| assert!(!observed.read(at(second), too_slow)));
        assert_eq!(periods(&mut observed)[2..], [(1401, 1401), (1802, 1802)]);
    }
}
