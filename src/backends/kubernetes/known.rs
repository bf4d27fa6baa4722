//! Known state of each election's object, and its subscribers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use super::codec::{DecodedRecord, UNUSED};
use super::record::ElectionRecord;
use crate::backends::hint_hub::HintHub;
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
    pub(super) fn record(&self) -> Record {
        Record { revision: self.revision, content: self.content.clone() }
    }
}

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
    known: Option<KnownObject>,
    /// The number of the last term that was seen, and how long its holder must be waited for.
    last_term: Option<(i32, Duration)>,
    /// Whether an object of this name was seen that is not declared new, or no longer.
    has_past: bool,
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
        locked(&self.state).known.clone()
    }

    pub(super) fn forget(&self) {
        locked(&self.state).known = None;
    }

    pub(super) fn learn(&self, version: u64, object: Value, found: DecodedRecord) -> KnownObject {
        let DecodedRecord { record, mut content } = found;
        let is_unused = content == UNUSED;
        let mut state = locked(&self.state);
        match &mut content {
            Content::Held(entry) => state.last_term = Some((record.leader_transitions, entry.ttl)),
            // Of another program: it does not state how long its work may continue.
            Content::Vacant(Tombstone::Released {
                by: Nonce::NOBODY, cause: None, left, ..
            }) => match state.last_term {
                Some((term, lease)) if term == record.leader_transitions => *left = lease,
                Some((_, lease)) => *left = lease.max(*left),
                None => {}
            },
            // An older version was put back: the number of terms only grows.
            Content::Vacant(tombstone @ Tombstone::Released { .. })
                if !is_unused
                    && state.last_term.is_some_and(|(t, _)| record.leader_transitions < t) =>
            {
                *tombstone = Tombstone::Deleted;
            }
            // Its creator was wrong: an applied manifest recreates a deleted object.
            Content::Vacant(tombstone) if is_unused && state.has_past => {
                *tombstone = Tombstone::Deleted;
            }
            Content::Vacant(_) => {}
        }
        state.has_past |= !is_unused;
        let same = |known: &&KnownObject| known.record == record && known.content == content;
        let revision =
            state.known.as_ref().filter(same).map_or(Revision(version), |known| known.revision);
        let known = KnownObject { object: Arc::new(object), version, revision, record, content };
        state.known = Some(known.clone());
        known
    }

    /// Whether this version is older than the known one.
    pub(super) fn is_old(&self, version: u64) -> bool {
        locked(&self.state).known.as_ref().is_some_and(|known| version < known.version)
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

    /// Returns the remaining wait after a record of this term was emptied the way client-go empties
    /// it.
    fn left(election: &ObjectState, version: u64, term: i32) -> Duration {
        let released = json!({ "spec": {
            "holderIdentity": "", "leaseDurationSeconds": RELEASED_SECONDS, "leaseTransitions": term,
            "renewTime": "2026-01-01T00:00:00.000001Z",
        } });
        let found = codec::read(RecordLocation::Spec, &released, OURS);
        match election.learn(version, released, found).content {
            Content::Vacant(Tombstone::Released { by: Nonce::NOBODY, left, .. }) => left,
            other => panic!("{other:?}"),
        }
    }

    fn holds(election: &ObjectState, version: u64, term: i32, lease: u64) {
        let held = json!({ "spec": {
            "holderIdentity": "go", "leaseDurationSeconds": lease, "leaseTransitions": term,
        } });
        let found = codec::read(RecordLocation::Spec, &held, OURS);
        election.learn(version, held, found);
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
            let found = codec::read(RecordLocation::Spec, &object, OURS);
            election.learn(version, object, found).content
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
        let learn = |election: &ObjectState, version| {
            let found = codec::read(RecordLocation::Spec, &new, OURS);
            election.learn(version, new.clone(), found).content
        };
        let election = ObjectState::default();
        assert_eq!([learn(&election, 1), learn(&election, 1)], [UNUSED, UNUSED], "read again");
        holds(&election, 2, 0, 15);
        election.forget();
        assert_eq!(learn(&election, 4), Content::Vacant(Tombstone::Deleted));
        assert_eq!(learn(&election, 5), Content::Vacant(Tombstone::Deleted), "for good");
    }
}
