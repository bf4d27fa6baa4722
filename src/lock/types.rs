//! The contents of an entry, and the capabilities of a lock.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Advertisement;
use crate::time::timing::{COMMON_MIN_LEASE, Timing, TimingError, TimingOptions, whole_millis};

/// The most bytes of an identity that are shown.
pub(crate) const MAX_IDENTITY_LEN: usize = 1024;

/// The longest name of a site, in bytes.
pub(crate) const MAX_SITE_LEN: usize = 128;

/// The version of an entry: every write to an election gives it a greater one.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Revision(pub u64);

/// The fencing token of a term: the revision at which its holder created the entry.
///
/// A later term has a greater token, so a resource that remembers the greatest token it has seen
/// can refuse the writes of an earlier leader.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Token(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Revision> for Token {
    fn from(create: Revision) -> Self {
        Self(create.0)
    }
}

/// What distinguishes a candidate from every other, whatever their identities: drawn at random at
/// each start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub struct Nonce(pub u64);

impl Nonce {
    /// No candidate: of a release that somebody else wrote in the place of the holder, whose work
    /// may continue for the time that the release leaves.
    pub const NOBODY: Self = Self(0);
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Which write of which candidate an entry is, so that a write whose response was lost can be
/// recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub struct WriteId {
    /// The candidate.
    pub nonce: Nonce,
    /// A number that is greater than those of its earlier writes.
    pub number: u64,
}

/// What a candidate of this library adds to the identity in an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub struct Mark {
    /// Which write this is.
    pub write: WriteId,
    /// How long from the write its writer may lead, or must be waited for.
    pub lease: Duration,
    /// The term's token; `None` in the write that creates the entry, whose own revision it is.
    pub token: Option<Token>,
    /// When the term began, by the wall clock of its holder, in milliseconds since the Unix epoch:
    /// for people, never compared.
    pub since_unix_ms: u64,
    /// What its writer states for moves of the leadership.
    #[cfg_attr(feature = "_history", serde(default))]
    pub moves: Box<MoveInfo>,
}

impl Mark {
    /// The mark of a write that states nothing for people or moves.
    pub fn new(write: WriteId, lease: Duration, token: Option<Token>) -> Self {
        Self { write, lease, token, since_unix_ms: 0, moves: Box::default() }
    }
}

/// A time in which only an operator, a stop or a crash moves the leadership.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Pause {
    /// When it ends, by the wall clock, in milliseconds since the Unix epoch: a time that is past
    /// ends an earlier pause.
    pub until_unix_ms: u64,
}

impl Pause {
    /// The longest pause.
    pub const MAX: Duration = Duration::from_secs(24 * 3600);

    /// A pause from `now` on, for this long. Zero: the end of an earlier one.
    pub fn new(now: SystemTime, span: Duration) -> Self {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let until_unix_ms = if span.is_zero() { 0 } else { whole_millis(now.saturating_add(span)) };
        Self { until_unix_ms }
    }

    /// The pause, no longer than [`MAX`](Self::MAX) as the wall clock shows; `None` if it is over.
    pub(crate) fn at(self, now_unix_ms: u64) -> Option<Self> {
        let latest = now_unix_ms.saturating_add(whole_millis(Self::MAX));
        let until_unix_ms = self.until_unix_ms.min(latest);
        (until_unix_ms > now_unix_ms).then_some(Self { until_unix_ms })
    }
}

/// What a holder states for moves of the leadership. The order of creates and requests depends on
/// it, never who may lead: anybody who may write the entry may state anything.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct MoveInfo {
    /// Its [priority](crate::ElectionBuilder::priority), while candidates of higher priority may
    /// ask it to hand over: from when it leads until it drains. `None`: nobody asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Its [site](crate::ElectionBuilder::site).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<Arc<str>>,
    /// The pause of the election, which its successors carry on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
}

impl MoveInfo {
    /// Whether it states nothing.
    #[allow(dead_code, reason = "some locks write it")]
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Who holds an election.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub struct Entry {
    /// What people read.
    pub identity: Arc<str>,
    /// `None` where the writer is not of this library.
    pub mark: Option<Mark>,
    /// How long after this write the lock frees the entry by itself. Where a lock frees nothing:
    /// how long its writer requires others to wait for it.
    pub ttl: Duration,
    /// Where its writer can be reached, if it advertises that.
    pub advertisement: Option<Arc<Advertisement>>,
}

impl Entry {
    /// The pause that it states.
    pub(crate) fn pause(&self) -> Option<Pause> {
        self.mark.as_ref().and_then(|mark| mark.moves.pause)
    }

    /// How long after its write its writer, and all that its writer waited for, may lead.
    pub fn lease(&self, max_lease: Duration, lock_expires: bool) -> Duration {
        match &self.mark {
            Some(mark) => mark.lease,
            // Where the lock frees nothing, every holder states how long it must be waited for.
            None if !lock_expires => self.ttl,
            None => max_lease,
        }
    }
}

/// How an entry came to be gone.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub enum Tombstone {
    /// Its holder released it, after its work had stopped; or somebody else did in its place.
    Released {
        /// The holder; [`Nonce::NOBODY`]: somebody else, as in an eviction.
        by: Nonce,
        /// How long, from now, an even earlier holder may still be leading: what was left of the
        /// holder's cool-down. By nobody: how long the holder itself may, unless its step-down
        /// notice comes.
        left: Duration,
        /// Why, in one word, for people: never decided upon. `None` where the lock does not store
        /// it.
        #[cfg_attr(feature = "_history", serde(default, skip_serializing_if = "Option::is_none"))]
        cause: Option<Arc<str>>,
        /// The candidate that it was handed over to, which acquires the entry first: others hold
        /// back for a moment. Only that order depends on it, never who may lead.
        #[cfg_attr(feature = "_history", serde(default, skip_serializing_if = "Option::is_none"))]
        to: Option<Nonce>,
        /// The pause of the election, which the next holder carries on.
        #[cfg_attr(feature = "_history", serde(default, skip_serializing_if = "Option::is_none"))]
        pause: Option<Pause>,
    },
    /// The lock freed it, because it was not renewed. A lock that frees nothing may report this of
    /// an entry that still exists, under the entry's own revision, when the lock's clock shows
    /// that its lifetime is over.
    Expired,
    /// Anything else: it was deleted.
    Deleted,
}

/// What the lock holds under the name of an election.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub enum Content {
    /// A candidate holds it.
    Held(Entry),
    /// No candidate holds it.
    Vacant(Tombstone),
}

/// The last write to an election.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub struct Record {
    /// The revision of that write.
    pub revision: Revision,
    /// What was written.
    pub content: Content,
}

/// The result of [`Lock::read`](super::Lock::read).
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub enum Reading {
    /// The last write.
    Found(Record),
    /// There is none. `proof`: whether the lock guarantees that no candidate has written for as
    /// long as any lease may last.
    Empty {
        /// Whether emptiness shows that no earlier holder can still be leading.
        proof: bool,
    },
}

impl Reading {
    /// What was read where a deleted entry leaves nothing behind: its absence proves nothing.
    #[cfg(any(feature = "etcd", feature = "kubernetes", feature = "_objects"))]
    pub(crate) fn without_proof(record: Option<Record>) -> Self {
        record.map_or(Self::Empty { proof: false }, Self::Found)
    }
}

/// What a lock can do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub struct Capabilities {
    /// The shortest lease that anybody may hold here.
    #[cfg_attr(
        feature = "_history",
        serde(default = "common_min_lease", skip_serializing_if = "is_common_min_lease")
    )]
    pub min_lease: Duration,
    /// The longest lease that anybody may hold here: how long to wait where nothing is known about
    /// the last holder.
    pub max_lease: Duration,
    /// Whether this candidate may read the entry. Without it an unknown outcome cannot be settled.
    pub can_read: bool,
    /// For a candidate that may not read: whether a create over nothing shows that no candidate
    /// has written for as long as any lease may last.
    pub empty_is_proof: bool,
    /// Whether the lock itself frees an entry that is not renewed. Where it does not, as on a
    /// Kubernetes Lease, candidates judge by their own clocks for how long an entry has not
    /// changed, and write over it.
    pub expires_entries: bool,
    /// Whether a write that a read shows is as durable as an acknowledged one. Where it is not, as
    /// on a database that shows a commit before its replicas have it, a renewal that a read
    /// finds extends no term.
    pub reads_are_durable: bool,
    /// The most bytes an identity may have.
    pub max_identity_len: usize,
}

/// What a history means that does not state it.
#[cfg(feature = "_history")]
fn common_min_lease() -> Duration {
    COMMON_MIN_LEASE
}

#[cfg(feature = "_history")]
fn is_common_min_lease(lease: &Duration) -> bool {
    *lease == COMMON_MIN_LEASE
}

impl Capabilities {
    /// The timing of a candidate on this lock.
    ///
    /// # Errors
    /// The first inequality that does not hold.
    pub fn timing(&self, options: TimingOptions) -> Result<Timing, TimingError> {
        let timing = Timing::new(options, self.max_lease)?;
        let (lease, least) = (timing.lease(), self.min_lease);
        match lease < least {
            true => Err(TimingError::LeaseBelowLock { lease, least }),
            false => Ok(timing),
        }
    }

    /// Those of a lock that keeps records which do not expire, and of which nothing is left when
    /// they are deleted.
    #[allow(dead_code, reason = "most locks do")]
    pub(crate) fn of_records(max_lease: Duration) -> Self {
        Self {
            min_lease: COMMON_MIN_LEASE,
            max_lease,
            can_read: true,
            empty_is_proof: false,
            expires_entries: false,
            reads_are_durable: true,
            max_identity_len: MAX_IDENTITY_LEN,
        }
    }
}
