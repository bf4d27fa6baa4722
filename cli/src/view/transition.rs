//! Changes of leadership.

use std::time::Duration;

use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::elections::{ElectionStatus, Holder, LeaderStatus};
use crate::time_format;

/// A change of an election's leadership.
#[derive(Debug, Clone)]
pub struct Transition {
    pub election: String,
    pub time: OffsetDateTime,
    pub revision: u64,
    /// The former leader, if it was seen.
    pub before: Option<Holder>,
    pub now: LeaderStatus,
    /// Whether this is the first status, rather than a change.
    pub found: bool,
    /// How long there was no leader before this one, if both ends were seen.
    pub leaderless: Option<Duration>,
    /// How long the former leader had not renewed, if its lease expired.
    pub unrenewed: Option<Duration>,
}

impl Transition {
    /// A status that was read first at this time.
    pub fn found(status: ElectionStatus, time: OffsetDateTime) -> Self {
        Self {
            election: status.election,
            time,
            revision: status.revision,
            before: None,
            now: status.state,
            found: true,
            leaderless: None,
            unrenewed: None,
        }
    }

    /// The status that it led to.
    pub fn status(&self) -> ElectionStatus {
        let (election, state) = (self.election.clone(), self.now.clone());
        ElectionStatus { election, revision: self.revision, written: None, state }
    }

    /// The leader from now on, or the cause of the vacancy.
    pub fn outcome(&self) -> Result<&Holder, &str> {
        match &self.now {
            LeaderStatus::Held(holder) => Ok(holder),
            LeaderStatus::Vacant(cause) => Err(cause),
        }
    }

    /// The fields of `election watch -o json`.
    pub fn json(&self) -> Value {
        let (now, cause) = (self.outcome().ok(), self.outcome().err());
        json!({
            "time": time_format::rfc3339(self.time),
            "election": self.election,
            "event": if now.is_some() { "leader" } else { "vacant" },
            "leader": now.map(|now| &now.leader),
            "token": now.and_then(|now| now.token),
            "since": now.and_then(|now| now.since).map(time_format::rfc3339),
            "before": self.before.as_ref().map(|before| &before.leader),
            "cause": cause,
            "leaderless_ms": self.leaderless.map(millis),
            "unrenewed_ms": self.unrenewed.map(millis),
            "found": self.found,
            "revision": self.revision,
        })
    }
}

/// Whole milliseconds.
pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// How a leader was lost, in words.
pub fn lost(cause: &str) -> String {
    match cause {
        "expired" => "did not renew: expired".to_owned(),
        "evicted" => "was evicted".to_owned(),
        "deleted" => "lost its lock".to_owned(),
        "no owner" => "no longer owns the lock".to_owned(),
        "crashed" => "crashed: released by its sentinel".to_owned(),
        "released" => "released".to_owned(),
        cause => format!("released: {}", crate::text::printable(&cause.replace('_', " "))),
    }
}
