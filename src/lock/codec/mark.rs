//! Marks in entries that other programs read, as JSON.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::lock::Advertisement;
use crate::lock::codec::{
    MAX_IDENTITY_LEN, bounded_duration, cause_label, ceil_millis, display_identity, display_moves,
    parse_nonce, read_cause,
};
use crate::lock::{Mark, MoveInfo, Nonce, Pause, Token, Tombstone, WriteId};

/// A mark as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum EncodedMark {
    Held {
        nonce: String,
        write: u64,
        lease_ms: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<u64>,
        since_ms: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        advertisement: Option<Advertisement>,
        #[serde(default, skip_serializing_if = "MoveInfo::is_empty")]
        moves: MoveInfo,
    },
    Released {
        released_by: String,
        left_ms: u64,
        cause: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pause: Option<Pause>,
    },
}

impl EncodedMark {
    pub(crate) fn held(mark: &Mark, advertisement: Option<&Advertisement>) -> Self {
        Self::Held {
            nonce: mark.write.nonce.to_string(),
            write: mark.write.number,
            lease_ms: ceil_millis(mark.lease),
            token: mark.token.map(|token| token.0),
            since_ms: mark.since_unix_ms,
            advertisement: advertisement.cloned(),
            moves: (*mark.moves).clone(),
        }
    }

    pub(crate) fn released(
        by: Nonce,
        left: Duration,
        cause: &str,
        to: Option<Nonce>,
        pause: Option<Pause>,
    ) -> Self {
        Self::Released {
            released_by: by.to_string(),
            left_ms: ceil_millis(left),
            cause: cause_label(cause),
            to: to.map(|to| to.to_string()),
            pause,
        }
    }

    /// Decodes the mark; `None` if it is malformed.
    pub(crate) fn decode(&self) -> Option<DecodedMark> {
        match self {
            Self::Released { released_by, left_ms, cause, to, pause } => {
                let (by, left) = (parse_nonce(released_by)?, bounded_duration(*left_ms));
                let (cause, to) = (read_cause(cause), to.as_deref().and_then(parse_nonce));
                let pause = *pause;
                Some(DecodedMark::Released(Tombstone::Released { by, left, cause, to, pause }))
            }
            Self::Held { nonce: by, write, lease_ms, token, since_ms, advertisement, moves } => {
                let mark = Mark {
                    write: WriteId { nonce: parse_nonce(by)?, number: *write },
                    lease: bounded_duration(*lease_ms),
                    token: token.map(Token),
                    since_unix_ms: *since_ms,
                    moves: display_moves(moves.clone()).into(),
                };
                let advertised = advertisement.clone().filter(|given| given.check().is_ok());
                Some(DecodedMark::Held(mark, advertised.map(Arc::new)))
            }
        }
    }
}

/// What [`EncodedMark`] means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DecodedMark {
    /// A candidate holds the entry, and may advertise.
    Held(Mark, Option<Arc<Advertisement>>),
    Released(Tombstone),
}

/// An identity that another program may have written.
pub(crate) fn identity(text: &str) -> Arc<str> {
    display_identity(text, MAX_IDENTITY_LEN)
}
