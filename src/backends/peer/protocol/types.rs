//! What a group is told, and what it answers.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

#[cfg(doc)]
use super::group::Group;
use super::member::Member;

/// How a member takes part.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What tells this member from others.
    pub id: Arc<str>,
    /// The heaviest is elected: finite, greater than zero.
    pub weight: f64,
    /// How often it says hello.
    pub interval: Duration,
    /// How long a member may be silent.
    pub timeout: Duration,
    /// What it subscribes to.
    pub channels: BTreeSet<String>,
    /// Where others reach it. democracy's members send to what is told here; nothing is sent before it is known.
    pub source: Option<SocketAddr>,
    /// The address at which all are reached at once.
    pub multicast: Option<SocketAddr>,
    /// The longest datagram to send, in bytes.
    pub max_packet: usize,
    /// The most members that are remembered.
    pub capacity: usize,
    /// What randomness is drawn from.
    pub seed: u64,
}

impl Settings {
    /// With democracy's defaults: hello each second, 3 s of silence, datagrams of 508 bytes.
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

/// What has happened.
#[derive(Debug, Clone)]
pub enum Event<'a> {
    /// It begins.
    Start,
    /// The time of [`Group::next_wake`] has come.
    Wake,
    /// A datagram came.
    Datagram {
        /// From where.
        from: SocketAddr,
        /// Whether it was sent to the multicast address.
        multicast: bool,
        /// What it says.
        bytes: &'a [u8],
    },
    /// The addresses of the group's peers are these, as far as their source knows.
    Peers(Vec<SocketAddr>),
    /// Others reach this member at this address.
    Source(SocketAddr),
    /// Somebody does not take this member's messages yet, and is about to.
    Unheard,
    /// This member gives up the lead, and is elected again if it is the heaviest.
    Resign,
    /// This member subscribes to a channel.
    Subscribe(String),
    /// To whoever subscribes to the channel.
    Publish(String, Value),
    /// To all.
    Send(String, Value),
    /// To one member, by its address.
    SendTo(SocketAddr, String, Value),
    /// This member leaves.
    Stop,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Send a datagram. Whether it arrives does not matter.
    Send {
        /// Where to.
        to: SocketAddr,
        /// What it says.
        bytes: Arc<[u8]>,
    },
    /// Tell the caller.
    Tell(Change),
}

/// What a group tells of.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// A member was found, or has come back.
    Added(Member),
    /// A member was silent for too long, or has left.
    Removed(Member),
    /// This member was elected.
    Elected,
    /// This member leads no more: it gave up the lead, left, or met a heavier leader.
    Resigned,
    /// Another leads than before, as far as this member knows; `None`: nobody.
    Leader(Option<Member>),
    /// A message of another member's: on a channel, or to all.
    Message {
        /// The sender's identifier, as it says itself.
        from: Arc<str>,
        /// Where it came from.
        address: SocketAddr,
        /// The channel, or the event's name.
        event: String,
        /// What was sent.
        data: Value,
    },
    /// The addresses of peers could not be found out. Those known before are kept, and it is tried again.
    DiscoveryFailed(Arc<str>),
    /// The reader was too slow, and so many changes were dropped.
    Missed(u64),
}
