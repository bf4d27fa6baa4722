//! Hints: changes that a lock reports by itself.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Record;
use super::Revision;
use super::RollCall;
use super::StepDownNotice;

/// A change that a lock reports by itself. Hints move timers and end terms; they never begin one:
/// only the response to a conditional write does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub enum Hint {
    /// A write that the lock has stored.
    Stored {
        /// The write.
        record: Record,
        /// The revision that it replaced, where the lock reports it; `Some(None)`: it replaced
        /// nothing.
        #[cfg_attr(feature = "_history", serde(with = "crate::util::nested"))]
        previous: Option<Option<Revision>>,
        /// How long ago the lock stored it, as far as the backend knows. Used only to spread the
        /// requests of candidates.
        age: Option<Duration>,
    },
    /// The work of a former leader has stopped.
    SteppedDown(StepDownNotice),
    /// Something may have changed.
    Recheck,
    /// How much hints can be relied on from now on.
    Coverage(Coverage),
    /// Somebody asks who takes part. The driver of a candidate answers; the protocol ignores it.
    RollCall(RollCall),
}

/// Which changes the hints of a lock report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub enum Coverage {
    /// None come: poll.
    #[default]
    None,
    /// Some changes are reported. Renewals are not, so silence means nothing.
    Partial,
    /// Every stored write is reported, renewals too, so silence for longer than the lifetime of an
    /// entry is evidence.
    Full,
}

/// Where a backend puts the hints of one election. Cheap to clone; never blocks.
#[derive(Clone)]
pub struct HintSink(Arc<dyn Fn(Hint) + Send + Sync>);

impl HintSink {
    /// A sink that calls `deliver` with each hint. `deliver` must not block.
    pub fn new(deliver: impl Fn(Hint) + Send + Sync + 'static) -> Self {
        Self(Arc::new(deliver))
    }

    /// Delivers a hint.
    pub fn send(&self, hint: Hint) {
        (self.0)(hint);
    }
}

impl fmt::Debug for HintSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HintSink")
    }
}

/// Keeps hints coming; dropping it ends them.
#[must_use = "dropping a subscription ends its hints"]
pub struct Subscription(
    #[allow(dead_code, reason = "held for its Drop")] Option<Box<dyn Any + Send + Sync>>,
);

impl Subscription {
    /// A subscription that lasts as long as `guard`.
    pub fn new(guard: impl Any + Send + Sync) -> Self {
        Self(Some(Box::new(guard)))
    }

    /// A subscription of a lock that sends no hints.
    pub fn none() -> Self {
        Self(None)
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}
