//! The health of a candidate, by the results of its check.

use std::num::NonZeroU32;
use std::sync::Arc;

/// Turns the results of a check into health, so that a single failure changes nothing.
///
/// A candidate is sick until its first check passes, and after as many failures in a row as are
/// allowed. It is healthy again after as many passes in a row.
///
/// ```
/// use incumbent::protocol::Health;
///
/// let mut health = Health::new(2.try_into()?);
/// assert!(!health.is_healthy()); // not checked yet
/// health.record(Ok(()));
/// health.record(Err("disk full".into()));
/// assert!(health.is_healthy());
/// health.record(Err("disk full".into()));
/// assert_eq!(health.failure(), Some("disk full"));
/// # Ok::<(), std::num::TryFromIntError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Health {
    threshold: NonZeroU32,
    state: State,
    /// Results in a row that speak against the state.
    against: u32,
    last_failure: Option<Arc<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unchecked,
    Healthy,
    Unhealthy,
}

impl Health {
    /// `threshold`: how many results in a row change the health.
    pub fn new(threshold: NonZeroU32) -> Self {
        Self { threshold, state: State::Unchecked, against: 0, last_failure: None }
    }

    /// Takes the result of a check: its failure in one line. Returns whether the health changed.
    pub fn record(&mut self, result: Result<(), Arc<str>>) -> bool {
        let passed = result.is_ok();
        if let Err(failure) = result {
            self.last_failure = Some(failure);
        }
        let (agrees, next) = match self.state {
            State::Unchecked if passed => (false, State::Healthy),
            State::Unchecked => (false, State::Unhealthy),
            State::Healthy => (passed, State::Unhealthy),
            State::Unhealthy => (!passed, State::Healthy),
        };
        if agrees {
            self.against = 0;
            return false;
        }
        self.against += 1;
        let before = self.is_healthy();
        if self.state == State::Unchecked || self.against >= self.threshold.get() {
            (self.state, self.against) = (next, 0);
        }
        before != self.is_healthy()
    }

    /// Whether the candidate may lead before others.
    pub fn is_healthy(&self) -> bool {
        self.state == State::Healthy
    }

    /// Why it is sick; `None` if it is healthy, or was not checked yet.
    pub fn failure(&self) -> Option<&str> {
        self.last_failure.as_deref().filter(|_| self.state == State::Unhealthy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(results: &[bool]) -> Vec<bool> {
        let mut health = Health::new(NonZeroU32::new(3).expect("not zero"));
        let mut healthy = |passed: &bool| {
            health.record(passed.then_some(()).ok_or_else(|| "no".into()));
            health.is_healthy()
        };
        results.iter().map(&mut healthy).collect()
    }

    #[test]
    fn the_first_check_decides_alone() {
        assert_eq!(after(&[true]), [true]);
        assert_eq!(after(&[false, true, true, true]), [false, false, false, true]);
    }

    #[test]
    fn only_as_many_results_in_a_row_change_the_health() {
        let mixed = [true, false, false, true, false, false, false, true, true, false, true, true];
        let healthy = after(&mixed);
        assert_eq!(healthy[..6], [true; 6]);
        assert_eq!(healthy[6..], [false; 6]);
        assert_eq!(after(&[true, false, false, false, true, true, true]).last(), Some(&true));
    }
}
