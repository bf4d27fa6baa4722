//! The messages between a process and its sentinel, one per line, as JSON.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

use crate::lock::codec::parse_nonce;
use crate::lock::{Nonce, Token};
use crate::protocol::RegisteredTerm;

/// The version of these messages.
pub const VERSION: u32 = 2;
/// How often a sentinel repeats [`SentinelReply::Watching`], so that a hung one is noticed.
pub const HEARTBEAT: Duration = Duration::from_secs(5);
/// The most bytes of a line.
pub const MAX_LINE: usize = 16 * 1024;

/// A message to a sentinel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SentinelMessage {
    /// The first one.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// When the process started, in clock ticks since the boot.
        started: u64,
    },
    /// A term began. It replaces an earlier one of the same election and candidate.
    Began {
        /// The election.
        election: Arc<str>,
        /// The candidate.
        nonce: String,
        /// The term.
        token: u64,
        /// The number of the write that began it.
        create: u64,
    },
    /// The term is over, and its entry is released or left.
    Ended {
        /// The election.
        election: Arc<str>,
        /// The candidate.
        nonce: String,
    },
    /// Asks for [`SentinelReply::Status`], in the place of the first one. The connection is closed
    /// then.
    Status,
}

/// A message of a sentinel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SentinelReply {
    /// The process is known: its terms are released when it is dead. Sent each [`HEARTBEAT`].
    Watching {
        /// [`VERSION`] of the sentinel.
        version: u32,
    },
    /// The connection is closed, and nothing is released.
    Refused {
        /// Why, in one line.
        reason: String,
    },
    /// The entry of a term was not found, or the lock does not respond.
    Unable {
        /// The election.
        election: Arc<str>,
        /// Why, in one line.
        reason: String,
    },
    /// Its condition.
    Status {
        /// The processes that are watched.
        processes: usize,
        /// The terms that they registered.
        terms: usize,
        /// Why it could not release; `None` if the lock responds.
        problem: Option<String>,
    },
}

impl SentinelMessage {
    /// The term of a candidate began, or is over.
    pub(super) fn of(election: Arc<str>, nonce: Nonce, term: Option<RegisteredTerm>) -> Self {
        let nonce = nonce.to_string();
        match term {
            Some(RegisteredTerm { token, create, .. }) => {
                Self::Began { election, nonce, token: token.0, create }
            }
            None => Self::Ended { election, nonce },
        }
    }

    /// The candidate that the message is of.
    pub fn nonce(&self) -> Option<Nonce> {
        match self {
            Self::Began { nonce, .. } | Self::Ended { nonce, .. } => parse_nonce(nonce),
            Self::Hello { .. } | Self::Status => None,
        }
    }

    /// The term that began.
    pub fn term(&self) -> Option<RegisteredTerm> {
        match self {
            Self::Began { token, create, .. } => {
                let (nonce, token, create) = (self.nonce()?, Token(*token), *create);
                Some(RegisteredTerm { nonce, token, create })
            }
            _ => None,
        }
    }
}

/// The line of a message.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).unwrap_or_default(); // plain data: it cannot fail
    line.push(b'\n');
    line
}

/// Reads a message, with the part of its line in `line` that was read before.
///
/// # Errors
/// The connection failed or was closed, the line is longer than `MAX_LINE`, or not a message.
///
/// # Cancel safety
/// Cancel safe, if the next call gets the same `line`.
pub async fn read_message<T: DeserializeOwned>(
    reader: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
) -> io::Result<T> {
    let room = MAX_LINE.saturating_sub(line.len()) as u64;
    reader.take(room).read_until(b'\n', line).await?;
    if line.last() != Some(&b'\n') {
        let why = if room > 0 && line.len() < MAX_LINE { "closed" } else { "a line is too long" };
        return Err(io::Error::other(why));
    }
    let message = serde_json::from_slice(line);
    line.clear();
    message.map_err(|error| io::Error::other(format!("unknown message: {error}")))
}
