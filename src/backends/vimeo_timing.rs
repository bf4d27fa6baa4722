//! How long to wait for a holder.

use std::time::Duration;

/// The maximum wait, whatever a foreign entry states: twice the maximum lease of the protocol.
const MAX_WAIT: Duration = Duration::from_secs(2 * 3600);

/// The bounds on the terms of Go's candidates.
#[derive(Debug, Clone, Copy)]
pub struct VimeoTiming {
    /// The maximum lease, or term, of all candidates in the election.
    pub longest: Duration,
    /// The maximum difference of wall clocks.
    pub skew: Duration,
}

impl VimeoTiming {
    /// Returns how long after its write an entry of this library requires Go's candidates to wait,
    /// if its writer may lead, or has to be waited for, for `life`.
    pub fn expiry(self, life: Duration) -> Duration {
        match life {
            Duration::ZERO => Duration::ZERO,
            life => life.saturating_add(self.skew),
        }
    }

    /// Returns how long to wait for a Go candidate from when its entry was first seen. `stated`:
    /// the wait that the entry states, by the wall clock.
    ///
    /// The candidate's term ends one term after it began to write. Its work uses a context that is
    /// cancelled when a hanging renewal has timed out, up to another term later. The entry does not
    /// contain the length of the term, so the maximum is assumed; if the entry's wall-clock time
    /// states a later end, that one is used.
    pub fn wait_for_go(self, stated: Duration) -> Duration {
        let by_wall_clock = stated.saturating_add(self.skew).saturating_add(self.longest);
        self.longest.saturating_mul(2).max(by_wall_clock).min(MAX_WAIT)
    }
}
