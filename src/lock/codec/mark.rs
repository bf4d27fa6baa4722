//! Marks in entries that other programs read, as JSON.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::lock::Advertisement;
use crate::lock::codec::{
    MAX_IDENTITY_LEN, cause_label, ceil_millis, display_identity, parse_nonce,
    stated_advertisement, stated_mark, stated_release,
};
use crate::lock::{Mark, MoveInfo, Nonce, Pause, Tombstone, WriteId};

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
                let (by, to) = (parse_nonce(released_by)?, to.as_deref().and_then(parse_nonce));
                let released = stated_release(by, *left_ms, Some(cause), to, *pause);
                Some(DecodedMark::Released(released))
            }
            Self::Held { nonce, write, lease_ms, token, since_ms, advertisement, moves } => {
                let write = WriteId { nonce: parse_nonce(nonce)?, number: *write };
                let mark = stated_mark(write, *lease_ms, *token, *since_ms, moves.clone());
                Some(DecodedMark::Held(mark, stated_advertisement(advertisement.clone())))
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
