//! A campaigner that behaves like go-choria's without back-off.
//!
//! It campaigns every 0.75 of the bucket's TTL, creates or plainly updates, is told that it won 200 ms after its next
//! successful renewal, and gives up on any error. A request may hang for five seconds.

use std::time::Duration;

use incumbent::lock::Revision;

use super::server::Time;

/// How long a request may hang (nats.go's default).
pub const HANG: Duration = Duration::from_secs(5);
/// How long after its first renewal a winner is told.
pub const SETTLE: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub struct Choria {
    /// Which process this is.
    pub life: u32,
    pub revision: Option<Revision>,
    pub won: bool,
    pub cut_until: Time,
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
    pub fn interval(bucket_ttl: Duration) -> Duration {
        bucket_ttl * 3 / 4
    }

    /// Takes in an answer; `None` is any error. Answers whether it is to be told, in a moment, that it has won.
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
