//! What the driver of an election receives from outside.

use std::num::NonZeroU64;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::lock::{Advertisement, Hint};

/// An input of the driver.
pub(crate) enum Input {
    Hint {
        /// The lock that sent it.
        lock: usize,
        hint: Box<Hint>,
    },
    /// There were too many hints: the driver fetches what they were merged to.
    HintsMissed,
    /// Of the given term, or of whichever is current.
    Resign {
        term: Option<NonZeroU64>,
    },
    WorkEnded {
        term: NonZeroU64,
        panicked: bool,
    },
    /// The next write of the candidate states it.
    Advertise(Arc<Advertisement>),
    Stop,
    /// No drain is waited for any longer.
    EndDrain,
}

/// Where inputs are put. Never blocks.
#[derive(Clone)]
pub(crate) struct Inbox(pub mpsc::UnboundedSender<Input>);

impl Inbox {
    pub fn send(&self, input: Input) {
        // An error means that the candidate has stopped, and an input changes nothing any more.
        let _ = self.0.send(input);
    }
}
