//! How soon a command that ended by itself may start again.

use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The pauses between the runs of a command, in one term or in several: each is twice as long as
/// the one before, unless the run was longer than any of them.
#[derive(Debug, Clone, Copy)]
pub struct Restarts {
    next_pause: Duration,
}

impl Default for Restarts {
    fn default() -> Self {
        Self { next_pause: FIRST_PAUSE }
    }
}

impl Restarts {
    /// The pause after a run that ends now.
    pub fn pause_after(&mut self, started: Instant) -> Duration {
        self.pause_after_run_of(BootClock.now().saturating_since(started))
    }

    fn pause_after_run_of(&mut self, length: Duration) -> Duration {
        if length > MAX_PAUSE {
            *self = Self::default();
        }
        let pause = self.next_pause;
        self.next_pause = (pause * 2).min(MAX_PAUSE);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_run_is_longer_than_any() {
        let mut restarts = Restarts::default();
        let mut pauses = |length: u64, runs| {
            let length = Duration::from_secs(length);
            let pause = || restarts.pause_after_run_of(length).as_secs();
            std::iter::repeat_with(pause).take(runs).collect::<Vec<_>>()
        };
        assert_eq!(pauses(0, 7), [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(pauses(30, 1), [30]);
        assert_eq!(pauses(31, 2), [1, 1]);
        assert_eq!(pauses(1, 2), [2, 4]);
    }
}
