//! How the term before ended, as the winner of the next one saw it. Only reported: no decision
//! depends on it.

use super::crash_release::CRASHED;
use crate::lock::{Nonce, Tombstone};

/// How the term before ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PreviousTerm {
    /// Its holder released the entry, after its work had stopped.
    Released,
    /// The same, in favour of a successor that it named.
    HandedOver,
    /// A sentinel released the entry of a crashed holder.
    Crashed,
    /// The entry was not renewed.
    Expired,
    /// The holder was evicted, or the entry deleted, or nothing is left of it.
    Deleted,
}

impl PreviousTerm {
    /// The meaning of what is left of its entry.
    pub(super) fn of(tombstone: Option<&Tombstone>) -> Self {
        match tombstone {
            Some(Tombstone::Released { by: Nonce::NOBODY, cause: Some(_), .. }) => Self::Deleted,
            Some(Tombstone::Released { cause, .. }) if cause.as_deref() == Some(CRASHED) => {
                Self::Crashed
            }
            Some(Tombstone::Released { to: Some(_), .. }) => Self::HandedOver,
            Some(Tombstone::Released { .. }) => Self::Released,
            Some(Tombstone::Expired) => Self::Expired,
            Some(Tombstone::Deleted) | None => Self::Deleted,
        }
    }

    /// The value of a label, and of a field of a span.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::HandedOver => "handed_over",
            Self::Crashed => "crashed",
            Self::Expired => "expired",
            Self::Deleted => "deleted",
        }
    }
}
