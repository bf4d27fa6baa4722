//! Why a member cannot start.

use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

/// Why a member cannot start.
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
    /// Hellos without a pause.
    #[error("an interval of {interval:?} is shorter than the least, 10ms")]
    Interval {
        /// As given.
        interval: Duration,
    },
    /// Members would be counted out for one lost hello, or never.
    #[error("a timeout of {timeout:?} is not between two intervals, {least:?}, and 600s")]
    Timeout {
        /// As given.
        timeout: Duration,
        /// The least.
        least: Duration,
    },
    /// The datagrams' length.
    #[error("datagrams of {bytes} bytes: {least} to 65507 can be sent")]
    MaxPacket {
        /// As given.
        bytes: usize,
        /// The least, which is more where they are signed.
        least: usize,
    },
    /// A key. It is not shown.
    #[error("the members' key cannot be used: {problem}")]
    Key {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A file of keys. What is in it is not shown.
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
    #[error("{group} is no multicast address: take one of 239.0.0.0/8")]
    Multicast {
        /// As given.
        group: SocketAddrV4,
    },
    /// The advertised address.
    #[error("{address} cannot be advertised: nobody can send to it")]
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
    /// The operating system gave no random number.
    #[error("the operating system gave no random number to tell this member from others")]
    NoRandomness,
}

/// What the operating system says against a socket.
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
