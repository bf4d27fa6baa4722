//! Detection of processes that cannot be signalled, such as those of `sudo`.
//!
//! A change of user is not reported, so the tree is polled; not by a process that may signal every
//! user.

use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};

use super::messages::GuardEvent;
use crate::process::{Cgroup, tree};

const FIRST: Duration = Duration::from_millis(100);
const INTERVAL: Duration = Duration::from_secs(1);
/// The capability to signal processes of every user.
const CAP_KILL: u32 = 5;

pub struct ForeignWatch {
    pub next: Instant,
    /// The last process found, by id and start time.
    seen: Option<(i32, u64)>,
}

impl ForeignWatch {
    pub fn start() -> Option<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let watch = || Self { next: BootClock.now() + FIRST, seen: None };
        (!has_capability(&status, CAP_KILL)).then(watch)
    }

    /// The event to send, when it is time to check.
    pub fn check(&mut self, now: Instant, cgroup: Option<&Cgroup>) -> Option<GuardEvent> {
        if now < self.next {
            return None;
        }
        self.next = now + INTERVAL;
        let found =
            tree::foreign(cgroup).map(|process| (process.pid.as_raw_pid(), process.started));
        let before = std::mem::replace(&mut self.seen, found);
        found.map(|(pid, _)| GuardEvent::Foreign { pid, lasting: before == found })
    }
}

fn has_capability(status: &str, number: u32) -> bool {
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    set >> number & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kill_capability_is_parsed() {
        assert!(has_capability("Name:\tx\nCapEff:\t000001ffffffffff\n", CAP_KILL));
        assert!(!has_capability("CapEff:\t0000000000000000\n", CAP_KILL));
        assert!(!has_capability("CapPrm:\t000001ffffffffff\n", CAP_KILL));
    }
}
