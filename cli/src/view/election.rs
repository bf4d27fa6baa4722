//! One election of a view.

use std::time::Duration;

use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::time::Instant;

use super::candidates::Candidates;
use super::moment::Moment;
use super::transition::millis;
use crate::elections::{EXPIRED, ElectionStatus, Holder, LeaderStatus};
use crate::time_format;

/// An election, and what is known of its term.
#[derive(Debug)]
pub struct ElectionView {
    pub(super) status: ElectionStatus,
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
    /// Since when the lock has no trace of it.
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
    pub fn status(&self) -> &ElectionStatus {
        &self.status
    }

    /// The leader, unless it has expired.
    pub fn holder(&self) -> Option<&Holder> {
        self.status.holder().filter(|_| !self.is_expired)
    }

    /// The cause of the vacancy, if there is no leader.
    pub fn vacant(&self) -> Option<&str> {
        match &self.status.state {
            LeaderStatus::Vacant(cause) => Some(cause),
            LeaderStatus::Held(_) => self.is_expired.then_some(EXPIRED),
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
    pub(super) fn is_same_record(&self, status: &ElectionStatus) -> bool {
        self.status.state == status.state && self.status.written == status.written
    }

    /// The fields of `election info -o json`, and those that only a view knows.
    pub fn json(&self, now: Moment) -> Value {
        let mut fields = match self.is_expired {
            false => self.status.json(),
            true => {
                let state = LeaderStatus::Vacant(EXPIRED.to_owned());
                ElectionStatus { state, ..self.status.clone() }.json()
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
            "standing": leader.map(|leader| leader.standing.as_str()),
            "paused_until": self.holder().and_then(|holder| holder.paused_until(now.wall))
                .map(time_format::rfc3339),
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
