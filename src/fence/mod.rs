//! Fences: what is written to refuses a former leader.
//!
//! The deadline ends the work of a healthy process in time. It cannot stop a write that is already
//! on its way, or that of a process which was suspended between its check and its write. A fence
//! does: it is beside the data, remembers the greatest token that has come, and refuses smaller
//! ones.
//!
//! ```text
//!              token 7                          token 9
//! c1  ━━━━━━━━━━ leads ━━━━━━━┓ suspended ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄ resumed: writes with 7, refused
//! c2                          ┗ standby ━━ leads ━ writes with 9 ━━━━━━━━━━━━━━━━━━━━
//! ```
//!
#![cfg_attr(
    any(feature = "postgres", feature = "sqlite"),
    doc = "- SQL: [`Leadership::fence`](crate::Leadership::fence) in a transaction of `sqlx`, or [`transaction`]."
)]
#![cfg_attr(
    feature = "nats",
    doc = "- NATS: [`FencedStream`] and [`FencedBucket`] in place of a JetStream stream and a key-value bucket."
)]
#![cfg_attr(
    feature = "_objects",
    doc = "- Object storage: [`FencedObject`], an object that the leader alone can write."
)]
#![cfg_attr(
    feature = "tower",
    doc = "- HTTP and gRPC: [`FenceLayer`] in the service that the leader calls."
)]
//!
//! The first fence of a term excludes all earlier ones. So fence once as a term begins, before what
//! an earlier leader wrote is read.

#[cfg(any(feature = "_objects", feature = "nats"))]
use std::time::Duration;

#[cfg(any(feature = "_objects", feature = "nats"))]
use tokio::time::{Instant, sleep};

#[cfg(feature = "tower")]
mod http;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "_objects")]
mod object;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod sql;
#[cfg(all(feature = "tower", any(feature = "postgres", feature = "sqlite")))]
mod sql_store;
#[cfg(any(feature = "nats", feature = "_objects"))]
mod term;

#[cfg(feature = "tower")]
pub use self::http::{
    ELECTION_HEADER, FenceLayer, FenceService, FenceStore, MemoryFence, TOKEN_HEADER,
};
#[cfg(feature = "nats")]
pub use self::nats::{FencedBucket, FencedStream};
#[cfg(feature = "_objects")]
pub use self::object::FencedObject;
#[cfg(feature = "postgres")]
pub use self::sql::create_tables;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use self::sql::{FencedTransaction, transaction};
#[cfg(all(feature = "tower", any(feature = "postgres", feature = "sqlite")))]
pub use self::sql_store::SqlFence;
use crate::election::term::Term;
use crate::lock::{Error, Token};

/// The kind of a [`FenceError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FenceErrorKind {
    /// A later term has fenced, with this token: the work of this term is over, write nothing.
    Stale {
        /// The greatest token that has fenced.
        greatest: Token,
    },
    /// The term is over by its own clock.
    TermOver,
    /// It was not found out whether the term may write: roll back, and try again.
    Unavailable,
    /// No response came to a write: it may have been stored, or may yet be, unless a later term
    /// fences first.
    OutcomeUnknown,
    /// The key of a bucket has another revision than the one that was to be replaced.
    Conflict,
    /// The fence cannot work as it is set up: retrying does not help.
    Misconfigured,
}

/// The reason why a fence did not let a write pass.
pub type FenceError = Error<FenceErrorKind>;

/// The error of a term that a later one has excluded.
fn stale(election: &str, token: Token, greatest: Token) -> FenceError {
    let kind = FenceErrorKind::Stale { greatest };
    FenceError::new(
        kind,
        format!(
            "{election}: the term with token {token} is over, as the one with token {greatest} has written"
        ),
    )
}

/// Refuses a term that is over by its own clock. `what`: what not to do.
fn check_valid(election: &str, term: &Term, what: &str) -> Result<(), FenceError> {
    let message = || format!("{election}: the term is over: {what}");
    match term.over() {
        Some(_) => Err(FenceError::new(FenceErrorKind::TermOver, message())),
        None => Ok(()),
    }
}

/// Repeats until the deadline what fails and may succeed later, after pauses of at most
/// `max_pause_ms`.
#[cfg(any(feature = "_objects", feature = "nats"))]
async fn retry<T, F: Future<Output = Result<T, FenceError>>>(
    deadline: Instant,
    max_pause_ms: u64,
    attempt: impl Fn() -> F,
) -> Result<T, FenceError> {
    use FenceErrorKind::{OutcomeUnknown, Unavailable};
    loop {
        match attempt().await {
            Err(error) if matches!(error.kind(), Unavailable | OutcomeUnknown) => {
                pause(deadline, max_pause_ms, error).await?;
            }
            ended => return ended,
        }
    }
}

/// Waits for a moment before the next attempt; returns the error if there is no time for one.
#[cfg(any(feature = "_objects", feature = "nats"))]
async fn pause(deadline: Instant, max_ms: u64, error: FenceError) -> Result<(), FenceError> {
    if Instant::now() >= deadline {
        return Err(error);
    }
    sleep(Duration::from_millis(fastrand::u64(1..=max_ms))).await;
    Ok(())
}

/// The error of a fence that cannot work as it is set up.
#[cfg(any(feature = "_objects", feature = "nats", feature = "postgres", feature = "sqlite"))]
fn misconfigured(message: impl Into<String>) -> FenceError {
    FenceError::new(FenceErrorKind::Misconfigured, message)
}
