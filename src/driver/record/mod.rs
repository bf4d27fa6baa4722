//! The lines of a history: what the protocol of one candidate took in and returned.

mod line;
mod writer;

pub(crate) use line::Polls;
pub use line::{Header, Input, LockHeader, Output, Poll, Step};
pub(crate) use writer::HistoryWriter;
pub use writer::Sink;
