//! Holding a part in a group.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::stream;
use serde_json::Value;
use thiserror::Error;
use tokio::sync::broadcast::error::RecvError;

use super::protocol::{Change, Member, check_event};
use super::seal::RefusedDatagrams;
use super::shared::{Input, Shared};

/// A member of a group: a cheap handle on a task that takes part by itself.
///
/// It may believe that it leads while another member does, as the [module](super) says: nothing here ends by a deadline,
/// and there is no token.
///
/// Clones share the member. When the last one is dropped, it leaves by itself as by [`stop`](Self::stop), without anybody
/// waiting for it.
#[derive(Clone)]
#[must_use = "dropping the last handle leaves the group"]
pub struct Peer(Arc<Handle>);

struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.ask(Input::Stop);
    }
}

impl Peer {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self(Arc::new(Handle(shared)))
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &(self.0).0
    }

    /// What tells this member from others.
    pub fn id(&self) -> &str {
        &self.shared().id
    }

    /// The address on which it listens.
    pub fn local_address(&self) -> SocketAddr {
        self.shared().bound
    }

    /// Whether this member believes that it leads. Others may believe so of themselves, as in another partition. False where
    /// its task has been held up for longer than the timeout.
    pub fn is_leader(&self) -> bool {
        self.shared().leads()
    }

    /// Who leads, as far as this member knows; `None`: nobody.
    pub fn leader(&self) -> Option<Member> {
        self.shared().status.borrow().leader.clone()
    }

    /// This member and all others that it hears, by their identifiers.
    pub fn members(&self) -> Vec<Member> {
        self.shared().status.borrow().members.clone()
    }

    /// How many datagrams it has ignored since its start, as they were not signed by a [key](super::PeerBuilder::key) of this member's.
    pub fn refused_datagrams(&self) -> RefusedDatagrams {
        self.shared().refusals.counted()
    }

    /// Every change from now on, oldest first. It ends when the member has left.
    pub fn changes(&self) -> Changes {
        let receiver = self.shared().changes.subscribe();
        let status = self.shared().status.subscribe();
        Changes::new(stream::unfold((receiver, status), |(mut receiver, mut status)| async {
            let change = tokio::select! {
                biased;
                change = receiver.recv() => match change {
                    Ok(change) => change,
                    Err(RecvError::Lagged(missed)) => Change::Missed(missed),
                    Err(RecvError::Closed) => return None,
                },
                _ = status.wait_for(|status| status.finished) => return None,
            };
            Some((change, (receiver, status)))
        }))
    }

    /// Gives up the lead, if this member believes that it leads. The group elects again, and may elect this member again
    /// if it is still the heaviest: to hand over for good, [`stop`](Self::stop).
    pub fn resign(&self) {
        self.shared().ask(Input::Resign);
    }

    /// Subscribes to a channel: what others publish there comes as [`Change::Message`].
    ///
    /// # Errors
    /// [`EventError`] where it cannot be the name of one.
    pub fn subscribe(&self, channel: impl Into<String>) -> Result<(), EventError> {
        self.shared().ask(Input::Subscribe(checked(channel.into())?));
        Ok(())
    }

    /// Sends `data` to those who subscribe to the channel. It may be lost, or come twice.
    ///
    /// # Errors
    /// As [`subscribe`](Self::subscribe).
    pub fn publish(&self, channel: impl Into<String>, data: Value) -> Result<(), EventError> {
        self.shared().ask(Input::Publish(checked(channel.into())?, data));
        Ok(())
    }

    /// Sends `data` to all members, as an event of this name. It may be lost, or come twice.
    ///
    /// # Errors
    /// As [`subscribe`](Self::subscribe).
    pub fn send(&self, event: impl Into<String>, data: Value) -> Result<(), EventError> {
        self.shared().ask(Input::Send(checked(event.into())?, data));
        Ok(())
    }

    /// Leaves: gives up the lead, says goodbye so that the others elect at once, and ends the task.
    ///
    /// It goes on if the returned future is dropped.
    pub async fn stop(&self) {
        self.shared().ask(Input::Stop);
        let mut status = self.shared().status.subscribe();
        let _ = status.wait_for(|status| status.finished).await; // an error means that it is gone
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("id", &self.id())
            .field("local_address", &self.local_address())
            .field("is_leader", &self.is_leader())
            .finish_non_exhaustive()
    }
}

fn checked(event: String) -> Result<String, EventError> {
    check_event(&event).map(|()| event).map_err(EventError)
}

/// A name that no channel and no event can have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("this cannot be the name of a channel or an event: {0}")]
pub struct EventError(&'static str);

/// A stream of [`Change`]s; it ends when the member has left.
pub type Changes = crate::util::changes::Changes<Change>;
