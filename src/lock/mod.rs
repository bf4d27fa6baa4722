//! The trait that a backend implements, and its words.
//!
//! A lock holds at most one *entry* an election and grants conditional writes on it. It translates between these words
//! and what its server speaks; it decides nothing. Every rule about who may lead, and when, is in
//! [`protocol`](crate::protocol).

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
    fn notify_step_down<'a>(
        &'a self,
        name: &'a str,
        notice: StepDownNotice,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        let _ = (name, notice);
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
