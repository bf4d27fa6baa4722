//! The status of an election, on any lock.

use std::sync::Arc;
use std::time::Duration;

use incumbent::Advertisement;
use incumbent::lock::{Content, MoveInfo, Tombstone};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::text;
use crate::{output, time_format};

/// The cause of a vacancy after a holder that did not renew.
pub const EXPIRED: &str = "expired";

/// The resolution of times in older Kubernetes objects.
const COARSENESS: Duration = Duration::from_secs(1);

/// The last write to an election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionStatus {
    pub election: String,
    pub revision: u64,
    /// `None` if the lock does not report it.
    pub written: Option<OffsetDateTime>,
    pub state: LeaderStatus,
}

/// How far a lock has been written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The revision of the last write.
    pub last: u64,
    /// How many elections have an entry.
    pub entries: u64,
}

/// The leader, or the cause of the vacancy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaderStatus {
    Held(Holder),
    /// No leader, with the cause.
    Vacant(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub leader: String,
    /// `None` for a leader of another library.
    pub token: Option<u64>,
    pub since: Option<OffsetDateTime>,
    /// How long standbys wait if it does not renew; `None` if a server ends its term.
    pub lease: Option<Duration>,
    /// How long its last write entitles it to lead, if the record states it.
    pub ttl: Option<Duration>,
    /// Where it can be reached, if it advertises an address.
    pub advertisement: Option<Arc<Advertisement>>,
    /// What it states for moves.
    pub moves: MoveInfo,
    /// The number of its last write, if the lock reports it.
    pub writes: Option<u64>,
    /// Of a leader for life.
    pub pod: Option<Box<PodInfo>>,
}

/// The pod of a leader for life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodInfo {
    pub uid: String,
    /// The phase, as `kubectl` shows it.
    pub phase: String,
    pub gone: bool,
    /// The UID of the lock.
    pub lock: String,
}

impl LeaderStatus {
    /// What the content of an entry states. `expires`: the lock ends the terms of holders that do
    /// not renew.
    pub fn of(content: Content, revision: u64, expires: bool) -> Self {
        let entry = match content {
            Content::Held(entry) => entry,
            Content::Vacant(tombstone) => {
                return Self::Vacant(match tombstone {
                    Tombstone::Released { cause, .. } => {
                        cause.as_deref().unwrap_or("released").to_owned()
                    }
                    Tombstone::Expired => EXPIRED.to_owned(),
                    Tombstone::Deleted => "evicted".to_owned(),
                });
            }
        };
        let mark = entry.mark.as_ref();
        Self::Held(Holder {
            since: mark.and_then(|mark| time_format::from_unix_ms(mark.since_unix_ms)),
            lease: Some(entry.ttl).filter(|_| !expires),
            ttl: if expires { mark.map(|mark| mark.lease) } else { Some(entry.ttl) },
            advertisement: entry.advertisement,
            writes: mark.map(|mark| mark.write.number).filter(|_| !expires),
            moves: mark.map(|mark| (*mark.moves).clone()).unwrap_or_default(),
            // The first write of a term has no token yet: its revision is the token.
            ..Holder::new(
                &*entry.identity,
                mark.map(|mark| mark.token.map_or(revision, |token| token.0)),
            )
        })
    }
}

impl Holder {
    /// A holder of which nothing else is known.
    pub fn new(leader: impl Into<String>, token: Option<u64>) -> Self {
        Self {
            leader: leader.into(),
            token,
            since: None,
            lease: None,
            ttl: None,
            advertisement: None,
            moves: MoveInfo::default(),
            writes: None,
            pod: None,
        }
    }

    /// When the pause of the election ends, if it is in the future.
    pub fn paused_until(&self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        let until = self.moves.pause?.until_unix_ms / 1000 * 1000;
        time_format::from_unix_ms(until).filter(|end| *end > now)
    }

    /// Whether it is the same term; a term without a token lasts as long as its leader.
    pub fn is_same_term(&self, other: &Self) -> bool {
        match (&self.pod, &other.pod) {
            // The token is the version of the lock, which any write changes.
            (Some(a), Some(b)) => (&a.uid, &a.lock) == (&b.uid, &b.lock),
            // A Lease whose roll was called meanwhile does not show the token of a first write.
            _ => {
                let is_stated = self.token.is_some() && other.token.is_some();
                let is_same_start = !is_stated && self.since.is_some() && self.since == other.since;
                self.leader == other.leader && (self.token == other.token || is_same_start)
            }
        }
    }
}

impl ElectionStatus {
    pub fn holder(&self) -> Option<&Holder> {
        match &self.state {
            LeaderStatus::Held(holder) => Some(holder),
            LeaderStatus::Vacant(_) => None,
        }
    }

    /// Whether the last term ended because its holder did not renew.
    pub fn is_expired(&self) -> bool {
        matches!(&self.state, LeaderStatus::Vacant(cause) if cause == EXPIRED)
    }

    /// Whether the holder has not renewed for its lease, by this host's clock.
    pub fn is_overdue(&self) -> bool {
        let lease = self.holder().and_then(|holder| holder.lease);
        let age = self.written.map(time_format::age);
        lease.zip(age).is_some_and(|(lease, age)| age > lease.saturating_add(COARSENESS))
    }

    pub fn json(&self) -> Value {
        let holder = self.holder();
        let pod = holder.and_then(|holder| holder.pod.as_ref());
        let cause = match &self.state {
            LeaderStatus::Held(_) => None,
            LeaderStatus::Vacant(cause) => Some(cause),
        };
        let advertisement = holder.and_then(|holder| holder.advertisement.as_deref());
        let mut fields = json!({
            "election": self.election,
            "leader": holder.map(|holder| &holder.leader),
            "token": holder.and_then(|holder| holder.token),
            "since": holder.and_then(|holder| holder.since).map(time_format::rfc3339),
            "renewed": holder.filter(|_| pod.is_none()).and(self.written).map(time_format::rfc3339),
            "overdue": self.is_overdue(),
            "address": advertisement.map(Advertisement::address),
            "metadata": advertisement.map(Advertisement::metadata),
            "priority": holder.and_then(|holder| holder.moves.priority),
            "site": holder.and_then(|holder| holder.moves.site.as_deref()),
            "paused_until": holder.and_then(|holder| holder.paused_until(OffsetDateTime::now_utc()))
                .map(time_format::rfc3339),
            "vacant": cause,
            "revision": self.revision,
        });
        if let (Some(pod), Some(map)) = (pod, fields.as_object_mut()) {
            map.insert("pod".to_owned(), json!({"uid": pod.uid, "phase": pod.phase}));
        }
        fields
    }
}

/// A leader, formatted for the terminal.
pub fn shown(holder: &Holder) -> String {
    let leader = output::bold(text::printable(&holder.leader));
    match &holder.pod {
        Some(pod) => {
            let (uid, phase) = (text::printable(&pod.uid), text::printable(&pod.phase));
            format!("pod {leader} ({phase}, UID {uid})")
        }
        None => leader,
    }
}
