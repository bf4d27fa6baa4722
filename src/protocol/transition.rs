//! Transitions between the phases of a candidate, as data.

use super::cool_down::CoolDownWait;
use super::types::Cause;
use crate::lock::{Nonce, Revision, Token};
use crate::time::clock::Instant;

/// What becomes of the phase.
#[must_use]
pub(super) enum Next {
    Stay,
    /// Take part, and read the entry at `at`, not before.
    StandBy {
        at: Instant,
    },
    Hold(AcquiredEntry),
    StepDown(EndedTerm),
    /// A standby stops, which may have created an entry without knowing.
    StopStandby,
    Finish,
}

/// A create of this candidate that the lock has stored.
pub(super) struct AcquiredEntry {
    pub created: Revision,
    /// The number of the write.
    pub number: u64,
    pub sent: Instant,
    pub wait: CoolDownWait,
}

/// A term that has ended, or that ends before it began.
pub(super) struct EndedTerm {
    pub cause: Cause,
    /// The cause is known from a response of the lock, not from a hint.
    pub verified: bool,
    pub token: Token,
    pub revision: Revision,
    pub deadline: Instant,
    /// When it would have begun, or has.
    pub lead_at: Instant,
    pub began: bool,
    /// The candidate that it is handed over to.
    pub to: Option<Nonce>,
}
