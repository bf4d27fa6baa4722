//! Why a term ended.

use std::fmt;
use std::sync::Arc;

/// Why a term ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Cause {
    /// The holder resigned and stands again.
    Resigned,
    /// The campaign was stopped.
    Stopped,
    /// Somebody else wrote over the entry.
    Usurped {
        /// Who, as far as is known.
        by: Option<Arc<str>>,
    },
    /// The entry was deleted.
    Evicted,
    /// The lease could not be renewed in time, or the lock let it expire.
    Expired {
        /// The last failure to renew it.
        last_error: Option<Arc<str>>,
    },
    /// The lock refuses us the right to renew.
    Denied {
        /// What it said.
        error: Arc<str>,
    },
    /// The work came to its end by itself.
    WorkEnded,
    /// The work panicked.
    WorkPanicked,
}

impl Cause {
    /// The cause in one word, for labels and marks: `resigned`, `stopped`, `usurped`, `evicted`, `expired`, `denied`,
    /// `work_ended` or `work_panicked`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Resigned => "resigned",
            Self::Stopped => "stopped",
            Self::Usurped { .. } => "usurped",
            Self::Evicted => "evicted",
            Self::Expired { .. } => "expired",
            Self::Denied { .. } => "denied",
            Self::WorkEnded => "work_ended",
            Self::WorkPanicked => "work_panicked",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resigned => f.write_str("resigned"),
            Self::Stopped => f.write_str("stopped"),
            Self::Usurped { by: Some(by) } => write!(f, "usurped by {by}"),
            Self::Usurped { by: None } => f.write_str("usurped by somebody else"),
            Self::Evicted => f.write_str("evicted: the entry was deleted"),
            Self::Expired { last_error: Some(error) } => {
                write!(f, "expired: could not renew: {error}")
            }
            Self::Expired { last_error: None } => f.write_str("expired"),
            Self::Denied { error } => write!(f, "denied: {error}"),
            Self::WorkEnded => f.write_str("the work ended"),
            Self::WorkPanicked => f.write_str("the work panicked"),
        }
    }
}
