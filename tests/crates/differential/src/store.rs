//! What the harness has to know of a real lock.

use std::fmt::Debug;
use std::time::Duration;

use futures_util::future::{BoxFuture, LocalBoxFuture};
use incumbent::lock::{Lock, LockErrorKind, Revision};
use incumbent_sim::Retention;

/// A real lock, and what others than the library do to it.
pub trait Store: Debug + Send + Sync {
    /// The lock.
    fn lock(&self) -> &dyn Lock;

    /// The lock whose hints are checked: one of another process if a lock gets more hints of
    /// others' writes than of its own.
    fn listener(&self) -> &dyn Lock {
        self.lock()
    }

    /// How the model is set up, and what may be compared.
    fn rules(&self) -> Rules;

    /// What others can do to an election.
    fn deeds(&self) -> &'static [Deed];

    /// Executes it as another program. Returns the revision of what was stored, if anything was and
    /// its revision is known.
    fn commit<'a>(
        &'a self,
        name: &'a str,
        deed: Deed,
        expected: Option<Revision>,
    ) -> BoxFuture<'a, Result<Option<Revision>, LockErrorKind>>;

    /// What can happen to all elections at once.
    fn upheavals(&self) -> &'static [Upheaval];

    /// Has the first half of it happen: the store is gone.
    fn take_away(&self, upheaval: Upheaval) -> LocalBoxFuture<'_, ()>;

    /// Has the second half of it happen: the store is there.
    fn bring_back(&self, upheaval: Upheaval) -> LocalBoxFuture<'_, ()>;
}

/// How the model is set up, and what may be compared.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// What becomes of an entry that is not renewed.
    pub retention: Retention,
    /// The longest life of an entry.
    pub ttl: Duration,
    /// Whether a write may set its time to live.
    pub per_write_ttl: bool,
    /// By how much longer an entry may live than requested, as a read reports it: lives are
    /// rounded up.
    pub slack: Duration,
    /// The hints.
    pub hint_delivery: HintDelivery,
    /// Whether replicas have to agree: a write may be refused though nothing has changed, while
    /// another one is in flight, or while there is no leader.
    pub replicated: bool,
    /// Whether the store knows the time of a write by a program that does not know this library.
    pub dates_foreign: bool,
    /// Whether an entry has the start of its term as its holder wrote it, and not by the store's
    /// own clock.
    pub keeps_since: bool,
    /// Whether the lock takes an election that it has known for no new one.
    pub remembers: bool,
    /// How a write fails where the store is gone.
    pub gone: LockErrorKind,
    /// Whether a read then finds nothing, which proves nothing, rather than to fail as well.
    pub gone_is_empty: bool,
}

impl Rules {
    /// Those of a bucket on one nats-server.
    pub fn new(retention: Retention, ttl: Duration) -> Self {
        Self {
            retention,
            ttl,
            per_write_ttl: true,
            slack: Duration::ZERO,
            hint_delivery: HintDelivery::Every,
            replicated: false,
            dates_foreign: true,
            keeps_since: true,
            remembers: false,
            gone: LockErrorKind::Unavailable,
            gone_is_empty: false,
        }
    }
}

/// Which of the writes a listener receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HintDelivery {
    /// Every one, once and in order.
    Every,
    /// The last one; others may be omitted, repeated, or late.
    Last,
    /// None, or that there is something to read.
    Nothing,
}

/// An operation on one election without this library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Deletes the key, as `nats kv del` does.
    Delete,
    /// Purges the key, as `nats kv purge` does.
    Purge,
    /// Removes what is stored so that nothing is left.
    Vanish,
    /// Writes what is not an entry of this library.
    Put,
    /// Writes what is not an entry of this library, if the last revision is the expected one.
    PutOver,
    /// Writes to the rest of what the entry is in.
    Touch,
    /// Writes what the store must refuse.
    Invalid,
    /// Writes what is no entry of this library over an object, with a number.
    PutNumbered(u64),
    /// Writes over an object what cannot be read.
    Spoil,
    /// Keeps a copy of an object.
    Save,
    /// Replaces the current content with the copy.
    Restore,
    /// Deletes an object, and puts the same content back.
    PutBack,
}

/// What happens to all elections at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upheaval {
    /// What holds them is deleted, and made again.
    Remade,
    /// The server is ended, and started again.
    Killed,
    /// The server is ended by a SIGKILL while requests are under way, and started again.
    Crashed,
}
