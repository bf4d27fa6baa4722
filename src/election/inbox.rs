//! What the driver of an election receives from outside.

use std::num::NonZeroU64;

use tokio::sync::mpsc;

use crate::lock::Hint;

/// What the driver is told from outside.
pub(crate) enum Input {
    Hint {
        /// Which of the election's locks tells it.
        lock: usize,
        hint: Box<Hint>,
    },
    /// There were too many: what they come to is to be fetched.
    HintsMissed,
    /// Of the given term, or of whichever is current.
    Resign {
        term: Option<NonZeroU64>,
    },
    WorkEnded {
        term: NonZeroU64,
        panicked: bool,
    },
    Stop,
}

/// Where inputs are put. Never blocks.
#[derive(Clone)]
pub(crate) struct Inbox(pub mpsc::UnboundedSender<Input>);

impl Inbox {
    pub fn send(&self, input: Input) {
        // An error means that the campaign has ended, and with it all that an input could change.
        let _ = self.0.send(input);
    }
}
