//! A candidate that behaves like go-choria's.
//!
//! It campaigns every 0.75 of the bucket's TTL, or more often with a back-off, creates or plainly
//! updates, reports that it won 200 ms after its next successful renewal, and gives up on any
//! error. A request may hang for five seconds.

use std::time::Duration;

use incumbent::lock::Revision;

use crate::server::Time;

/// How long a request may hang (nats.go's default).
pub const HANG: Duration = Duration::from_secs(5);
/// How long after its first renewal a winner reports "won".
pub const SETTLE: Duration = Duration::from_millis(200);

/// How often it campaigns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Every 0.75 of the TTL.
    Interval,
    /// Every 250 to 750 ms once it holds the entry, and every 250 ms to 7.5 s before (`FiveSec`
    /// with its jitter).
    BackOff,
}

#[derive(Debug, Default)]
pub struct Choria {
    /// Which process this is.
    pub life: u32,
    pub revision: Option<Revision>,
    pub won: bool,
    pub cut_until: Time,
    /// When its last campaign began.
    pub ticked: Time,
    pub campaigns: u64,
    /// The campaigns under way.
    pub unanswered: Vec<u64>,
}

/// What happens to it.
#[derive(Debug, Clone)]
pub enum Step {
    Tick,
    /// Its write arrives at the server.
    Arrive {
        campaign: u64,
        expected: Option<Revision>,
    },
    Answer {
        campaign: u64,
        answer: Option<Revision>,
    },
    Win,
}

impl Choria {
    pub fn interval(
        &self,
        pace: Pace,
        bucket_ttl: Duration,
        random: &mut fastrand::Rng,
    ) -> Duration {
        match pace {
            Pace::Interval => bucket_ttl * 3 / 4,
            Pace::BackOff if self.revision.is_some() => Duration::from_millis(random.u64(250..750)),
            Pace::BackOff => Duration::from_millis(random.u64(250..7500)),
        }
    }

    /// Takes in an answer; `None` is any error. Returns whether it is about to report that it has
    /// won.
    pub fn answer(&mut self, answer: Option<Revision>) -> bool {
        let Some(revision) = answer else {
            self.lose();
            return false;
        };
        let renewed = self.revision.replace(revision).is_some();
        renewed && !self.won
    }

    pub fn lose(&mut self) {
        self.revision = None;
        self.won = false;
    }

    pub fn crash(&mut self) {
        self.life += 1;
        self.unanswered.clear();
        self.lose();
    }
}
