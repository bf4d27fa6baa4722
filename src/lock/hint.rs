//! Hints: changes that a lock reports by itself.

use std::any::Any;
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
        #[cfg_attr(feature = "_history", serde(with = "nested"))]
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
    /// Somebody asks who takes part. The driver of a candidate answers. One that is named as the
    /// successor reads, if it does not receive all hints.
    RollCall(RollCall),
}

/// An option in an option: JSON's `null` alone cannot distinguish `None` from `Some(None)`.
#[cfg(feature = "_history")]
mod nested {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// `Some(inner)` is written as a list of one.
    pub(crate) fn serialize<T: Serialize, S: Serializer>(
        value: &Option<Option<T>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().map(|inner| [inner]).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Option<T>>, D::Error> {
        let list = Option::<[Option<T>; 1]>::deserialize(deserializer)?;
        Ok(list.map(|[inner]| inner))
    }
}

/// Which changes the hints of a lock report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub enum Coverage {
    /// None come: poll.
    #[default]
    None,
    /// A few of the stored writes are reported, drawn at random, so silence means nothing. All are
    /// reported to a candidate that wants them: see [`Subscription::want_all`].
    Sampled,
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

partial_debug!(HintSink, self);

/// Keeps hints coming; dropping it ends them.
#[must_use = "dropping a subscription ends its hints"]
pub struct Subscription(Option<Box<dyn Guard>>);

/// What a subscription lasts as long as.
trait Guard: Send + Sync {
    fn want_all(&self, wanted: bool);
}

struct Sampling<G, W> {
    guard: G,
    want_all: W,
}

impl<G: Any + Send + Sync, W: Fn(&G, bool) + Send + Sync> Guard for Sampling<G, W> {
    fn want_all(&self, wanted: bool) {
        (self.want_all)(&self.guard, wanted);
    }
}

impl Subscription {
    /// A subscription that lasts as long as `guard`.
    pub fn new(guard: impl Any + Send + Sync) -> Self {
        Self::sampled(guard, |_, _| {})
    }

    /// A subscription to a lock whose coverage may be [`Coverage::Sampled`]. It calls `want_all`,
    /// which must not block, when a candidate begins or ceases to want all hints.
    pub fn sampled<G: Any + Send + Sync>(
        guard: G,
        want_all: impl Fn(&G, bool) + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Box::new(Sampling { guard, want_all })))
    }

    /// A subscription of a lock that sends no hints.
    pub fn none() -> Self {
        Self(None)
    }

    /// Says whether all hints are wanted from now on, or a few suffice where the lock can send few.
    /// A candidate wants all while it holds the entry or is about to.
    pub fn want_all(&self, wanted: bool) {
        if let Some(guard) = &self.0 {
            guard.want_all(wanted);
        }
    }
}

partial_debug!(Subscription, self);
