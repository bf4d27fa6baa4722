//! One election: its term, its candidates, and its changes of leadership.

use std::cmp::Reverse;
use std::time::Duration;

use incumbent::CandidateInfo;
use incumbent::lock::Revision;
use incumbent::lock::{CoolDownLeft, Role};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::time::Instant;

use super::observation::Moment;
use crate::lock::elections::{ElectionRecord, ElectionState, Holder, Vacancy};
use crate::output::time_format::{self, millis};

/// An election, and what is known of its term.
#[derive(Debug)]
pub struct ElectionView {
    pub(super) status: ElectionRecord,
    /// Since when the record is unchanged.
    pub(super) unchanged_since: Instant,
    /// Whether the holder has not renewed in time.
    pub(super) is_expired: bool,
    /// When the term ends unless the leader renews.
    pub(super) deadline: Option<Deadline>,
    /// When it was last written.
    pub(super) written: Stamp,
    /// When the vacancy began, if it was seen.
    pub(super) vacancy: Option<Stamp>,
    /// The answers to the last roll call.
    pub(super) candidates: Option<Candidates>,
    /// Since when the lock has no record of it.
    pub(super) gone_since: Option<Instant>,
}

/// The end of a term without another renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    pub at: Instant,
    /// The time from a renewal to the deadline.
    pub lease: Duration,
}

/// When something happened.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    /// When it was learned, if it was learned as it happened.
    pub seen: Option<Instant>,
    /// By the lock's own clock.
    pub lock: Option<OffsetDateTime>,
}

impl Stamp {
    /// The time until a later one, by the lock's clock if it has one.
    pub fn until(&self, later: &Self) -> Option<Duration> {
        match (self.lock, later.lock) {
            (Some(begin), Some(end)) => Some(Duration::try_from(end - begin).unwrap_or_default()),
            _ => Some(later.seen?.saturating_duration_since(self.seen?)),
        }
    }
}

impl ElectionView {
    pub fn name(&self) -> &str {
        &self.status.election
    }

    /// The status as it was read: its holder may have expired.
    pub fn status(&self) -> &ElectionRecord {
        &self.status
    }

    /// The leader, unless it has expired.
    pub fn holder(&self) -> Option<&Holder> {
        self.status.holder().filter(|_| !self.is_expired)
    }

    /// The cause of the vacancy, if there is no leader.
    pub fn vacant(&self) -> Option<&str> {
        self.cause().map(Vacancy::as_str)
    }

    /// The typed cause of the vacancy, if there is no leader.
    pub(super) fn cause(&self) -> Option<&Vacancy> {
        match &self.status.state {
            ElectionState::Vacant(cause) => Some(cause),
            ElectionState::Held(_) => self.is_expired.then_some(&Vacancy::Expired),
        }
    }

    pub fn candidates(&self) -> Option<&Candidates> {
        self.candidates.as_ref()
    }

    pub fn deadline(&self) -> Option<Deadline> {
        self.deadline.filter(|_| self.holder().is_some())
    }

    /// The time to the deadline, zero once it has passed; `None` without a leader or a lease.
    pub fn remaining(&self, now: Moment) -> Option<Duration> {
        Some(self.deadline()?.at.saturating_duration_since(now.at))
    }

    /// For how long there has been no leader, if that is known.
    pub fn leaderless(&self, now: Moment) -> Option<Duration> {
        let vacancy = self.vacancy.filter(|_| self.holder().is_none())?;
        match vacancy.seen {
            Some(seen) => Some(now.at.saturating_duration_since(seen)),
            None => Some(now.age(vacancy.lock?)),
        }
    }

    /// When the holder expires without another write; `None` if the server ends its term.
    pub(super) fn expires_at(&self) -> Option<Instant> {
        Some(time_format::after(self.unchanged_since, self.holder()?.lease?))
    }

    /// Whether the record is the same, although its object may have been written.
    pub(super) fn is_same_record(&self, status: &ElectionRecord) -> bool {
        self.status.state == status.state && self.status.written == status.written
    }

    /// The fields of `election info -o json`, and those that only a view knows.
    pub fn json(&self, now: Moment) -> Value {
        let wall = now.wall.into();
        let mut fields = match self.is_expired {
            false => self.status.to_json(wall),
            true => {
                let state = ElectionState::Vacant(Vacancy::Expired);
                ElectionRecord { state, ..self.status.clone() }.to_json(wall)
            }
        };
        let deadline = self.deadline();
        let leader =
            self.holder().zip(self.candidates()).and_then(|(holder, roll)| roll.of(holder));
        let more = json!({
            "deadline": deadline.and_then(|end| now.wall_at(end.at)).map(time_format::rfc3339),
            "remaining_ms": self.remaining(now).map(millis),
            "lease_ms": deadline.map(|end| millis(end.lease)),
            "leaderless_ms": self.leaderless(now).map(millis),
            "role": leader.map(|leader| leader.role.as_str()),
            "standing": leader.map(|leader| leader.readiness.as_str()),
            "candidates": self.candidates().map(Candidates::json),
        });
        if let (Some(fields), Value::Object(more)) = (fields.as_object_mut(), more) {
            fields.extend(more);
        }
        // A page names the term by it.
        if let Some(pod) = self.holder().and_then(|holder| holder.pod.as_ref()) {
            fields["pod"]["lock"] = pod.lock.clone().into();
        }
        fields
    }
}

/// The candidates that answered a roll call: the leader first, then the standbys in the order of
/// succession.
#[derive(Debug, Clone)]
pub struct Candidates {
    pub read: Moment,
    list: Vec<CandidateInfo>,
}

impl Candidates {
    pub fn new(read: Moment, mut list: Vec<CandidateInfo>) -> Self {
        // The order in which a leader that hands over picks its successor.
        list.sort_by_cached_key(|info| {
            (!is_leader(info), info.readiness, Reverse((info.priority, info.nonce.0)))
        });
        Self { read, list }
    }

    pub fn list(&self) -> &[CandidateInfo] {
        &self.list
    }

    /// What this leader states of itself.
    pub fn of(&self, leader: &Holder) -> Option<&CandidateInfo> {
        self.list.iter().find(|info| is_leader(info) && *info.identity == *leader.identity)
    }

    pub fn json(&self) -> Value {
        self.list.iter().map(candidate_json).collect()
    }
}

fn is_leader(info: &CandidateInfo) -> bool {
    matches!(info.role, Role::Leader | Role::Draining)
}

/// When a candidate started.
pub fn started(info: &CandidateInfo) -> Option<String> {
    time_format::from_unix_ms(info.since_unix_ms).map(time_format::rfc3339)
}

/// The fields of `election members -o json`.
pub fn candidate_json(info: &CandidateInfo) -> Value {
    json!({
        "identity": info.identity,
        "nonce": info.nonce.to_string(),
        "role": info.role.as_str(),
        "standing": info.readiness.as_str(),
        "site": info.site,
        "priority": info.priority,
        "since": started(info),
        "version": info.version,
        "leader": info.leader,
        "token": info.token.map(|token| token.0),
        "cool_down": info.cool_down.as_ref().map(cool_down_json),
    })
}

/// What is left of the cool-down of a holder.
pub fn cool_down_json(left: &CoolDownLeft) -> Value {
    json!({"left_ms": left.left_ms, "reason": left.reason})
}

/// A change of an election's leadership.
#[derive(Debug, Clone)]
pub struct Transition {
    pub election: String,
    pub time: OffsetDateTime,
    pub revision: Revision,
    /// The former leader, if it was seen.
    pub before: Option<Holder>,
    pub now: ElectionState,
    /// Whether this is the first status, rather than a change.
    pub found: bool,
    /// How long there was no leader before this one, if both ends were seen.
    pub leaderless: Option<Duration>,
    /// How long the former leader had not renewed, if its lease expired.
    pub unrenewed: Option<Duration>,
}

impl Transition {
    /// A status that was read first at this time.
    pub fn found(status: ElectionRecord, time: OffsetDateTime) -> Self {
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
    pub fn status(&self) -> ElectionRecord {
        let (election, state) = (self.election.clone(), self.now.clone());
        ElectionRecord { election, revision: self.revision, written: None, state }
    }

    /// The leader from now on, or the cause of the vacancy.
    pub fn outcome(&self) -> Result<&Holder, &str> {
        match &self.now {
            ElectionState::Held(holder) => Ok(holder),
            ElectionState::Vacant(cause) => Err(cause.as_str()),
        }
    }

    /// The fields of `election watch -o json`.
    pub fn json(&self) -> Value {
        let (now, cause) = (self.outcome().ok(), self.outcome().err());
        json!({
            "time": time_format::rfc3339(self.time),
            "election": self.election,
            "event": if now.is_some() { "leader" } else { "vacant" },
            "leader": now.map(|now| &now.identity),
            "token": now.and_then(|now| now.token),
            "since": now.and_then(|now| now.since).map(time_format::utc).map(time_format::rfc3339),
            "before": self.before.as_ref().map(|before| &before.identity),
            "cause": cause,
            "leaderless_ms": self.leaderless.map(millis),
            "unrenewed_ms": self.unrenewed.map(millis),
            "found": self.found,
            "revision": self.revision,
        })
    }
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
        cause => format!("released: {}", crate::output::text::printable(&cause.replace('_', " "))),
    }
}
