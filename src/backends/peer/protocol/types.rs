//! Events and actions of a group.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

#[cfg(doc)]
use super::group::Group;
use super::member::Member;

/// Settings of a member.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The identifier of this member.
    pub id: Arc<str>,
    /// The weight: finite, greater than zero. The heaviest member is elected.
    pub weight: f64,
    /// The interval between hellos.
    pub interval: Duration,
    /// How long a member may be silent before it is removed.
    pub timeout: Duration,
    /// The channels that this member subscribes to.
    pub channels: BTreeSet<String>,
    /// The address at which others reach this member. democracy's members send to this address;
    /// nothing is sent before it is known.
    pub source: Option<SocketAddr>,
    /// The multicast address of the group.
    pub multicast: Option<SocketAddr>,
    /// The maximum size of a datagram in bytes.
    pub max_packet: usize,
    /// The maximum number of remembered members.
    pub capacity: usize,
    /// The seed of all randomness.
    pub seed: u64,
}

impl Settings {
    /// Returns democracy's defaults: a hello each second, 3 s of silence, datagrams of 508 bytes.
    pub fn new(id: impl Into<Arc<str>>, weight: f64) -> Self {
        Self {
            id: id.into(),
            weight,
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(3),
            channels: BTreeSet::new(),
            source: None,
            multicast: None,
            max_packet: 508,
            capacity: 1024,
            seed: 0,
        }
    }
}

/// An event of a member.
#[derive(Debug, Clone)]
pub enum Event<'a> {
    /// The member starts.
    Start,
    /// The time of [`Group::next_wake`] has come.
    Wake,
    /// A datagram was received.
    Datagram {
        /// The sender's address.
        from: SocketAddr,
        /// Whether it was sent to the multicast address.
        multicast: bool,
        /// The content of the datagram.
        bytes: &'a [u8],
    },
    /// The source returned these addresses of peers.
    Peers(Vec<SocketAddr>),
    /// Others reach this member at this address.
    Source(SocketAddr),
    /// Another member does not accept this member's messages yet, and is about to.
    NotAccepted,
    /// This member resigns. It is elected again if it is the heaviest.
    Resign,
    /// This member subscribes to a channel.
    Subscribe(String),
    /// Sends to the subscribers of the channel.
    Publish(String, Value),
    /// Sends to all members.
    Send(String, Value),
    /// Sends to one member, by its address.
    SendTo(SocketAddr, String, Value),
    /// This member leaves.
    Stop,
}

/// An action for the caller.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Send a datagram. It may be lost.
    Send {
        /// The recipient's address.
        to: SocketAddr,
        /// The content of the datagram.
        bytes: Arc<[u8]>,
    },
    /// Report a change.
    Report(Change),
}

/// A change that a group reports.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// A member was found, or came back.
    Added(Member),
    /// A member was silent for too long, or has left.
    Removed(Member),
    /// This member was elected.
    Elected,
    /// This member lost the leadership: it resigned, left, or met a heavier leader.
    Resigned,
    /// The leader known to this member changed; `None`: no leader is known.
    Leader(Option<Member>),
    /// A message of another member, on a channel or to all.
    Message {
        /// The sender's identifier, as the sender claims.
        from: Arc<str>,
        /// The address that the message came from.
        address: SocketAddr,
        /// The channel, or the name of the event.
        event: String,
        /// The content of the message.
        data: Value,
    },
    /// Reading the addresses of peers failed. The previous addresses are kept, and the member
    /// retries.
    DiscoveryFailed(Arc<str>),
    /// The reader was too slow, and this many changes were dropped.
    Missed(u64),
}
