//! Tests of marks that are valid, and of marks that another client's write left behind.

use serde_json::json;

use crate::lock::{MoveInfo, Pause, Token, WriteId};

use super::*;

const DEFAULT_LEASE: Duration = Duration::from_secs(15);

const PAUSE: Option<Pause> = Some(Pause { until_unix_ms: 1_700_000_000_000 });

fn mark() -> Mark {
    Mark {
        write: WriteId { nonce: Nonce(7), number: 3 },
        lease: Duration::from_millis(4_500),
        token: Some(Token(42)),
        since_unix_ms: 1_700_000_000_000,
        moves: Box::new(MoveInfo { priority: Some(0), site: Some("eu".into()), pause: PAUSE }),
    }
}

fn record(holder: &str, second: u64, transitions: i32) -> ElectionRecord {
    ElectionRecord {
        holder_identity: holder.to_owned(),
        lease_duration_seconds: 5,
        acquire_time: Some(RecordLocation::Spec.time(Duration::from_secs(1))),
        renew_time: Some(RecordLocation::Spec.time(Duration::from_secs(second))),
        leader_transitions: transitions,
        strategy: None,
    }
}

fn ours() -> Value {
    let mut object = json!({ "metadata": { "annotations": { "theirs": "stays" } } });
    write(RecordLocation::Spec, &mut object, &record("a", 2, 4), EncodedMark::held(&mark(), None));
    object
}

#[test]
fn a_mark_is_read_as_it_was_written_in_either_place() {
    for location in [RecordLocation::Spec, RecordLocation::Annotation] {
        let mut object = json!({});
        let advertisement = Advertisement::new("10.0.0.3:50051").with("zone", "größer \u{1f980}");
        write(
            location,
            &mut object,
            &record("a", 2, 4),
            EncodedMark::held(&mark(), Some(&advertisement)),
        );
        let found = read(location, &object, DEFAULT_LEASE);
        let entry = Entry {
            identity: "a".into(),
            mark: Some(mark()),
            ttl: Duration::from_secs(5),
            advertisement: Some(Arc::new(advertisement)),
        };
        assert_eq!(found.content, Content::Held(entry));
        let left = Duration::from_millis(1_234);
        write(
            location,
            &mut object,
            &record("", 3, 4),
            EncodedMark::released(Nonce(7), left, "stopped", Some(Nonce(8)), PAUSE),
        );
        let released = Tombstone::Released {
            by: Nonce(7),
            left,
            cause: Some("stopped".into()),
            to: Some(Nonce(8)),
            pause: PAUSE,
        };
        assert_eq!(read(location, &object, DEFAULT_LEASE).content, Content::Vacant(released));
    }
    assert_eq!(annotation(&ours(), "theirs"), Some("stays"));
}

#[test]
fn a_mark_that_a_client_go_candidate_left_behind_is_stale() {
    let mut object = ours();
    RecordLocation::Spec.write(&mut object, &record("go", 3, 5));
    let Content::Held(entry) = read(RecordLocation::Spec, &object, DEFAULT_LEASE).content else {
        panic!()
    };
    assert_eq!((&*entry.identity, entry.mark), ("go", None));
    // The same identity with a later renewal: still not a mark of this library.
    RecordLocation::Spec.write(&mut object, &record("a", 3, 4));
    let Content::Held(entry) = read(RecordLocation::Spec, &object, DEFAULT_LEASE).content else {
        panic!()
    };
    assert_eq!(entry.mark, None);
}

#[test]
fn a_client_go_release_is_one_unless_the_term_was_ours() {
    let mut object = ours();
    let empty = |transitions| ElectionRecord {
        lease_duration_seconds: RELEASED_SECONDS,
        ..record("", 9, transitions)
    };
    RecordLocation::Spec.write(&mut object, &empty(5));
    let released = Tombstone::Released {
        by: Nonce::NOBODY,
        left: DEFAULT_LEASE,
        cause: None,
        to: None,
        pause: None,
    };
    assert_eq!(
        read(RecordLocation::Spec, &object, DEFAULT_LEASE).content,
        Content::Vacant(released)
    );
    RecordLocation::Spec.write(&mut object, &empty(4));
    let content = read(RecordLocation::Spec, &object, DEFAULT_LEASE).content;
    assert_eq!(content, Content::Vacant(Tombstone::Deleted));
    RecordLocation::Spec.write(&mut object, &record("", 9, 5));
    let content = read(RecordLocation::Spec, &object, DEFAULT_LEASE).content;
    assert_eq!(content, Content::Vacant(Tombstone::Deleted), "an emptied holder is no release");
}

/// A candidate may have a shorter lease than the holder, as in a rollout that changes it.
#[test]
fn an_emptied_record_states_the_lease_of_its_holder() {
    let left = |object: &Value| {
        let found = read(RecordLocation::Spec, object, DEFAULT_LEASE);
        match found.with_stated_lease(DEFAULT_LEASE).content {
            Content::Vacant(Tombstone::Released { by: Nonce::NOBODY, left, .. }) => Some(left),
            content => {
                assert_eq!(content, Content::Vacant(Tombstone::Deleted));
                None
            }
        }
    };
    let of = |holder: &str, lease_duration_seconds, transitions| ElectionRecord {
        lease_duration_seconds,
        ..record(holder, 2, transitions)
    };
    let mut object = json!({});
    write(RecordLocation::Spec, &mut object, &of("a", 60, 4), EncodedMark::held(&mark(), None));
    let longer = Some(Duration::from_secs(60));
    for (duration, transitions, stated) in
        [(60, 4, longer), (60, 5, longer), (RELEASED_SECONDS, 4, longer), (2, 5, None)]
    {
        RecordLocation::Spec.write(&mut object, &of("", duration, transitions));
        assert_eq!(left(&object), stated, "{duration} s, term {transitions}");
    }
}

#[test]
fn every_content_has_a_meaning() {
    for object in [
        json!(null),
        json!([]),
        json!({ "spec": null }),
        json!({ "spec": { "holderIdentity": 7 } }),
        json!({ "metadata": { "annotations": { "incumbent/mark": "{" } } }),
    ] {
        for location in [RecordLocation::Spec, RecordLocation::Annotation] {
            let content = read(location, &object, DEFAULT_LEASE).content;
            assert_eq!(content, Content::Vacant(Tombstone::Deleted), "{object}");
            let mut written = object.clone();
            write(location, &mut written, &record("a", 2, 1), EncodedMark::held(&mark(), None));
            assert_eq!(read(location, &written, DEFAULT_LEASE).record, record("a", 2, 1));
        }
    }
    let object = json!({ "spec": { "holderIdentity": "a", "leaseDurationSeconds": -4 } });
    let Content::Held(entry) = read(RecordLocation::Spec, &object, DEFAULT_LEASE).content else {
        panic!()
    };
    assert_eq!(entry.ttl, DEFAULT_LEASE);
    let object = json!({ "spec": { "holderIdentity": "a", "leaseDurationSeconds": i32::MAX } });
    let Content::Held(entry) = read(RecordLocation::Spec, &object, DEFAULT_LEASE).content else {
        panic!()
    };
    assert_eq!(entry.ttl, crate::lock::codec::MAX_DURATION, "the wait is bounded");
}

#[test]
fn an_object_with_a_trace_of_a_holder_is_not_new() {
    let content = |spec: Value, annotations: Value| {
        let object = json!({ "metadata": { "annotations": annotations }, "spec": spec });
        read(RecordLocation::Spec, &object, DEFAULT_LEASE).content
    };
    let new = || json!({ NEW: "true" });
    for unused in
        [Value::Null, json!({}), json!({ "holderIdentity": "", "leaseDurationSeconds": 15 })]
    {
        assert_eq!(content(unused, new()), UNUSED);
    }
    for used in [
        json!({ "holderIdentity": "a" }),
        json!({ "renewTime": "2026-01-01T00:00:00.000001Z" }),
        json!("junk"),
    ] {
        assert_ne!(content(used, new()), UNUSED);
    }
    assert_ne!(content(json!({}), Value::Null), UNUSED);
    assert_ne!(content(json!({}), json!({ NEW: "true", ANNOTATION: "x" })), UNUSED);
    let mut written = json!({ "metadata": { "annotations": new() } });
    write(RecordLocation::Spec, &mut written, &record("", 2, 1), EncodedMark::held(&mark(), None));
    assert_eq!(annotation(&written, NEW), Some("true"), "what a manifest declares stays");
    assert_ne!(read(RecordLocation::Spec, &written, DEFAULT_LEASE).content, UNUSED);
}

/// As an admission webhook changes it.
#[test]
fn a_changed_write_is_noticed_and_its_writer_waited_for() {
    let sent = ours();
    let location = RecordLocation::Spec;
    assert_eq!(differing(location, &sent, &sent), None);
    let mut stored = sent.clone();
    stored["spec"]["added"] = json!(1);
    stored["metadata"]["labels"] = json!({ "team": "a" });
    assert_eq!(differing(location, &sent, &stored), None, "what others add");
    stored["spec"]["leaseDurationSeconds"] = json!(1);
    assert_eq!(differing(location, &sent, &stored).as_deref(), Some("leaseDurationSeconds"));
    let Content::Held(entry) = read(location, &stored, DEFAULT_LEASE).content else { panic!() };
    assert_eq!((entry.mark, entry.ttl), (None, Duration::from_secs(5)), "as it was written");
    let mut stored = sent.clone();
    unannotate(&mut stored, ANNOTATION);
    assert_eq!(differing(location, &sent, &stored).as_deref(), Some(ANNOTATION));
    assert_eq!(differing(location, &sent, &json!({})).as_deref(), Some("acquireTime"));
}
