//! What the driver of an election receives from outside.

use std::num::NonZeroU64;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::hand_over::HandOverError;
use crate::lock::{Advertisement, Hint, Standing, Successor, TakeRequest};
use crate::protocol::Rank;

/// Where the outcome of a handover goes: the identity of the successor.
pub(crate) type HandOverReply = oneshot::Sender<Result<Arc<str>, HandOverError>>;

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
    /// Of the given term, or of whichever is current.
    HandOver {
        term: Option<NonZeroU64>,
        to: Successor,
        reply: HandOverReply,
    },
    WorkEnded {
        term: NonZeroU64,
        panicked: bool,
    },
    /// The next write of the candidate states it.
    Advertise(Arc<Advertisement>),
    /// The result of a check.
    Checked(Result<(), Arc<str>>),
    /// The candidate stands aside from now on, or no longer does.
    StandAside(bool),
    /// How ready the member of the set is that the candidate belongs to.
    Standing(Standing),
    /// A member of the set that is there, and leads less, asks for this shard.
    Take(TakeRequest),
    /// When the candidate acquires a vacant entry from now on.
    Rank(Rank),
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
