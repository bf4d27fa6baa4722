//! Why a leader does not hand over.

use thiserror::Error;

use crate::lock::LockError;
use crate::protocol::Refusal;

/// Why [`Leadership::hand_over`](crate::Leadership::hand_over) did nothing: the leader continues to
/// lead.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum HandOverError {
    /// No candidate is ready, or there is no term to hand over.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The lock could not ask the candidates.
    #[error("cannot ask who is ready: {0}")]
    Lock(LockError),
    /// The leader answered that it does not.
    #[error("{0}")]
    Answered(std::sync::Arc<str>),
    /// No leader answered.
    #[error("no leader answered: see `incumbent election members`")]
    NoAnswer,
    /// The candidate has been stopped.
    #[error("the candidate has been stopped")]
    Stopped,
}
