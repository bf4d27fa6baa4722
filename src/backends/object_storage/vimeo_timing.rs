//! For how long anybody must be waited for.

use std::time::Duration;

use crate::lock::{Content, Entry, Tombstone};

/// The longest that anybody is waited for, whatever a foreign entry says: twice the longest lease that there is.
const LONGEST_WAIT: Duration = Duration::from_secs(2 * 3600);

/// What the terms of Go's campaigners are measured by.
#[derive(Debug, Clone, Copy)]
pub(super) struct VimeoTiming {
    /// The longest lease, or term, of anybody in the election.
    pub(super) longest: Duration,
    /// By how much wall clocks may differ.
    pub(super) skew: Duration,
}

impl VimeoTiming {
    /// How long after it was written an entry of ours asks Go's campaigners to wait whose writer may lead for `life`, or has
    /// something left to wait.
    pub(super) fn expiry(self, life: Duration) -> Duration {
        match life {
            Duration::ZERO => Duration::ZERO,
            life => life.saturating_add(self.skew),
        }
    }

    /// The same for an entry that names nobody: whoever was evicted may be one of theirs, and not know.
    pub(super) fn told_of_an_eviction(self) -> Duration {
        self.expiry(self.longest.saturating_mul(2))
    }

    /// For how long must be waited for whoever is evicted, where it is longer than for anybody who is not known: for a campaigner
    /// of Go's, or one of ours that waits for such a one.
    pub(super) fn left_of(self, evicted: &Content) -> Option<Duration> {
        let left = match evicted {
            Content::Held(entry) => entry.ttl,
            Content::Vacant(Tombstone::Released { left, .. }) => *left,
            Content::Vacant(_) => Duration::ZERO,
        };
        Some(left).filter(|left| *left > self.longest)
    }

    /// For how long a Go campaigner must be waited for, from when its entry was first seen. `said`: for how long it says so, by the
    /// wall clock.
    ///
    /// Its term ends one term after it began to write, and its work goes by a context that is cancelled when a renewal
    /// that hangs has timed out, which is up to another term later. How long its term is does not stand in the entry. So it is
    /// taken for the longest that there may be; and where the entry's wall-clock time says that it ends later still, for that.
    pub(super) fn wait_for_go(self, said: Duration) -> Duration {
        let by_wall_clock = said.saturating_add(self.skew).saturating_add(self.longest);
        self.longest.saturating_mul(2).max(by_wall_clock).min(LONGEST_WAIT)
    }

    /// What is believed of a message that was put back in the place of later ones: that somebody holds the election. Whoever
    /// has the mark in it may long be out of office.
    pub(super) fn set_back(self, content: Content) -> Content {
        match content {
            Content::Held(entry) => {
                let life = entry.ttl.max(self.longest);
                Content::Held(Entry { mark: None, ttl: life, ..entry })
            }
            Content::Vacant(_) => Content::Vacant(Tombstone::Deleted),
        }
    }
}
