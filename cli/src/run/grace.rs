//! The grace: how long a command may take to stop, within the lease.

use std::time::Duration;

use incumbent::StartError;
use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::protocol::{Timing, TimingOptions};

use crate::error::{CliError, Code};
use crate::process::StopTimes;

/// The time before a deadline: first for the stop signal, then for SIGKILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    pub stop: Duration,
    kill: Duration,
}

impl Grace {
    /// Checks that renewals, a third of the lease apart, fit before it.
    pub fn new(lease: Duration, stop: Option<Duration>) -> Result<Self, CliError> {
        let kill = kill_span(lease);
        let stop = stop.unwrap_or(lease / 8);
        let timing = timing(lease)?;
        let room = timing.validity() - timing.renewal();
        // Very long durations are refused, as their sum would overflow.
        if stop.saturating_add(kill) < room {
            return Ok(Self { stop, kill });
        }
        let max = Duration::from_millis((room - kill).as_millis().saturating_sub(1) as u64);
        let format = |duration| humantime::format_duration(duration);
        Err(CliError::new(
            Code::Usage,
            format!(
                "a grace of {} is too long for a lease of {}: use at most {}",
                format(stop),
                format(lease),
                format(max)
            ),
        ))
    }

    /// The grace of the election: a term is ended this long before its deadline.
    pub fn total(&self) -> Duration {
        self.stop + self.kill
    }

    /// The schedule of the guard. It sends the stop signal later than the candidate would.
    pub fn until(&self, deadline: Instant) -> StopTimes {
        let kill_at = deadline - self.kill;
        StopTimes { ask_at: kill_at - self.stop / 2, kill_at }
    }

    /// The longest timeout of a watchdog that is fed at each renewal, of which the response may
    /// take an eighth of the lease: the machine is reset before the command would be killed.
    pub fn longest_watchdog(&self, lease: Duration) -> Duration {
        let validity = timing(lease).map_or(Duration::ZERO, |timing| timing.validity());
        validity.saturating_sub(self.kill + lease / 8)
    }

    /// Whether the command has its grace before this watchdog fires, after a renewal that failed.
    pub fn fits_watchdog(&self, lease: Duration, timeout: Duration) -> bool {
        let renewal = timing(lease).map_or(lease, |timing| timing.renewal());
        self.total() + self.kill < timeout.saturating_sub(renewal)
    }

    /// When to kill what is stopped now.
    pub fn kill_at(&self, deadline: Instant) -> Instant {
        (BootClock.now() + self.stop).min(deadline - self.kill)
    }
}

/// How long before the deadline SIGKILL is sent.
fn kill_span(lease: Duration) -> Duration {
    (lease / 24).clamp(Duration::from_millis(40), Duration::from_secs(1))
}

/// How much later than a process of its own that is late the candidate acts itself: well before the
/// deadline.
pub fn late_margin(lease: Duration) -> Duration {
    (kill_span(lease) / 4).min(Duration::from_millis(50))
}

/// The timing of an election with this lease.
fn timing(lease: Duration) -> Result<Timing, StartError> {
    let options = TimingOptions {
        lease: Some(lease),
        grace: Some(Duration::ZERO),
        ..TimingOptions::default()
    };
    Ok(Timing::new(options, lease)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn default_grace_fits_into_every_lease() {
        for lease in [SECOND, SECOND * 60, SECOND * 3600] {
            let grace = Grace::new(lease, None).unwrap();
            assert!(grace.total() <= lease / 6);
        }
    }

    #[test]
    fn the_candidate_acts_itself_before_the_deadline() {
        for ms in [200, 250, 500, 1_000, 1_200, 5_000, 60_000] {
            let lease = Duration::from_millis(ms);
            let grace = Grace::new(lease, None).unwrap();
            let deadline = BootClock.now() + lease;
            let late = grace.until(deadline).kill_at + late_margin(lease);
            assert!(deadline.saturating_since(late) >= Duration::from_millis(30), "{ms} ms");
        }
        assert_eq!(late_margin(SECOND * 60), Duration::from_millis(50));
    }

    #[test]
    fn too_long_grace_is_refused_with_the_maximum() {
        let refused = Grace::new(SECOND * 60, Some(SECOND * 50)).unwrap_err().to_string();
        let most = Duration::from_millis(38_759);
        assert_eq!(refused, "a grace of 50s is too long for a lease of 1m: use at most 38s 759ms");
        assert!(Grace::new(SECOND * 60, Some(Duration::MAX)).is_err());
        assert!(Grace::new(SECOND * 60, Some(most)).is_ok());
        assert!(Grace::new(SECOND * 60, Some(most + Duration::from_millis(1))).is_err());
    }
}
