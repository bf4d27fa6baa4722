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
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "tower"))]
use crate::election::Leadership;
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

/// The error of a term that is over by its own clock. `what`: what not to do.
fn over(election: &str, what: &str) -> FenceError {
    FenceError::new(FenceErrorKind::TermOver, format!("{election}: the term is over: {what}"))
}

/// Refuses a term that is over by its own clock. `what`: what not to do.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "tower"))]
fn check_valid(leadership: &Leadership, what: &str) -> Result<(), FenceError> {
    match leadership.is_valid() {
        true => Ok(()),
        false => Err(over(leadership.election(), what)),
    }
}

/// The error of a fence that cannot work as it is set up.
#[cfg(any(feature = "_objects", feature = "nats", feature = "postgres", feature = "sqlite"))]
fn misconfigured(message: impl Into<String>) -> FenceError {
    FenceError::new(FenceErrorKind::Misconfigured, message)
}
