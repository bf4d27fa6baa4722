//! The contract of a lock: the trait that a backend implements, and its types.
//!
//! A lock holds at most one *entry* per election and grants conditional writes on it. It translates
//! between these words and what its server speaks; it decides nothing. Every rule about who may
//! lead, and when, is in [`protocol`](crate::protocol).
//!
//! **Unstable**: for a lock of one's own. A minor release may add a method to [`Lock`], a field to
//! one of the types that pass through it, or a variant. The locks of this crate, [`Token`],
//! [`Advertisement`] and [`LockErrorKind`] are stable.
//!
//! # A lock of one's own
//! The promise rests on what [`Lock`] does:
//!
//! - **Conditional writes.** A write or a release is applied only if the last revision is the
//!   expected one; comparison and write are one step of the store. `None` expects that nothing is
//!   stored, not even a trace of a release.
//! - **Growing revisions.** The revision of a write is greater than those of all earlier writes to
//!   the election, also after its entry was deleted: a term's first one is its [`Token`].
//! - **Durable writes, fresh reads.** An acknowledged write is not lost, and a read that begins
//!   after it shows it or a later one.
//! - **Unknown outcomes.** [`OutcomeUnknown`](LockErrorKind::OutcomeUnknown) is the error of a
//!   request that may have been applied, or may be applied later: the candidate reads, and
//!   recognises its write by the [`WriteId`]. The other errors say that it was not applied.
//! - **Whole entries.** A read returns what was written: the identity, the [`Mark`], the `ttl`, and
//!   of a release the [`Tombstone::Released`]. An entry without a valid mark has `mark: None`, and
//!   where nothing tells how it became vacant, the tombstone is [`Tombstone::Deleted`].
//! - **No false proof.** [`Reading::Empty`] has a `proof` only if every write and every delete
//!   leaves a trace for as long as [`Capabilities::max_lease`].
//!
//! `tests/crates/conformance` in the repository is the suite that every lock of this crate passes:
//! it needs an implementation of its trait `Service`.

#[allow(dead_code, reason = "each lock writes some of it")]
pub(crate) mod codec;
pub mod multi;

mod admin;
mod advertisement;
pub(crate) mod checkpoint;
mod error;
mod finding;
pub(crate) mod forward;
mod hint;
mod member;
mod member_load;
pub(crate) mod record;
mod request;
pub(crate) mod roll_call;
mod types;

use std::fmt;
use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, ready};

#[allow(unused_imports, reason = "not every lock evicts by a release")]
pub(crate) use admin::evict;
pub use admin::{ElectionNames, ElectionUpdate, ElectionWatch, LockAdmin, LockFacts, Position};
pub use advertisement::{Advertisement, AdvertisementError};
pub use checkpoint::{
    CheckpointStore, CheckpointVersion, MAX_CHECKPOINT_LEN, StoredCheckpoint, StoredContent,
};
#[cfg(any(feature = "etcd", feature = "nats", feature = "peer", feature = "postgres"))]
pub(crate) use error::Effect;
pub use error::{Error, LockError, LockErrorKind};
pub use finding::{Finding, Severity};
pub use hint::{Coverage, Hint, HintSink, Subscription};
pub use member::{LockMember, Need};
pub use member_load::{MemberLoad, TakeRequest};
pub use record::{ElectionRecord, ElectionState, Holder, HolderPod, Vacancy};
pub use request::{Release, Request, StepDownNotice, Write};
pub use roll_call::{
    CallId, CandidateInfo, CandidateRequest, CoolDownLeft, HandoverAnswer, Readiness, Role,
    RollCall, Successor,
};

pub use types::{
    Capabilities, Content, Entry, Mark, MoveInfo, Nonce, Pause, Reading, Record, Revision, Token,
    Tombstone, WriteId,
};

use crate::time::timing::TimingOptions;

/// What a backend implements: conditional writes on one entry per election.
///
/// Implement it with the attribute `#[async_trait]` of the crate `async-trait`. Dropping a returned
/// future may leave the request applied or not: its outcome is then unknown.
///
/// ```
/// use std::time::Duration;
/// use async_trait::async_trait;
/// use incumbent::lock::{
///     Capabilities, HintSink, Lock, LockError, Reading, Release, Revision, Subscription, Write,
/// };
/// use incumbent::memory::MemoryLock;
///
/// /// The elections of one team, on a lock that several teams share.
/// #[derive(Debug)]
/// struct OfTeam<L>(L);
///
/// fn full(name: &str) -> String {
///     format!("team-a.{name}")
/// }
///
/// #[async_trait]
/// impl<L: Lock> Lock for OfTeam<L> {
///     fn capabilities(&self) -> Capabilities {
///         self.0.capabilities()
///     }
///     fn check_name(&self, name: &str) -> Result<(), String> {
///         self.0.check_name(&full(name))
///     }
///     async fn read(&self, name: &str, timeout: Duration) -> Result<Reading, LockError> {
///         self.0.read(&full(name), timeout).await
///     }
///     async fn write(&self, name: &str, write: Write) -> Result<Revision, LockError> {
///         self.0.write(&full(name), write).await
///     }
///     async fn release(&self, name: &str, release: Release) -> Result<(), LockError> {
///         self.0.release(&full(name), release).await
///     }
///     fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
///         self.0.subscribe(&full(name), sink)
///     }
/// }
///
/// let builder = incumbent::new_election("my_app", OfTeam(MemoryLock::new()));
/// ```
#[async_trait]
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

    /// The locks that it is made of, in the order in which they are taken, if it is made of
    /// several: then a candidate requests these and never the lock itself. Default: it is one
    /// lock.
    fn members(&self) -> Option<&[LockMember]> {
        None
    }

    /// Refuses the names that it cannot hold, saying the rule.
    fn check_name(&self, name: &str) -> Result<(), String>;

    /// Whether elections of different names are different elections. Default: they are.
    fn holds_many(&self) -> bool {
        true
    }

    /// Reads the last write to an election, never a stale one.
    async fn read(&self, name: &str, timeout: Duration) -> Result<Reading, LockError>;

    /// Writes an entry if the last revision is the expected one, and returns the new revision.
    async fn write(&self, name: &str, write: Write) -> Result<Revision, LockError>;

    /// Deletes the entry if the last revision is the expected one, leaving the holder's mark.
    async fn release(&self, name: &str, release: Release) -> Result<(), LockError>;

    /// Checks with a write that the lock must refuse that this client may
    /// [`release`](Self::release), as far as an entry is there to try it on. Default: a release of
    /// a revision that no entry has.
    async fn check_release(&self, name: &str, timeout: Duration) -> Result<(), LockError> {
        match self.release(name, Release::check(timeout)).await {
            Err(error) if error.kind() == LockErrorKind::Conflict => Ok(()),
            Ok(()) => Err(unable("this lock does not check the revision of a release")),
            Err(error) => Err(error),
        }
    }

    /// What it offers to operators and observers. Default: nothing.
    fn admin(&self) -> Option<&dyn LockAdmin> {
        None
    }

    /// Where it stores the checkpoints of elections. Default: nowhere.
    fn checkpoints(&self) -> Option<&dyn CheckpointStore> {
        None
    }

    /// The messages that it carries. Default: none.
    fn messages(&self) -> Option<&dyn Messages> {
        None
    }

    /// Sends hints about an election into `sink` until the returned subscription is dropped.
    ///
    /// Does no I/O itself, but starts what does, and sends [`Hint::Coverage`] once hints arrive.
    /// Default: the lock sends no hints, and candidates poll.
    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        let _ = (name, sink);
        Subscription::none()
    }
}

/// The messages that a lock carries beside its entries: see [`Lock::messages`]. A lock that carries
/// one kind of them leaves out the methods of the other.
#[async_trait]
pub trait Messages: Send + Sync {
    /// Whether candidates hear [roll calls](Self::call_roll), by which the members of a set know
    /// each other.
    fn carries_calls(&self) -> bool;

    /// Notifies candidates that the work of a former leader has stopped. Best effort.
    async fn notify_step_down(&self, name: &str, notice: StepDownNotice) -> Result<(), LockError> {
        let _ = (name, notice);
        Ok(())
    }

    /// Calls the roll of an election: sends a request to its candidates, by [`Hint::RollCall`], and
    /// returns what they answer within the time, or sooner where the leader alone answers. Costs
    /// nothing while there is no call.
    ///
    /// It is not complete where candidates are slow or cut off, and not trustworthy: see
    /// [`CandidateInfo`].
    async fn call_roll(
        &self,
        name: &str,
        request: CandidateRequest,
        within: Duration,
    ) -> Result<Vec<CandidateInfo>, LockError> {
        let _ = (name, request, within);
        roll_call::no_calls()
    }

    /// Answers a roll call. Best effort.
    async fn answer_roll_call(
        &self,
        name: &str,
        call: &RollCall,
        info: &CandidateInfo,
    ) -> Result<(), LockError> {
        let _ = (name, call, info);
        Ok(())
    }
}

/// What a lock does whose messages are missing.
impl dyn Lock + '_ {
    /// Whether candidates hear roll calls.
    pub fn carries_calls(&self) -> bool {
        self.messages().is_some_and(Messages::carries_calls)
    }

    /// [`Messages::notify_step_down`]; nothing on a lock without messages.
    pub fn notify_step_down<'a>(
        &'a self,
        name: &'a str,
        notice: StepDownNotice,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        match self.messages() {
            Some(messages) => messages.notify_step_down(name, notice),
            None => Box::pin(ready(Ok(()))),
        }
    }

    /// [`Messages::call_roll`]; refused ([`LockErrorKind::Misconfigured`]) by a lock without
    /// messages. It ends four seconds after `within` at the latest
    /// ([`LockErrorKind::OutcomeUnknown`]), whatever the lock does; if it is made of several, after
    /// as long for each.
    pub fn call_roll<'a>(
        &'a self,
        name: &'a str,
        request: CandidateRequest,
        within: Duration,
    ) -> BoxFuture<'a, Result<Vec<CandidateInfo>, LockError>> {
        let Some(messages) = self.messages() else {
            return Box::pin(ready(roll_call::no_calls()));
        };
        // Several locks may be called one after the other.
        let locks = self.members().map_or(1, <[LockMember]>::len);
        let limit = within.saturating_add(RollCall::MARGIN);
        let limit = limit.saturating_mul(u32::try_from(locks).unwrap_or(u32::MAX));
        let call = messages.call_roll(name, request, within);
        Box::pin(async move {
            tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
                let what = format!("the lock has not ended a roll call of {within:?} in {limit:?}");
                Err(LockError::new(LockErrorKind::OutcomeUnknown, what))
            })
        })
    }
}

/// Refuses a name that is empty, has more than `max` bytes, or contains control characters.
#[cfg(any(feature = "etcd", feature = "peer", feature = "postgres", feature = "sqlite"))]
pub(crate) fn check_plain_name(name: &str, max: usize) -> Result<(), String> {
    check_not_empty(name)?;
    if name.len() > max {
        return Err(format!("the name of an election is limited to {max} bytes"));
    }
    if name.contains(char::is_control) {
        return Err("the name of an election must not contain control characters".to_owned());
    }
    Ok(())
}

/// The message of a conflict.
pub(crate) fn unexpected(expected: Option<Revision>, found: Option<Revision>) -> String {
    let text = |revision: Option<Revision>| {
        revision.map_or_else(|| "nothing".to_owned(), |revision| format!("revision {revision}"))
    };
    format!("expected {}, found {}", text(expected), text(found))
}

/// Refuses the empty name.
pub(crate) fn check_not_empty(name: &str) -> Result<(), String> {
    match name.is_empty() {
        true => Err("an election needs a name of at least one character".to_owned()),
        false => Ok(()),
    }
}

/// A backend keeps its timeout. A candidate does not depend on that.
pub(crate) async fn within<T>(
    timeout: Duration,
    request: impl Future<Output = Result<T, LockError>>,
) -> Result<T, LockError> {
    match tokio::time::timeout(timeout.saturating_add(timeout / 8), request).await {
        Ok(result) => result,
        Err(_) => {
            let what = format!("no response within {timeout:?}");
            Err(LockError::new(LockErrorKind::OutcomeUnknown, what))
        }
    }
}

fn unable(what: &'static str) -> LockError {
    LockError::new(LockErrorKind::Misconfigured, what)
}
