//! What observers see of an election: who leads it, or why nobody does.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Advertisement, Content, MoveInfo, Record, Revision, Token, Tombstone};

/// The resolution of times in older Kubernetes objects.
const COARSENESS: Duration = Duration::from_secs(1);

/// The last write to an election, as its entry states it.
///
/// It is what was written, not who may lead now: where a lock does not end the entries of holders
/// that do not renew, see [`is_overdue`](Self::is_overdue).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionRecord {
    /// The name of the election.
    pub election: String,
    /// The revision of the write.
    pub revision: Revision,
    /// When it was written, by the clock of the lock or of its writer; `None` if the lock does not
    /// report it.
    pub written: Option<SystemTime>,
    /// The holder, or the cause of the vacancy.
    pub state: ElectionState,
}

/// The holder of an election, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElectionState {
    /// A candidate holds the entry.
    Held(Holder),
    /// Nobody does.
    Vacant(Vacancy),
}

/// The holder of an election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its identity, without control characters.
    pub identity: String,
    /// The token of its term; `None` for a candidate of another program.
    pub token: Option<Token>,
    /// When its term began, by its own clock.
    pub since: Option<SystemTime>,
    /// How long standbys wait if it does not renew; `None` if the lock ends its term.
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
    pub pod: Option<Box<HolderPod>>,
}

/// The pod of a leader for life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderPod {
    /// The UID of the pod.
    pub uid: String,
    /// The phase, as `kubectl` shows it.
    pub phase: String,
    /// Whether the pod no longer exists.
    pub gone: bool,
    /// The UID of the lock.
    pub lock: String,
}

/// Why an election has no holder. Its `Display` is a word, or a few.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vacancy {
    /// The holder did not renew.
    Expired,
    /// An operator or another program removed the holder.
    Evicted,
    /// The holder released the entry, for this reason if it states one, as in `stopped`.
    Released(Option<Arc<str>>),
    /// There was no holder yet.
    New,
    /// There is no entry.
    Absent,
    /// The pod of the holder, or all that the lock had, is gone.
    Gone,
    /// The lock object was deleted.
    Deleted,
    /// The lock object names no owner.
    NoOwner,
}

impl Vacancy {
    /// The cause, as in `expired`, or the word that the holder stated.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Expired => "expired",
            Self::Evicted => "evicted",
            Self::Released(cause) => cause.as_deref().unwrap_or("released"),
            Self::New => "new",
            Self::Absent => "absent",
            Self::Gone => "gone",
            Self::Deleted => "deleted",
            Self::NoOwner => "no owner",
        }
    }
}

impl fmt::Display for Vacancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The cause that is shown as this text.
impl From<&str> for Vacancy {
    fn from(text: &str) -> Self {
        let known = [
            Self::Expired,
            Self::Evicted,
            Self::Released(None),
            Self::New,
            Self::Absent,
            Self::Gone,
            Self::Deleted,
            Self::NoOwner,
        ];
        let found = known.into_iter().find(|cause| cause.as_str() == text);
        found.unwrap_or_else(|| Self::Released(Some(text.into())))
    }
}

impl From<&Tombstone> for Vacancy {
    fn from(tombstone: &Tombstone) -> Self {
        match tombstone {
            Tombstone::Released { cause, .. } => cause.as_deref().unwrap_or("released").into(),
            Tombstone::Expired => Self::Expired,
            Tombstone::Deleted => Self::Evicted,
        }
    }
}

impl ElectionState {
    /// What the content of an entry states. `expires`: the lock ends the terms of holders that do
    /// not renew.
    pub fn of(content: Content, revision: Revision, expires: bool) -> Self {
        let entry = match content {
            Content::Held(entry) => entry,
            Content::Vacant(tombstone) => return Self::Vacant((&tombstone).into()),
        };
        let mark = entry.mark.as_ref();
        // The first write of a term has no token yet: its revision is the token.
        let token = mark.map(|mark| mark.token.unwrap_or(revision.into()));
        Self::Held(Holder {
            since: mark.and_then(|mark| from_unix(Duration::from_millis(mark.since_unix_ms))),
            lease: Some(entry.ttl).filter(|_| !expires),
            ttl: if expires { mark.map(|mark| mark.lease) } else { Some(entry.ttl) },
            advertisement: entry.advertisement,
            writes: mark.map(|mark| mark.write.number).filter(|_| !expires),
            moves: mark.map(|mark| (*mark.moves).clone()).unwrap_or_default(),
            ..Holder::new(&*entry.identity, token)
        })
    }
}

impl Holder {
    /// A holder of which nothing else is known.
    pub fn new(identity: impl Into<String>, token: Option<Token>) -> Self {
        Self {
            identity: identity.into(),
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

    /// When the pause of the election ends, in whole seconds, if that is after `now`.
    pub fn paused_until(&self, now: SystemTime) -> Option<SystemTime> {
        let until = Duration::from_secs(self.moves.pause?.until_unix_ms / 1000);
        from_unix(until).filter(|end| *end > now)
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
                self.identity == other.identity && (self.token == other.token || is_same_start)
            }
        }
    }
}

impl ElectionRecord {
    /// A vacant election: what is known without an entry.
    pub fn vacant(election: impl Into<String>, revision: Revision, cause: Vacancy) -> Self {
        let state = ElectionState::Vacant(cause);
        Self { election: election.into(), revision, written: None, state }
    }

    /// What a [read](super::Lock::read) of a lock shows. `expires`: as in [`ElectionState::of`].
    pub fn of(election: &str, record: Record, expires: bool) -> Self {
        let Record { revision, content } = record;
        let state = ElectionState::of(content, revision, expires);
        Self { election: election.to_owned(), revision, written: None, state }
    }

    /// The holder, if there is one.
    pub fn holder(&self) -> Option<&Holder> {
        match &self.state {
            ElectionState::Held(holder) => Some(holder),
            ElectionState::Vacant(_) => None,
        }
    }

    /// The cause of the vacancy, if there is no holder.
    pub fn vacancy(&self) -> Option<&Vacancy> {
        match &self.state {
            ElectionState::Held(_) => None,
            ElectionState::Vacant(cause) => Some(cause),
        }
    }

    /// Whether the last term ended because its holder did not renew.
    pub fn is_expired(&self) -> bool {
        self.vacancy() == Some(&Vacancy::Expired)
    }

    /// Whether the holder has not renewed for its lease, by this host's clock.
    pub fn is_overdue(&self, now: SystemTime) -> bool {
        let lease = self.holder().and_then(|holder| holder.lease);
        let age = self.written.map(|written| now.duration_since(written).unwrap_or_default());
        lease.zip(age).is_some_and(|(lease, age)| age > lease.saturating_add(COARSENESS))
    }

    /// The record as JSON, as the program prints it.
    pub fn to_json(&self, now: SystemTime) -> Value {
        let holder = self.holder();
        let pod = holder.and_then(|holder| holder.pod.as_ref());
        let mut fields = json!({
            "election": self.election,
            "renewed": holder.filter(|_| pod.is_none()).and(self.written).and_then(rfc3339),
            "overdue": self.is_overdue(now),
            "priority": holder.and_then(|holder| holder.moves.priority),
            "site": holder.and_then(|holder| holder.moves.site.as_deref()),
            "paused_until": holder.and_then(|holder| holder.paused_until(now)).and_then(rfc3339),
            "vacant": self.vacancy().map(Vacancy::as_str),
            "revision": self.revision.0,
        });
        if let (Some(map), Value::Object(who)) = (fields.as_object_mut(), Holder::to_json(holder)) {
            map.extend(who);
            map.extend(
                pod.map(|pod| ("pod".to_owned(), json!({"uid": pod.uid, "phase": pod.phase}))),
            );
        }
        fields
    }
}

impl Holder {
    /// Who leads, since when, by which token and where, as JSON: null where that is unknown.
    pub fn to_json(holder: Option<&Self>) -> Value {
        let advertisement = holder.and_then(|holder| holder.advertisement.as_deref());
        json!({
            "leader": holder.map(|holder| &holder.identity),
            "token": holder.and_then(|holder| holder.token).map(|token| token.0),
            "since": holder.and_then(|holder| holder.since).and_then(rfc3339),
            "address": advertisement.map(Advertisement::address),
            "metadata": advertisement.map(Advertisement::metadata),
        })
    }
}

/// A time after the Unix epoch; `None` if no calendar has it.
pub(crate) fn from_unix(since: Duration) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(since).filter(|time| date_of(*time).is_some())
}

fn date_of(time: SystemTime) -> Option<OffsetDateTime> {
    let nanos = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i128::try_from(since.as_nanos()).ok()?,
        Err(before) => -i128::try_from(before.duration().as_nanos()).ok()?,
    };
    OffsetDateTime::from_unix_timestamp_nanos(nanos).ok()
}

fn rfc3339(time: SystemTime) -> Option<String> {
    date_of(time)?.format(&Rfc3339).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vacancy_is_read_as_it_is_shown() {
        for text in ["expired", "evicted", "released", "new", "no owner", "stopped", ""] {
            assert_eq!(Vacancy::from(text).as_str(), text);
        }
        assert_eq!(Vacancy::from("expired"), Vacancy::Expired);
        assert_eq!(Vacancy::from("released"), Vacancy::Released(None));
    }

    #[test]
    fn times_that_no_calendar_has_are_unknown() {
        assert_eq!(from_unix(Duration::MAX), None);
        assert_eq!(from_unix(Duration::from_millis(u64::MAX)), None);
        let time = from_unix(Duration::from_millis(1_635_787_805_250)).and_then(rfc3339);
        assert_eq!(time.as_deref(), Some("2021-11-01T17:30:05.25Z"));
    }
}
