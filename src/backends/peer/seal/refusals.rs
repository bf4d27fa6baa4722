//! Refused datagrams: counters, and a bounded rate of log lines.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::time::clock::Instant;

/// The minimum time between two log lines about one address.
const LOG_INTERVAL: Duration = Duration::from_secs(600);
/// The maximum number of addresses that are logged per `LOG_INTERVAL`.
const MAX_LOGGED: usize = 64;

/// How many datagrams a member has ignored, by reason. All counters are zero without a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RefusedDatagrams {
    /// Datagrams without a signature.
    pub unsigned: u64,
    /// Datagrams whose signature matches none of this member's keys.
    pub forged: u64,
    /// Duplicates, and datagrams older than the window. The network causes some of them by itself.
    pub replayed: u64,
}

/// Why a datagram is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::backends::peer) enum Reason {
    Unsigned,
    Forged,
    Replayed,
}

#[derive(Debug, Default)]
pub(in crate::backends::peer) struct Refusals {
    unsigned: AtomicU64,
    forged: AtomicU64,
    replayed: AtomicU64,
}

impl Refusals {
    pub fn count(&self, reason: Reason) {
        let counter = match reason {
            Reason::Unsigned => &self.unsigned,
            Reason::Forged => &self.forged,
            Reason::Replayed => &self.replayed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub fn counted(&self) -> RefusedDatagrams {
        RefusedDatagrams {
            unsigned: self.unsigned.load(Ordering::Relaxed),
            forged: self.forged.load(Ordering::Relaxed),
            replayed: self.replayed.load(Ordering::Relaxed),
        }
    }
}

/// The addresses that were logged recently.
#[derive(Debug, Default)]
pub(super) struct Logged(BTreeMap<IpAddr, Instant>);

impl Logged {
    /// Returns whether to log a refusal of this address now.
    pub fn is_due(&mut self, now: Instant, address: IpAddr) -> bool {
        self.0.retain(|_, at| *at + LOG_INTERVAL > now);
        if self.0.len() >= MAX_LOGGED || self.0.contains_key(&address) {
            return false;
        }
        self.0.insert(address, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_bounded() {
        let mut logged = Logged::default();
        let mut due = 0;
        for second in 0..1200_u64 {
            let now = Instant::from_origin(Duration::from_secs(second));
            for host in 0..200 {
                due += u32::from(logged.is_due(now, IpAddr::from([10, 0, 0, host])));
            }
        }
        assert_eq!(due, 128, "64 in ten minutes");
    }
}
