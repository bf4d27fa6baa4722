//! What the protocol of one candidate took in and returned, line by line, and the same lines played
//! again.
//!
//! The first line of a history is a [`Header`]: what the protocol was made from, its seed included.
//! Each further line is a [`Step`]: an event, its instant, and everything that the protocol
//! returned for it. So a history is all that it takes to [replay](Replay) a run, and to see whether
//! the protocol returns the same once more.
//!
//! For tests: no part of the public promise, and there only with the feature `_history`.

mod replay;

pub use replay::{Replay, ReplayError};

pub use crate::driver::record::{Header, Input, LockHeader, Output, Poll, Sink, Step};
