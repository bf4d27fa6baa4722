//! What this library adds to client-go's record, in an annotation of its own.
//!
//! client-go's campaigners keep annotations that they do not know, so ours stays when one of them takes over. It
//! therefore repeats the record with which it was written, and counts for that record only.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::record::{
    ElectionRecord, RELEASED_SECONDS, RecordLocation, annotate, annotation, unannotate,
};
use crate::lock::Advertisement;
use crate::lock::codec::cause_label;
use crate::lock::codec::mark::{DecodedMark, EncodedMark, identity};
use crate::lock::{Content, Entry, Mark, Nonce, Tombstone};

pub(super) const ANNOTATION: &str = "incumbent/mark";
const CURRENT: u32 = 1;
/// Whoever released without a mark.
pub(super) const FOREIGN: Nonce = Nonce(0);
/// Whoever made the object for a new election.
const MAKER: Nonce = Nonce(u64::MAX);
/// What an object says that nobody has held yet, as its maker vouches.
pub(super) const UNUSED: Content =
    Content::Vacant(Tombstone::Released { by: MAKER, left: Duration::ZERO });

/// The annotation by which the maker of an object says that nobody leads by an earlier one of this name.
pub(super) const NEW: &str = "incumbent/new";

/// Whether the object is said to be new, and shows no trace of a holder.
pub(super) fn claims_to_be_new(place: RecordLocation, object: &Value) -> bool {
    annotation(object, NEW).is_some() && !was_held(place, object)
}

/// Whether the object shows a trace of a holder.
pub(super) fn was_held(place: RecordLocation, object: &Value) -> bool {
    let written = match (place.raw(object), place.read(object)) {
        (_, Some(record)) => {
            record.is_held() || record.renew_time.is_some() || record.acquire_time.is_some()
        }
        (raw, None) => raw.is_some(),
    };
    written || annotation(object, ANNOTATION).is_some()
}

/// The annotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Annotation {
    version: u32,
    #[serde(flatten)]
    says: EncodedMark,
    /// The record that it belongs to.
    of: ElectionRecord,
}

/// Puts a record and what is said of it into an object.
pub(super) fn write(
    place: RecordLocation,
    object: &mut Value,
    record: &ElectionRecord,
    says: EncodedMark,
) {
    place.write(object, record);
    unannotate(object, NEW);
    let annotation = Annotation { version: CURRENT, says, of: record.clone() };
    annotate(object, ANNOTATION, serde_json::to_string(&annotation).unwrap_or_default());
}

/// What an object says of an election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub record: ElectionRecord,
    pub content: Content,
}

/// Reads it. `default_lease`: how long to wait for a holder that does not say.
pub(super) fn read(place: RecordLocation, object: &Value, default_lease: Duration) -> Found {
    let record = place.read(object).unwrap_or_default();
    let ours = annotation(object, ANNOTATION)
        .and_then(|text| serde_json::from_str::<Annotation>(text).ok())
        .filter(|annotation| annotation.version == CURRENT);
    let content = match &ours {
        Some(Annotation { says, of, .. }) if *of == record => said(says, &record, default_lease),
        _ => None,
    };
    let content = content.unwrap_or_else(|| plain(&record, ours.as_ref(), default_lease));
    Found { record, content }
}

/// Why a holder of this library released the office, where the mark of this record tells.
pub(super) fn release_cause(object: &Value, record: &ElectionRecord) -> Option<String> {
    let text = annotation(object, ANNOTATION)?;
    match serde_json::from_str::<Annotation>(text).ok()? {
        Annotation { says: EncodedMark::Released { cause, .. }, of, .. } if of == *record => {
            Some(cause_label(&cause))
        }
        _ => None,
    }
}

fn said(says: &EncodedMark, record: &ElectionRecord, default_lease: Duration) -> Option<Content> {
    match says.decode()? {
        DecodedMark::Released(tombstone) => Some(Content::Vacant(tombstone)),
        DecodedMark::Held(mark, said) if record.is_held() => {
            Some(held(record, Some(mark), said, default_lease))
        }
        DecodedMark::Held(..) => None,
    }
}

/// What a record of client-go says by itself.
fn plain(record: &ElectionRecord, ours: Option<&Annotation>, default_lease: Duration) -> Content {
    if record.is_held() {
        return held(record, None, None, default_lease);
    }
    // client-go's holders also release where they could not renew, and their work goes on until the answer has come or has not;
    // and one that hung empties the record of whoever leads by then. So the lease of the last holder is waited out. Where the term
    // is the one that our own mark tells of, somebody else emptied it: an administrator, or a client-go campaigner that hung.
    let of_ours = ours.is_some_and(|ours| ours.of.leader_transitions == record.leader_transitions);
    let released = record.lease_duration_seconds == RELEASED_SECONDS && record.renew_time.is_some();
    Content::Vacant(match released && !of_ours {
        true => Tombstone::Released { by: FOREIGN, left: default_lease },
        false => Tombstone::Deleted,
    })
}

fn held(
    record: &ElectionRecord,
    mark: Option<Mark>,
    advertisement: Option<Arc<Advertisement>>,
    default_lease: Duration,
) -> Content {
    let life = record.lease().unwrap_or(default_lease);
    Content::Held(Entry {
        identity: identity(&record.holder_identity),
        mark,
        ttl: life,
        advertisement,
    })
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
