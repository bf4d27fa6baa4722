//! The annotation that this library adds to client-go's record.
//!
//! client-go's candidates keep annotations that they do not know, so this library's annotation
//! stays when one of them takes over. It therefore repeats the record that it was written with, and
//! is valid for that record only.

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
/// The nonce of the client that created the object for a new election.
const MAKER: Nonce = Nonce(u64::MAX);
/// The content of an object that had no holder yet, as the client that created it asserts.
pub(super) const UNUSED: Content = Content::Vacant(Tombstone::Released {
    by: MAKER,
    left: Duration::ZERO,
    cause: None,
    to: None,
    pause: None,
});

/// The annotation by which the creator of an object asserts that no process leads by an earlier
/// object of this name. It stays, as a tool that applies manifests would restore it: once there is
/// a trace of a holder, it means nothing.
pub(super) const NEW: &str = "incumbent/new";

/// The annotation that calls the roll. The leader's next renewal removes it.
pub(super) const CALL: &str = "incumbent/roll-call";
/// The annotation of a Lease that carries answers: the election's object.
pub(super) const ANSWERS_OF: &str = "incumbent/roll-call-of";

/// The annotation of an object that carries the checkpoint of an election.
pub(super) const CHECKPOINT: &str = "incumbent/checkpoint";

/// Whether the object is declared new, and names no holder, present or former.
fn is_new(location: RecordLocation, object: &Value) -> bool {
    annotation(object, NEW).is_some() && !was_held(location, object)
}

/// Whether the object shows a trace of a holder.
pub(super) fn was_held(location: RecordLocation, object: &Value) -> bool {
    let written = match (location.raw(object), location.read(object)) {
        (_, Some(record)) => {
            record.is_held() || record.renew_time.is_some() || record.acquire_time.is_some()
        }
        (raw, None) => raw.is_some(),
    };
    written || annotation(object, ANNOTATION).is_some()
}

/// The value of the annotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Annotation {
    version: u32,
    #[serde(flatten)]
    mark: EncodedMark,
    /// The record that the mark belongs to.
    of: ElectionRecord,
}

/// Writes a record and its mark into an object.
pub(super) fn write(
    location: RecordLocation,
    object: &mut Value,
    record: &ElectionRecord,
    mark: EncodedMark,
) {
    location.write(object, record);
    unannotate(object, CALL); // every watch has reported it
    let annotation = Annotation { version: CURRENT, mark, of: record.clone() };
    annotate(object, ANNOTATION, serde_json::to_string(&annotation).unwrap_or_default());
}

/// Returns a field of the record, or the mark, that is not stored as it was sent.
pub(super) fn differing(location: RecordLocation, sent: &Value, stored: &Value) -> Option<String> {
    let (record, now) = (location.raw(sent), location.raw(stored).unwrap_or_default());
    let changed = record.as_ref()?.as_object()?.iter().find(|(key, value)| {
        now.get(key) != Some(value) // the server adds fields
    });
    let mark_changed = annotation(stored, ANNOTATION) != annotation(sent, ANNOTATION);
    changed.map(|(key, _)| key.clone()).or_else(|| mark_changed.then(|| ANNOTATION.to_owned()))
}

/// The record of an object, and its meaning for the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DecodedRecord {
    pub record: ElectionRecord,
    pub content: Content,
    /// The annotation, whatever record it belongs to.
    ours: Option<Annotation>,
}

/// Reads an object. `default_lease`: how long to wait for a holder that states no duration.
pub(super) fn read(
    location: RecordLocation,
    object: &Value,
    default_lease: Duration,
) -> DecodedRecord {
    let record = location.read(object).unwrap_or_default();
    let ours = annotation(object, ANNOTATION)
        .and_then(|text| serde_json::from_str::<Annotation>(text).ok())
        .filter(|annotation| annotation.version == CURRENT);
    let content = match &ours {
        Some(Annotation { mark, of, .. }) if *of == record => decode(mark, &record, default_lease),
        None if is_new(location, object) => Some(UNUSED),
        _ => None,
    };
    let content = content.unwrap_or_else(|| plain(&record, ours.as_ref(), default_lease));
    DecodedRecord { record, content, ours }
}

fn decode(mark: &EncodedMark, record: &ElectionRecord, default_lease: Duration) -> Option<Content> {
    match mark.decode()? {
        DecodedMark::Released(tombstone) => Some(Content::Vacant(tombstone)),
        DecodedMark::Held(mark, advertisement) if record.is_held() => {
            Some(Content::Held(held(record, Some(mark), advertisement, default_lease)))
        }
        DecodedMark::Held(..) => None,
    }
}

/// Returns the meaning of a record without a valid mark.
fn plain(record: &ElectionRecord, ours: Option<&Annotation>, default_lease: Duration) -> Content {
    if record.is_held() {
        let found = held(record, None, None, default_lease);
        // An admission webhook changed our write: until its writer notices, it leads by what it
        // wrote.
        let written = ours.filter(|ours| ours.of.renew_time == record.renew_time);
        let lease = written.and_then(|ours| ours.of.lease()).unwrap_or_default();
        return Content::Held(Entry { ttl: found.ttl.max(lease), ..found });
    }
    // client-go's holders also release when a renewal failed, while their work continues until the
    // response arrives or is given up. A client-go holder that hung empties the record of the
    // present leader. The lease of the last holder is therefore waited out. If the term is the one
    // in this library's mark, another client emptied the record: an administrator, or a client-go
    // candidate that hung.
    let of_ours = ours.is_some_and(|ours| ours.of.leader_transitions == record.leader_transitions);
    let released = record.lease_duration_seconds == RELEASED_SECONDS && record.renew_time.is_some();
    Content::Vacant(match released && !of_ours {
        true => Tombstone::Released {
            by: Nonce::NOBODY,
            left: default_lease,
            cause: None,
            to: None,
            pause: None,
        },
        false => Tombstone::Deleted,
    })
}

impl DecodedRecord {
    /// Returns why a holder of this library released the lock, if this record has a mark that
    /// states the cause.
    pub(super) fn release_cause(&self) -> Option<String> {
        match self.ours.as_ref()? {
            Annotation { mark: EncodedMark::Released { cause, .. }, of, .. }
                if *of == self.record =>
            {
                Some(cause_label(cause))
            }
            _ => None,
        }
    }

    /// Returns what was found, with the lease of a holder whose record another client emptied, if
    /// the object states a longer one: `kubectl edit` leaves it in the record, and in the mark.
    pub(super) fn with_stated_lease(mut self, default_lease: Duration) -> Self {
        if self.content != Content::Vacant(Tombstone::Deleted) {
            return self;
        }
        let transitions = self.record.leader_transitions;
        let of_ours = self.ours.as_ref().map(|ours| &ours.of);
        let of_ours = of_ours.filter(|of| of.leader_transitions == transitions);
        let leases = [Some(&self.record), of_ours].into_iter().flatten();
        let left = leases.filter_map(ElectionRecord::lease).max().unwrap_or_default();
        if left > default_lease {
            let by = Nonce::NOBODY;
            let tombstone = Tombstone::Released { by, left, cause: None, to: None, pause: None };
            self.content = Content::Vacant(tombstone);
        }
        self
    }
}

fn held(
    record: &ElectionRecord,
    mark: Option<Mark>,
    advertisement: Option<Arc<Advertisement>>,
    default_lease: Duration,
) -> Entry {
    let life = record.lease().unwrap_or(default_lease);
    Entry { identity: identity(&record.holder_identity), mark, ttl: life, advertisement }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
