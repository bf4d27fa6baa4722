//! What the harness has to know of a real lock.

use std::fmt::Debug;
use std::time::Duration;

use futures_util::future::{BoxFuture, LocalBoxFuture};
use incumbent::lock::{Lock, LockErrorKind, Revision};
use incumbent_sim::Keeping;

/// A real lock, and what others than the library do to it.
pub trait Store: Debug + Send + Sync {
    /// The lock.
    fn lock(&self) -> &dyn Lock;

    /// How the model is set up, and what may be compared.
    fn rules(&self) -> Rules;

    /// What others can do to an election.
    fn deeds(&self) -> &'static [Deed];

    /// Has somebody do it. Answers the revision of what was stored, if anything was and its revision was told.
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
    pub keeping: Keeping,
    /// The longest life of an entry.
    pub ttl: Duration,
    /// Whether a write may say how long it is to be kept.
    pub per_write_ttl: bool,
    /// By how much longer an entry may live than asked, as a read tells it: lives are rounded up.
    pub slack: Duration,
    /// What is heard.
    pub hearing: Hearing,
    /// Whether a write may be refused though nothing has changed, while another one is in flight.
    pub refuses_in_flight: bool,
}

/// Which of the writes a listener hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hearing {
    /// Every one, once and in order.
    Every,
    /// None, or that there is something to look at.
    Nothing,
}

/// What somebody does to one election without this library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Deletes the key, as `nats kv del` does.
    Delete,
    /// The same, as `nats kv purge` does.
    Purge,
    /// Removes what is stored so that nothing is left.
    Vanish,
    /// Writes what is not an entry of this library.
    Put,
    /// The same, if the last revision is the expected one.
    PutOver,
}

/// What happens to all elections at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upheaval {
    /// What holds them is deleted, and made again.
    Remade,
    /// The server is killed, and started again.
    Killed,
}
