//! How long a command may take to stop, and how that fits into a lease.

use std::time::Duration;

use incumbent::StartError;
use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::protocol::{Timing, TimingOptions};

use super::guard::StopTimes;
use crate::error::{CliError, Code};

/// The time before a deadline: first the command is asked, then what is left is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    pub asked: Duration,
    killed: Duration,
}

impl Grace {
    /// Checks that renewals, a third of the lease apart, still fit before it.
    pub fn new(lease: Duration, asked: Option<Duration>) -> Result<Self, CliError> {
        let killed = (lease / 24).clamp(Duration::from_millis(40), Duration::from_secs(1));
        let asked = asked.unwrap_or(lease / 8);
        let told = TimingOptions {
            lease: Some(lease),
            grace: Some(Duration::ZERO),
            ..TimingOptions::default()
        };
        let timing = Timing::new(told, lease).map_err(StartError::from)?;
        let room = timing.tenure() - timing.renewal();
        // Whoever asks for the longest spans is refused: their sum is none.
        if asked.saturating_add(killed) < room {
            return Ok(Self { asked, killed });
        }
        let most = Duration::from_millis((room - killed).as_millis().saturating_sub(1) as u64);
        let told = |duration| humantime::format_duration(duration);
        Err(CliError::new(
            Code::Usage,
            format!(
                "a grace of {} is too long for a lease of {}: at most {} fit before it ends",
                told(asked),
                told(lease),
                told(most)
            ),
        ))
    }

    /// What the election must know: so long before its deadline a term is told to end.
    pub fn total(&self) -> Duration {
        self.asked + self.killed
    }

    /// What the guard does by itself. It asks later than the campaigner would, so as not to overtake it.
    pub fn until(&self, deadline: Instant) -> StopTimes {
        let kill_at = deadline - self.killed;
        StopTimes { ask_at: kill_at - self.asked / 2, kill_at }
    }

    /// When to kill what is asked to stop now.
    pub fn kill_at(&self, deadline: Instant) -> Instant {
        (BootClock.now() + self.asked).min(deadline - self.killed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn it_fits_into_every_lease_by_default() {
        for lease in [SECOND, SECOND * 60, SECOND * 3600] {
            let grace = Grace::new(lease, None).unwrap();
            assert!(grace.total() <= lease / 6);
        }
    }

    #[test]
    fn a_grace_that_does_not_fit_is_told_with_what_would() {
        let refused = Grace::new(SECOND * 60, Some(SECOND * 50)).unwrap_err().to_string();
        let most = Duration::from_millis(38_759);
        assert_eq!(
            refused,
            "a grace of 50s is too long for a lease of 1m: at most 38s 759ms fit before it ends"
        );
        assert!(Grace::new(SECOND * 60, Some(Duration::MAX)).is_err());
        assert!(Grace::new(SECOND * 60, Some(most)).is_ok());
        assert!(Grace::new(SECOND * 60, Some(most + Duration::from_millis(1))).is_err());
    }
}
