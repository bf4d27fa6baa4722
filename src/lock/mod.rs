//! The contract of a lock: the trait that a backend implements, and its types.
//!
//! A lock holds at most one *entry* an election and grants conditional writes on it. It translates between these words
//! and what its server speaks; it decides nothing. Every rule about who may lead, and when, is in
//! [`protocol`](crate::protocol).
//!
//! **Unstable**: for a lock of one's own. A minor release may add a method to [`Lock`], a field to one of the types that
//! pass through it, or a variant. The locks of this crate, [`Token`], [`Advertisement`] and [`LockErrorKind`] are stable.

#[cfg(feature = "_json")]
#[allow(dead_code, reason = "each lock writes some of it")]
pub(crate) mod codec;
pub mod multi;

mod advertisement;
mod error;
mod hint;
mod member;
mod request;
mod types;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};

pub use advertisement::{Advertisement, AdvertisementError};
pub use error::{LockError, LockErrorKind};
pub use hint::{Coverage, Hint, HintSink, Subscription};
pub use member::{LockMember, Need};
pub use request::{Release, Request, StepDownNotice, Write};

pub use types::{
    Capabilities, Content, Entry, Mark, Nonce, Reading, Record, Revision, Token, Tombstone, WriteId,
};

use crate::time::timing::TimingOptions;

/// What a backend implements: conditional writes on one entry an election.
///
/// Dropping a returned future may leave the request applied or not: its outcome is then unknown.
pub trait Lock: fmt::Debug + Send + Sync + 'static {
    /// What it can do, as far as is known now.
    fn capabilities(&self) -> Capabilities;

    /// The timing of candidates that set none. Default: derived from the longest lease of the lock.
    fn timing(&self) -> TimingOptions {
        TimingOptions::default()
    }

    /// The identity of a candidate that sets none. Default: `None`, the name of the host.
    fn identity(&self) -> Option<String> {
        None
    }

    /// The locks that it is made of, in the order in which they are taken, if it is made of several: then a candidate
    /// requests these and never the lock itself. Default: it is one lock.
    fn members(&self) -> Option<&[LockMember]> {
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

    /// Writes an entry if the last revision is the expected one, and returns the new revision.
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

    /// Notifies candidates that the work of a former leader has stopped. Best effort. Default: the lock carries no
    /// notices.
    fn notify_step_down<'a>(
        &'a self,
        name: &'a str,
        notice: StepDownNotice,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        let _ = (name, notice);
        std::future::ready(Ok(())).boxed()
    }

    /// The names of the elections that are held, or were held lately, in no order: for operators. Default: the lock cannot list them
    /// ([`LockErrorKind::Misconfigured`]).
    fn names(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<String>, LockError>> {
        let _ = timeout;
        unable("this lock cannot list its elections: name one").boxed()
    }

    /// Evicts the holder, as an operator does, if the last revision is the expected one. Leaves a
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
    /// Does no I/O itself, but starts what does, and sends [`Hint::Coverage`] once hints arrive. Default: the lock
    /// sends no hints, and candidates poll.
    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        let _ = (name, sink);
        Subscription::none()
    }
}

/// Refuses the empty name.
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

    fn members(&self) -> Option<&[LockMember]> {
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

    fn notify_step_down<'a>(
        &'a self,
        name: &'a str,
        notice: StepDownNotice,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        (**self).notify_step_down(name, notice)
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
