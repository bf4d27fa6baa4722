//! What this library adds to client-go's record, in an annotation of its own.
//!
//! client-go's campaigners keep annotations that they do not know, so ours stays when one of them takes over. It
//! therefore repeats the record with which it was written, and counts for that record only.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::record::{ElectionRecord, Place, RELEASED_SECONDS, annotate, annotation};
use crate::advertisement::Advertisement;
use crate::lock::{Content, Entry, Mark, Nonce, Token, Tombstone, WriteId};
use crate::text::head;

const ANNOTATION: &str = "incumbent/mark";
const CURRENT: u32 = 1;

/// The longest span that is believed of a mark: no lease and no cool-down is longer than an hour.
const LONGEST_SPAN: Duration = Duration::from_secs(2 * 3600);

/// The most bytes of an identity that are shown.
pub(super) const LONGEST_IDENTITY: usize = 1024;

/// The annotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Annotation {
    version: u32,
    #[serde(flatten)]
    says: Says,
    /// The record that it belongs to.
    of: ElectionRecord,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Says {
    Held {
        nonce: String,
        write: u64,
        lease_ms: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<u64>,
        since_ms: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        advertisement: Option<Advertisement>,
    },
    Released {
        released_by: String,
        left_ms: u64,
        cause: String,
    },
}

impl Says {
    pub(super) fn held(mark: &Mark, advertisement: Option<&Advertisement>) -> Self {
        Self::Held {
            nonce: mark.write.nonce.to_string(),
            write: mark.write.number,
            lease_ms: millis(mark.lease),
            token: mark.token.map(|token| token.0),
            since_ms: mark.since_unix_ms,
            advertisement: advertisement.cloned(),
        }
    }

    pub(super) fn released(by: Nonce, left: Duration, cause: &str) -> Self {
        Self::Released {
            released_by: by.to_string(),
            left_ms: millis(left),
            cause: cause.chars().filter(char::is_ascii_graphic).take(32).collect(),
        }
    }
}

/// Puts a record and what is said of it into an object.
pub(super) fn write(place: Place, object: &mut Value, record: &ElectionRecord, says: Says) {
    place.write(object, record);
    let annotation = Annotation { version: CURRENT, says, of: record.clone() };
    annotate(object, ANNOTATION, serde_json::to_string(&annotation).unwrap_or_default());
}

/// What an object says of an election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub record: ElectionRecord,
    pub content: Content,
}

/// Reads it. `unsaid`: how long to wait for a holder that does not say.
pub(super) fn read(place: Place, object: &Value, unsaid: Duration) -> Found {
    let record = place.read(object).unwrap_or_default();
    let ours = annotation(object, ANNOTATION)
        .and_then(|text| serde_json::from_str::<Annotation>(text).ok())
        .filter(|annotation| annotation.version == CURRENT);
    let content = match &ours {
        Some(Annotation { says, of, .. }) if *of == record => said(says, &record, unsaid),
        _ => None,
    };
    let content = content.unwrap_or_else(|| plain(&record, ours.as_ref(), unsaid));
    Found { record, content }
}

/// Why a holder of this library released the office, where the mark of this record tells.
pub(super) fn release_cause(object: &Value, record: &ElectionRecord) -> Option<String> {
    let text = annotation(object, ANNOTATION)?;
    match serde_json::from_str::<Annotation>(text).ok()? {
        Annotation { says: Says::Released { cause, .. }, of, .. } if of == *record => {
            Some(cause.chars().filter(char::is_ascii_graphic).take(32).collect())
        }
        _ => None,
    }
}

fn said(says: &Says, record: &ElectionRecord, unsaid: Duration) -> Option<Content> {
    match says {
        Says::Released { released_by, left_ms, .. } => {
            let (by, left) = (nonce(released_by)?, span(*left_ms));
            Some(Content::Vacant(Tombstone::Released { by, left }))
        }
        Says::Held { nonce: by, write, lease_ms, token, since_ms, advertisement }
            if record.is_held() =>
        {
            let mark = Mark {
                write: WriteId { nonce: nonce(by)?, number: *write },
                lease: span(*lease_ms),
                token: token.map(Token),
                since_unix_ms: *since_ms,
            };
            let said = advertisement.clone().filter(|said| said.check().is_ok()).map(Arc::new);
            Some(held(record, Some(mark), said, unsaid))
        }
        Says::Held { .. } => None,
    }
}

/// What a record of client-go says by itself.
fn plain(record: &ElectionRecord, ours: Option<&Annotation>, unsaid: Duration) -> Content {
    if record.is_held() {
        return held(record, None, None, unsaid);
    }
    // client-go's holders release when their work has stopped, and have nobody to wait for. But where the term is the
    // one that our own mark tells of, somebody else emptied it: an administrator, or a client-go campaigner that was
    // suspended, which looks whether it leads before it looks at the lock.
    let of_ours = ours.is_some_and(|ours| ours.of.leader_transitions == record.leader_transitions);
    let released = record.lease_duration_seconds == RELEASED_SECONDS && record.renew_time.is_some();
    Content::Vacant(match released && !of_ours {
        true => Tombstone::Released { by: Nonce(0), left: Duration::ZERO },
        false => Tombstone::Deleted,
    })
}

fn held(
    record: &ElectionRecord,
    mark: Option<Mark>,
    advertisement: Option<Arc<Advertisement>>,
    unsaid: Duration,
) -> Content {
    let life = record.lease().unwrap_or(unsaid);
    Content::Held(Entry { identity: identity(&record.holder_identity), mark, life, advertisement })
}

/// Control characters, which no identity of ours has, are replaced: people will see it.
fn identity(text: &str) -> Arc<str> {
    Arc::from(head(text, LONGEST_IDENTITY).replace(char::is_control, " "))
}

fn nonce(text: &str) -> Option<Nonce> {
    let hex = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if hex { u64::from_str_radix(text, 16).ok().map(Nonce) } else { None }
}

/// Whole milliseconds, rounded up: a span that others wait for must not shrink.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn span(millis: u64) -> Duration {
    Duration::from_millis(millis).min(LONGEST_SPAN)
}

#[cfg(test)]
#[path = "mark_tests.rs"]
mod tests;
