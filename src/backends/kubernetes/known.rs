//! Known state of each election's object, and its subscribers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use super::codec::{DecodedRecord, UNUSED};
use super::record::ElectionRecord;
use crate::backends::hint_hub::HintHub;
use crate::backends::seen::{Newest, Object};
use crate::lock::{Content, Nonce, Record, Revision, Tombstone};
use crate::util::locked;

/// An object as last seen.
#[derive(Debug, Clone)]
pub(super) struct KnownObject {
    /// The complete object, to be written back.
    pub(super) object: Arc<Value>,
    /// The resourceVersion of the object.
    pub(super) version: u64,
    /// The resourceVersion at which the record was first seen in its present form. Other clients
    /// may write to the rest of the object, which renews no lease.
    pub(super) revision: Revision,
    pub(super) record: ElectionRecord,
    pub(super) content: Content,
}

impl KnownObject {
    pub(super) fn new(version: u64, object: Value, found: DecodedRecord) -> Self {
        let DecodedRecord { record, content, .. } = found;
        Self { object: Arc::new(object), version, revision: Revision(version), record, content }
    }

    pub(super) fn record(&self) -> Record {
        Record { revision: self.revision, content: self.content.clone() }
    }

    fn states_same(&self, other: &Self) -> bool {
        self.record == other.record && self.content == other.content
    }
}

/// Unlike on other stores, the server chooses the versions, and gives new ones also for changes to
/// the rest of the object. So they are in the order of the versions, not of the revisions, and one
/// that was set back is taken as it is: the writes that follow have versions as low.
impl Object for KnownObject {
    fn order(&self) -> Revision {
        Revision(self.version)
    }

    fn is_same(&self, other: &Self) -> bool {
        self.version == other.version
    }
}

/// The known state when a request was sent.
pub(super) type Before = Newest<KnownObject>;

/// State of one election.
#[derive(Debug)]
pub(super) struct ObjectState {
    state: Mutex<State>,
    /// The subscribers to its hints.
    pub(super) hub: HintHub<()>,
    /// The newest revision that was read or written, for comparison with the watch.
    newest: watch::Sender<Revision>,
}

#[derive(Debug, Default)]
struct State {
    newest: Newest<KnownObject>,
    past: Past,
}

/// What was seen before the present object, which may contradict it.
#[derive(Debug, Clone, Copy, Default)]
struct Past {
    /// The number of the last term that was seen, and how long its holder must be waited for.
    last_term: Option<(i32, Duration)>,
    /// Whether an object of this name was seen that is not declared new, or no longer.
    has_past: bool,
}

impl Past {
    /// Returns the meaning of an object after this past, and the past after it.
    fn interpret(mut self, record: &ElectionRecord, mut content: Content) -> (Content, Self) {
        let is_unused = content == UNUSED;
        match &mut content {
            Content::Held(entry) => self.last_term = Some((record.leader_transitions, entry.ttl)),
            // Of another program: it does not state how long its work may continue.
            Content::Vacant(Tombstone::Released {
                by: Nonce::NOBODY, cause: None, left, ..
            }) => match self.last_term {
                Some((term, lease)) if term == record.leader_transitions => *left = lease,
                Some((_, lease)) => *left = lease.max(*left),
                None => {}
            },
            // An older version was put back: the number of terms only grows.
            Content::Vacant(tombstone @ Tombstone::Released { .. })
                if !is_unused
                    && self.last_term.is_some_and(|(t, _)| record.leader_transitions < t) =>
            {
                *tombstone = Tombstone::Deleted;
            }
            // Its creator was wrong: an applied manifest recreates a deleted object.
            Content::Vacant(tombstone) if is_unused && self.has_past => {
                *tombstone = Tombstone::Deleted;
            }
            Content::Vacant(_) => {}
        }
        self.has_past |= !is_unused;
        (content, self)
    }
}

impl State {
    /// Returns an object with its meaning, and the past after it.
    fn interpret(&self, before: &Before, mut object: KnownObject) -> (KnownObject, Past) {
        let (content, past) = self.past.interpret(&object.record, object.content);
        object.content = content;
        let mut seen = [&self.newest, before].into_iter().filter_map(Newest::object);
        if let Some(seen) = seen.find(|seen| seen.states_same(&object)) {
            object.revision = object.revision.min(seen.revision);
        }
        (object, past)
    }

    /// Records what is known of an object, and the past after it.
    fn settle(&mut self, object: &KnownObject, past: Past) {
        match self.newest.object_mut() {
            // The past may give another meaning to an object that was seen before.
            Some(newest) if newest.is_same(object) => {
                *newest = object.clone();
                self.past = past;
            }
            newest => {
                if let Some(newest) = newest.filter(|newest| newest.states_same(object)) {
                    newest.revision = newest.revision.min(object.revision);
                }
                self.past.last_term = self.past.last_term.max(past.last_term);
                self.past.has_past |= past.has_past;
            }
        }
    }
}

impl Default for ObjectState {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            hub: HintHub::default(),
            newest: watch::Sender::new(Revision(0)),
        }
    }
}

impl ObjectState {
    pub(super) fn known(&self) -> Option<KnownObject> {
        locked(&self.state).newest.object().cloned()
    }

    /// Returns the known state, before a request.
    pub(super) fn before(&self) -> Before {
        locked(&self.state).newest.clone()
    }

    pub(super) fn forget(&self, before: &Before) {
        locked(&self.state).newest.forget(before);
    }

    /// Records the response to a read or a write, and returns what it means. `before`: the known
    /// state when the request was sent.
    pub(super) fn found(&self, before: &Before, object: KnownObject) -> KnownObject {
        let mut state = locked(&self.state);
        let (object, past) = state.interpret(before, object);
        state.newest.found(before, object.clone(), |object, _| object);
        state.settle(&object, past);
        object
    }

    /// Records an object that the watch shows, and returns what it means; `None` if a newer one is
    /// known.
    pub(super) fn hinted(&self, object: KnownObject) -> Option<KnownObject> {
        let mut state = locked(&self.state);
        let (object, past) = state.interpret(&Before::default(), object);
        let known = state.newest.take(object.clone());
        state.settle(&object, past);
        known.and(Some(object))
    }

    pub(super) fn record_response(&self, revision: Revision) {
        self.newest.send_if_modified(|newest| {
            let newer = revision > *newest;
            *newest = revision.max(*newest);
            newer
        });
    }

    pub(super) fn responses(&self) -> watch::Receiver<Revision> {
        self.newest.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::kubernetes::codec;
    use crate::backends::kubernetes::record::{RELEASED_SECONDS, RecordLocation};
    use crate::lock::codec::mark::EncodedMark;
    use serde_json::json;

    const OURS: Duration = Duration::from_secs(15);

    fn found(election: &ObjectState, version: u64, object: Value) -> KnownObject {
        found_since(&election.before(), election, version, object)
    }

    fn found_since(
        before: &Before,
        election: &ObjectState,
        version: u64,
        object: Value,
    ) -> KnownObject {
        let read = codec::read(RecordLocation::Spec, &object, OURS);
        election.found(before, KnownObject::new(version, object, read))
    }

    /// Returns the remaining wait after a record of this term was emptied the way client-go empties
    /// it.
    fn left(election: &ObjectState, version: u64, term: i32) -> Duration {
        let released = json!({ "spec": {
            "holderIdentity": "", "leaseDurationSeconds": RELEASED_SECONDS, "leaseTransitions": term,
            "renewTime": "2026-01-01T00:00:00.000001Z",
        } });
        match found(election, version, released).content {
            Content::Vacant(Tombstone::Released { by: Nonce::NOBODY, left, .. }) => left,
            other => panic!("{other:?}"),
        }
    }

    fn holds(election: &ObjectState, version: u64, term: i32, lease: u64) {
        let held = json!({ "spec": {
            "holderIdentity": "go", "leaseDurationSeconds": lease, "leaseTransitions": term,
        } });
        found(election, version, held);
    }

    #[test]
    fn a_foreign_release_is_waited_for_as_long_as_its_holders_lease() {
        let election = ObjectState::default();
        assert_eq!(left(&election, 1, 3), OURS, "its holder is unknown");
        holds(&election, 2, 3, 5);
        assert_eq!(left(&election, 3, 3), Duration::from_secs(5));
        assert_eq!(left(&election, 3, 3), Duration::from_secs(5), "seen again");
        assert_eq!(left(&election, 4, 4), OURS, "another term, whose holder was not seen");
        holds(&election, 5, 5, 60);
        assert_eq!(left(&election, 6, 6), Duration::from_secs(60));
    }

    /// A backup of the object is applied, under a living leader. Each term has a greater number.
    #[test]
    fn a_release_of_an_earlier_term_proves_nothing() {
        let release = |election: &ObjectState, version, term| {
            let mut object = json!({});
            let record = ElectionRecord { leader_transitions: term, ..ElectionRecord::default() };
            let mark = EncodedMark::released(Nonce(7), Duration::ZERO, "stopped", None, None);
            codec::write(RecordLocation::Spec, &mut object, &record, mark);
            found(election, version, object).content
        };
        let election = ObjectState::default();
        let is_believed =
            |content| matches!(content, Content::Vacant(Tombstone::Released { by: Nonce(7), .. }));
        assert!(is_believed(release(&election, 1, 3)));
        holds(&election, 2, 4, 15);
        assert_eq!(release(&election, 3, 3), Content::Vacant(Tombstone::Deleted));
        assert!(is_believed(release(&election, 4, 4)));
        assert!(is_believed(release(&election, 5, 5)), "of a holder that was not seen");
    }

    /// Applying a manifest again recreates a deleted object, under a living leader.
    #[test]
    fn a_recreated_object_is_not_new_to_one_that_saw_its_holder() {
        let new = json!({ "metadata": { "annotations": { codec::NEW: "true" } } });
        let learn = |election: &ObjectState, version| found(election, version, new.clone()).content;
        let election = ObjectState::default();
        assert_eq!([learn(&election, 1), learn(&election, 1)], [UNUSED, UNUSED], "read again");
        holds(&election, 2, 0, 15);
        election.forget(&election.before());
        assert_eq!(learn(&election, 4), Content::Vacant(Tombstone::Deleted));
        assert_eq!(learn(&election, 5), Content::Vacant(Tombstone::Deleted), "for good");
    }

    /// The term of a holder would otherwise end: its next write would replace the older object.
    #[test]
    fn a_late_response_does_not_set_the_object_back() {
        let renewed = |time: &str| json!({ "spec": { "holderIdentity": "a", "renewTime": time } });
        let election = ObjectState::default();
        found(&election, 8, renewed("1"));
        let (read, write) = (election.before(), election.before());
        // A roll call changed the object after the write, whose response is late.
        let patched = codec::read(RecordLocation::Spec, &renewed("2"), OURS);
        let hint = election.hinted(KnownObject::new(11, renewed("2"), patched));
        assert_eq!(hint.map(|known| known.revision), Some(Revision(11)));
        let written = found_since(&write, &election, 10, renewed("2"));
        assert_eq!(written.revision, Revision(10));
        let late = found_since(&read, &election, 9, renewed("1"));
        assert_eq!(late.revision, Revision(8), "it states the same as version 8");
        let known = election.known().unwrap();
        assert_eq!((known.version, known.revision), (11, written.revision));
        let old = codec::read(RecordLocation::Spec, &renewed("1"), OURS);
        assert!(election.hinted(KnownObject::new(9, renewed("1"), old)).is_none());
        let restored = found(&election, 10, renewed("1"));
        assert_eq!(election.known().map(|known| known.version), Some(restored.version));
    }
}
