//! State that the handles of a member share with its task.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use super::protocol::{Change, Member};
use super::quorum::{Operation, Outcome, QuorumError};
use super::seal::Refusals;
use crate::backends::hint_hub::{HintHub, Listen};
use crate::lock::{Coverage, StepDownNotice};
use crate::time::clock::{Clock, Instant};

/// How many changes a slow reader may lag behind.
pub(super) const CHANGES_KEPT: usize = 256;

/// Commands of handles to the task.
#[derive(Debug)]
pub(super) enum Input {
    Resign,
    SubscribeChannel(String),
    Publish(String, Value),
    Send(String, Value),
    /// A request of a quorum's lock.
    Request {
        name: Arc<str>,
        operation: Operation,
        timeout: Duration,
        answer: oneshot::Sender<Result<Outcome, QuorumError>>,
    },
    NotifyStepDown(Arc<str>, StepDownNotice),
    Stop,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Status {
    pub leader: Option<Member>,
    pub members: Vec<Member>,
    pub finished: bool,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub id: Arc<str>,
    pub bound: SocketAddr,
    pub clock: Arc<dyn Clock>,
    /// The end of this member's leadership unless its task extends it; zero: this member does not
    /// lead.
    pub leads_until_ns: AtomicU64,
    pub status: watch::Sender<Status>,
    pub changes: broadcast::Sender<Change>,
    pub inputs: mpsc::UnboundedSender<Input>,
    pub refusals: Refusals,
    /// Whether this member votes in its quorum.
    pub votes: AtomicBool,
    /// The subscribers to the hints of a quorum.
    pub hints: HintHub<()>,
}

impl Listen for Shared {
    type Note = ();

    fn hub(&self) -> &HintHub<()> {
        &self.hints
    }

    /// The member's task sends the hints. Whoever writes announces it to all members, so they come
    /// while this one receives messages from any.
    fn listen(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        let mut status = self.status.subscribe();
        async move {
            loop {
                let hears = {
                    let status = status.borrow_and_update();
                    !status.finished && status.members.iter().any(|member| !member.is_me)
                };
                self.hints.announce(if hears { Coverage::Full } else { Coverage::None });
                if status.changed().await.is_err() {
                    return; // cannot be: the sender is in here
                }
            }
        }
    }
}

impl Shared {
    pub fn leads(&self) -> bool {
        let until = self.leads_until_ns.load(Ordering::Acquire);
        until != 0 && self.clock.now() < Instant::from_nanos(until)
    }

    pub fn send(&self, input: Input) {
        let _ = self.inputs.send(input); // an error means that the task has ended
    }

    pub fn publish(&self, change: Change) {
        let _ = self.changes.send(change); // an error means that there is no receiver
    }
}
