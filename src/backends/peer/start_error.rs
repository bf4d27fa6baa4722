//! Errors of starting a member.

use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

/// Errors of starting a member.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum PeerStartError {
    /// The identifier.
    #[error("this cannot be the identifier of a member: {problem}")]
    Id {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The weight.
    #[error("a weight must be finite and greater than zero: {weight} is not")]
    Weight {
        /// As given.
        weight: f64,
    },
    /// The interval between hellos.
    #[error("an interval of {interval:?} is below the minimum of 10ms")]
    Interval {
        /// As given.
        interval: Duration,
    },
    /// The timeout: members would be removed after one lost hello, or never.
    #[error("a timeout of {timeout:?} is not between two intervals, {least:?}, and 600s")]
    Timeout {
        /// As given.
        timeout: Duration,
        /// The minimum.
        least: Duration,
    },
    /// The maximum size of a datagram.
    #[error("datagrams of {bytes} bytes: {least} to 65507 can be sent")]
    MaxPacket {
        /// As given.
        bytes: usize,
        /// The minimum, which is higher for signed datagrams.
        least: usize,
    },
    /// A key. The error does not contain it.
    #[error("the members' key cannot be used: {problem}")]
    Key {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A file of keys. The error does not contain its content.
    #[error("the key file {path} cannot be used: {problem}")]
    KeyFile {
        /// Which file.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A channel.
    #[error("this cannot be a channel: {problem}")]
    Channel {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The multicast address.
    #[error("{group} is not a multicast address: use one of 239.0.0.0/8")]
    Multicast {
        /// As given.
        group: SocketAddrV4,
    },
    /// The advertised address.
    #[error("{address} cannot be advertised: no peer can send to it")]
    Advertised {
        /// As given.
        address: SocketAddr,
    },
    /// The sockets could not be opened.
    #[error("cannot listen on {address}")]
    Bind {
        /// As given.
        address: SocketAddr,
        /// Why.
        #[source]
        error: BindError,
    },
    /// `start` was called outside of a tokio runtime.
    #[error("a member must be started within a tokio runtime")]
    NoRuntime,
    /// The operating system returned no random number.
    #[error("the operating system returned no random number to identify this member")]
    NoRandomness,
}

/// The operating system's error on a socket.
#[derive(Debug, Clone, Error)]
#[error(transparent)]
pub struct BindError(Arc<io::Error>);

impl From<io::Error> for BindError {
    fn from(error: io::Error) -> Self {
        Self(Arc::new(error))
    }
}

impl PartialEq for BindError {
    fn eq(&self, other: &Self) -> bool {
        self.0.kind() == other.0.kind()
    }
}
