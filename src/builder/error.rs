//! Why an election cannot be started.

use std::time::Duration;

use thiserror::Error;

use crate::lock::AdvertisementError;
use crate::protocol::TimingError;

/// Why an election cannot start.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The lock cannot hold an election of this name.
    #[error("{name:?} cannot be the name of an election: {rule}")]
    Name {
        /// As given.
        name: String,
        /// What a name must be.
        rule: String,
    },
    /// The lock cannot hold this identity.
    #[error("{identity:?} cannot be an identity: {problem}")]
    Identity {
        /// As given, cut short.
        identity: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A name that no site can have.
    #[error("{site:?} cannot be a site: give 1 to 128 bytes without control characters")]
    Site {
        /// As given, cut short.
        site: String,
    },
    /// What no lock can publish.
    #[error("this cannot be advertised: {0}")]
    Advertisement(#[from] AdvertisementError),
    /// Durations that do not go together.
    #[error(transparent)]
    Timing(#[from] TimingError),
    /// A duration that is longer than it may be.
    #[error("a {what} of {duration:?} is above the maximum of {greatest:?}")]
    TooLong {
        /// Which one.
        what: &'static str,
        /// As given.
        duration: Duration,
        /// The longest it may be.
        greatest: Duration,
    },
    /// The checkpoint that was asked for cannot be stored.
    #[error("no checkpoint: {problem}")]
    Checkpoint {
        /// Why, and what to do.
        problem: String,
    },
    /// None of the election's locks is required: then nothing would keep two leaders apart.
    #[error("all locks are best effort: require one")]
    NothingRequired,
    /// `start` was called outside of a tokio runtime.
    #[error("an election must be started within a tokio runtime")]
    NoRuntime,
    /// The operating system gave no random number.
    #[error(
        "the operating system returned no random number, which distinguishes this candidate from others"
    )]
    NoRandomness,
}
