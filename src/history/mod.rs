//! What the protocol of one candidate took in and returned, line by line, and the same lines played again.
//!
//! The first line of a history is a [`Header`]: what the protocol was made from, its seed included. Each further line is a
//! [`Step`]: an event, its instant, and everything that the protocol returned for it. So a history is all that it takes to
//! [replay](Replay) a run, and to see whether the protocol returns the same once more.
//!
//! For tests: no part of the public promise, and there only with the feature `_history`.

mod line;
pub(crate) mod nested;
mod replay;
mod writer;

pub use line::{Header, Input, LockHeader, Output, Poll, Step};
pub use replay::{Replay, ReplayError};
pub(crate) use writer::HistoryWriter;
pub use writer::Sink;

use crate::builder::ElectionBuilder;

#[doc(hidden)]
impl ElectionBuilder {
    /// Sends each line of this candidate's history to `sink`, without its line break, before any action of the line is
    /// performed.
    ///
    /// `sink` runs in the task of the campaign: what it does delays the campaign. Nothing is kept besides.
    pub fn record_history(mut self, sink: impl FnMut(&str) + Send + 'static) -> Self {
        self.history = Some(Box::new(sink));
        self
    }
}
