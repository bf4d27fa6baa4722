//! Looking out for processes that may not be signalled, such as what `sudo` starts.
//!
//! Nothing tells of a change of user, so the tree is looked at. Who may signal everything need not look.

use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};

use super::cgroup::Cgroup;
use super::messages::GuardEvent;
use super::tree;

const FIRST: Duration = Duration::from_millis(100);
const AGAIN: Duration = Duration::from_secs(1);
/// The right to signal the processes of every user: its number among the capabilities.
const CAP_KILL: u32 = 5;

pub struct ForeignWatch {
    pub next: Instant,
    /// The one that was seen last, by its number and its start.
    seen: Option<(i32, u64)>,
}

impl ForeignWatch {
    pub fn start() -> Option<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let watch = || Self { next: BootClock.now() + FIRST, seen: None };
        (!has_capability(&status, CAP_KILL)).then(watch)
    }

    /// What is to be told, when it is time to look.
    pub fn look(&mut self, now: Instant, cgroup: Option<&Cgroup>) -> Option<GuardEvent> {
        if now < self.next {
            return None;
        }
        self.next = now + AGAIN;
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
    fn the_right_to_signal_everything_is_read() {
        assert!(has_capability("Name:\tx\nCapEff:\t000001ffffffffff\n", CAP_KILL));
        assert!(!has_capability("CapEff:\t0000000000000000\n", CAP_KILL));
        assert!(!has_capability("CapPrm:\t000001ffffffffff\n", CAP_KILL));
    }
}
