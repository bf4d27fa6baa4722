//! The handle of a group member.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::stream;
use serde_json::Value;
use thiserror::Error;
use tokio::sync::broadcast::error::RecvError;

use super::protocol::{Change, Member, check_event};
use super::seal::RefusedDatagrams;
use super::shared::{Input, Shared};

/// A member of a group: a cheap handle to the member's task.
///
/// A member may believe that it leads while another member does, as the [module](super)
/// documentation explains: leadership has no deadline and no token here.
///
/// Clones share the member. When the last handle is dropped, the member leaves as with
/// [`stop`](Self::stop); the drop does not wait for it.
#[derive(Clone)]
#[must_use = "dropping the last handle leaves the group"]
pub struct Peer(Arc<Handle>);

struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.send(Input::Stop);
    }
}

impl Peer {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self(Arc::new(Handle(shared)))
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &(self.0).0
    }

    /// Returns the identifier of this member.
    pub fn id(&self) -> &str {
        &self.shared().id
    }

    /// Returns the address on which the member listens.
    pub fn local_address(&self) -> SocketAddr {
        self.shared().bound
    }

    /// Returns whether this member believes that it leads. Another member may believe the same of
    /// itself, as in another partition. Returns false if this member's task was blocked for longer
    /// than the timeout.
    pub fn is_leader(&self) -> bool {
        self.shared().leads()
    }

    /// Returns the leader known to this member; `None`: no leader is known.
    pub fn leader(&self) -> Option<Member> {
        self.shared().status.borrow().leader.clone()
    }

    /// Returns this member and all members that it receives messages from, by identifier.
    pub fn members(&self) -> Vec<Member> {
        self.shared().status.borrow().members.clone()
    }

    /// Returns how many datagrams the member has ignored since its start because none of its
    /// [keys](super::PeerBuilder::key) signed them.
    pub fn refused_datagrams(&self) -> RefusedDatagrams {
        self.shared().refusals.counted()
    }

    /// Returns a stream of every change from now on, oldest first. The stream ends when the member
    /// has left.
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

    /// Resigns if this member believes that it leads. The group elects again, and may elect this
    /// member again if it is still the heaviest: use [`stop`](Self::stop) to hand over for good.
    pub fn resign(&self) {
        self.shared().send(Input::Resign);
    }

    /// Subscribes to a channel: messages that other members publish there arrive as
    /// [`Change::Message`].
    ///
    /// # Errors
    /// [`EventError`] if `channel` is not a valid name.
    pub fn subscribe(&self, channel: impl Into<String>) -> Result<(), EventError> {
        self.shared().send(Input::SubscribeChannel(checked(channel.into())?));
        Ok(())
    }

    /// Sends `data` to the subscribers of the channel. A message may be lost or duplicated.
    ///
    /// # Errors
    /// As [`subscribe`](Self::subscribe).
    pub fn publish(&self, channel: impl Into<String>, data: Value) -> Result<(), EventError> {
        self.shared().send(Input::Publish(checked(channel.into())?, data));
        Ok(())
    }

    /// Sends `data` to all members, as an event of this name. A message may be lost or duplicated.
    ///
    /// # Errors
    /// As [`subscribe`](Self::subscribe).
    pub fn send(&self, event: impl Into<String>, data: Value) -> Result<(), EventError> {
        self.shared().send(Input::Send(checked(event.into())?, data));
        Ok(())
    }

    /// Leaves the group: resigns, sends a goodbye so that the others elect at once, and ends the
    /// task.
    ///
    /// The member leaves even if the returned future is dropped.
    pub async fn stop(&self) {
        self.shared().send(Input::Stop);
        let mut status = self.shared().status.subscribe();
        // An error means that the task has ended.
        let _ = status.wait_for(|status| status.finished).await;
    }
}

partial_debug!(
    Peer, self, id: self.id(), local_address: self.local_address(), is_leader: self.is_leader()
);

fn checked(event: String) -> Result<String, EventError> {
    check_event(&event).map(|()| event).map_err(EventError)
}

/// The error of an invalid channel or event name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid name of a channel or an event: {0}")]
pub struct EventError(&'static str);

/// A stream of [`Change`]s that ends when the member has left.
pub type Changes = crate::util::changes::Changes<Change>;
