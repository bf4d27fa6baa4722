//! The trait that a backend implements, and its words.
//!
//! A lock holds at most one *entry* an election and grants conditional writes on it. It translates between these words
//! and what its server speaks; it decides nothing. Every rule about who may lead, and when, is in
//! [`protocol`](crate::protocol).

mod error;
mod hint;
mod member;
mod request;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};

pub use error::{LockError, LockErrorKind};
pub use hint::{Coverage, Hint, HintSink, Subscription};
pub use member::{Member, Need};
pub use request::{Concession, Release, Request, Write};

use crate::advertisement::Advertisement;
use crate::protocol::TimingOptions;

/// The version of an entry: every write to an election gives it a greater one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub struct Revision(pub u64);

/// The fencing token of a term: the revision at which its holder created the entry.
///
/// A later term has a greater token, so a resource that remembers the greatest token it has seen can refuse the
/// writes of an earlier leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
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

/// What tells one campaigner from every other, whatever identity they show: drawn at random for each campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub struct Nonce(pub u64);

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Which write of which campaigner an entry is, so that a write whose reply was lost can be recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub struct WriteId {
    /// The campaigner.
    pub nonce: Nonce,
    /// Its writes, counted from 1.
    pub number: u64,
}

/// What a campaigner of this library adds to the identity in an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub struct Mark {
    /// Which write this is.
    pub write: WriteId,
    /// How long from the write its writer may lead, or must be waited for.
    pub lease: Duration,
    /// The term's token; `None` in the write that creates the entry, whose own revision it is.
    pub token: Option<Token>,
    /// When the term began, by the wall clock of its holder, in milliseconds since the Unix epoch: for people, never
    /// compared.
    pub since_unix_ms: u64,
}

/// Who holds an election.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub struct Entry {
    /// What people read.
    pub identity: Arc<str>,
    /// `None` where the writer is not of this library.
    pub mark: Option<Mark>,
    /// How long after this write the lock frees the entry by itself. Where a lock frees nothing: how long its writer has said
    /// that it must be waited for.
    pub life: Duration,
    /// Where its writer can be reached, if it says so.
    pub advertisement: Option<Arc<Advertisement>>,
}

/// How an entry came to be gone.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub enum Tombstone {
    /// Its holder released it, after its work had stopped.
    Released {
        /// The holder.
        by: Nonce,
        /// How long, from now, an even earlier holder may still be leading: what was left of the holder's cool-down.
        left: Duration,
    },
    /// The lock freed it, because nobody renewed it. A lock that frees nothing may say so of an entry that stands there
    /// still, under the entry's own revision, when its own clock tells that its life is over.
    Expired,
    /// Anything else: somebody deleted it.
    Deleted,
}

/// What stands under an election's name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub enum Content {
    /// Somebody holds it.
    Held(Entry),
    /// Nobody does.
    Vacant(Tombstone),
}

/// The last write to an election.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub struct Record {
    /// The revision of that write.
    pub revision: Revision,
    /// What it says.
    pub content: Content,
}

/// The answer to [`Lock::read`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub enum Reading {
    /// The last write.
    Found(Record),
    /// There is none. `proof`: whether the lock vouches that nobody has written for as long as any lease may last.
    Empty {
        /// Whether emptiness shows that no earlier holder can still be leading.
        proof: bool,
    },
}

/// What a lock can do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub struct Capabilities {
    /// The longest lease that anybody may hold here: how long to wait where nothing is known about the last holder.
    pub longest_lease: Duration,
    /// Whether this campaigner may read the entry. Without it an unknown outcome cannot be settled.
    pub reads: bool,
    /// For a campaigner that may not read: whether a create over nothing shows that nobody has written for as long as any
    /// lease may last.
    pub empty_is_proof: bool,
    /// Whether the lock itself frees an entry that nobody renews. Where it does not, as on a Kubernetes Lease, candidates
    /// judge by their own clocks for how long an entry has not changed, and write over it.
    pub expires: bool,
    /// Whether a write that a read shows is as durable as an acknowledged one. Where it is not, as on a database that shows
    /// a commit before its replicas have it, a renewal that a read finds extends no term.
    pub reads_are_durable: bool,
    /// The most bytes an identity may have.
    pub longest_identity: usize,
}

/// What a backend implements: conditional writes on one entry an election.
///
/// Dropping a returned future may leave the request applied or not: its outcome is then unknown.
pub trait Lock: fmt::Debug + Send + Sync + 'static {
    /// What it can do, as far as is known now.
    fn capabilities(&self) -> Capabilities;

    /// How campaigners here are timed who say nothing of it themselves. Default: by the lock's longest lease.
    fn timing(&self) -> TimingOptions {
        TimingOptions::default()
    }

    /// Who a campaigner here is who does not say it. Default: `None`, the host's name.
    fn identity(&self) -> Option<String> {
        None
    }

    /// The locks that it is made of, in the order in which they are to be taken, if it is made of several: then a campaign
    /// asks these and never the lock itself. Default: it is one lock.
    fn members(&self) -> Option<&[Member]> {
        None
    }

    /// Refuses the names that it cannot hold, saying the rule.
    fn check_name(&self, name: &str) -> Result<(), String>;

    /// Reads the last write to an election, never a stale one.
    fn read<'a>(
        &'a self,
        name: &'a str,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Reading, LockError>>;

    /// Writes an entry if the last revision is the expected one, and answers the new revision.
    fn write<'a>(
        &'a self,
        name: &'a str,
        write: Write,
    ) -> BoxFuture<'a, Result<Revision, LockError>>;

    /// Deletes the entry if the last revision is the expected one, leaving the holder's mark.
    fn release<'a>(
        &'a self,
        name: &'a str,
        release: Release,
    ) -> BoxFuture<'a, Result<(), LockError>>;

    /// Tells candidates that the work of a deposed holder has stopped. Best effort. Default: there is nowhere to say it, and
    /// what is not in the entry reaches nobody.
    fn concede<'a>(
        &'a self,
        name: &'a str,
        concession: Concession,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        let _ = (name, concession);
        std::future::ready(Ok(())).boxed()
    }

    /// The names of the elections that somebody holds, or held lately, in no order: for operators. Default: the lock cannot tell
    /// ([`LockErrorKind::Misconfigured`]).
    fn names(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<String>, LockError>> {
        let _ = timeout;
        unable("this lock cannot list its elections: name one").boxed()
    }

    /// Ends the term of whoever holds the election, as an operator does, if the last revision is the expected one: leaves a
    /// [`Tombstone::Deleted`]. Default: the lock cannot ([`LockErrorKind::Misconfigured`]).
    fn evict<'a>(
        &'a self,
        name: &'a str,
        expected: Revision,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        let _ = (name, expected, timeout);
        unable("this lock knows no eviction: stop the leader").boxed()
    }

    /// Sends hints about an election into `sink` until the returned subscription is dropped.
    ///
    /// Does no I/O itself: what it needs it starts, and it tells by [`Hint::Coverage`] once hints flow. Default: the lock
    /// tells nothing by itself, and candidates poll.
    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        let _ = (name, sink);
        Subscription::none()
    }
}

/// Refuses the empty name, for locks that hold every other one, or look further.
pub(crate) fn check_not_empty(name: &str) -> Result<(), String> {
    match name.is_empty() {
        true => Err("an election needs a name of at least one character".to_owned()),
        false => Ok(()),
    }
}

async fn unable<T>(what: &'static str) -> Result<T, LockError> {
    Err(LockError::new(LockErrorKind::Misconfigured, what))
}

impl<L: Lock + ?Sized> Lock for Arc<L> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn timing(&self) -> TimingOptions {
        (**self).timing()
    }

    fn identity(&self) -> Option<String> {
        (**self).identity()
    }

    fn members(&self) -> Option<&[Member]> {
        (**self).members()
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        (**self).check_name(name)
    }

    fn read<'a>(
        &'a self,
        name: &'a str,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Reading, LockError>> {
        (**self).read(name, timeout)
    }

    fn write<'a>(
        &'a self,
        name: &'a str,
        write: Write,
    ) -> BoxFuture<'a, Result<Revision, LockError>> {
        (**self).write(name, write)
    }

    fn release<'a>(
        &'a self,
        name: &'a str,
        release: Release,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        (**self).release(name, release)
    }

    fn concede<'a>(
        &'a self,
        name: &'a str,
        concession: Concession,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        (**self).concede(name, concession)
    }

    fn names(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<String>, LockError>> {
        (**self).names(timeout)
    }

    fn evict<'a>(
        &'a self,
        name: &'a str,
        expected: Revision,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        (**self).evict(name, expected, timeout)
    }

    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        (**self).subscribe(name, sink)
    }
}
