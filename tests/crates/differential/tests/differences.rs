//! What is a difference, and what is not.

use std::time::Duration;

use incumbent::lock::{
    Content, Entry, LockErrorKind, Mark, MoveInfo, Nonce, Reading, Record, Revision, Tombstone,
    Write, WriteId,
};
use incumbent_differential::{Act, Deed, Model, NEVER, Outcome, Rules};
use incumbent_sim::Retention;

const TTL: Duration = Duration::from_secs(2);

fn rules(retention: Retention) -> Rules {
    Rules { slack: Duration::from_millis(250), ..Rules::new(retention, TTL) }
}

fn write(expected: Option<u64>, life: Duration) -> Write {
    Write {
        expected: expected.map(Revision),
        identity: "host1".into(),
        mark: Mark {
            write: WriteId { nonce: Nonce(1), number: 1 },
            lease: TTL,
            token: None,
            since_unix_ms: 1,
            moves: Box::new(MoveInfo::default()),
        },
        ttl: life,
        advertisement: None,
        timeout: Duration::from_secs(1),
    }
}

fn at(seconds: f64) -> (Duration, Duration) {
    let sent = Duration::from_secs_f64(seconds);
    (sent, sent + Duration::from_millis(1))
}

/// An entry written at 1 s, as revision 70, whose writer requests `life`.
fn held(retention: Retention, life: Duration) -> Model {
    let mut model = Model::new(rules(retention));
    let written = Outcome::Stored(Ok(Some(Revision(70))));
    model.observe(at(1.0), &Act::Write(write(None, life)), &written).unwrap();
    model
}

fn record(revision: u64, content: Content) -> Record {
    Record { revision: Revision(revision), content }
}

fn entry(life: Duration) -> Content {
    let Write { identity, mark, .. } = write(None, life);
    Content::Held(Entry { identity, mark: Some(mark), ttl: life, advertisement: None })
}

fn finds(record: Record) -> Outcome {
    Outcome::Read(Ok(Reading::Found(record)))
}

const EXPIRED: Content = Content::Vacant(Tombstone::Expired);

#[test]
fn an_entry_that_is_freed_before_its_time_is_a_difference() {
    let marker = || finds(record(71, EXPIRED));
    held(Retention::LeavesMarkers, TTL).observe(at(2.9), &Act::Read, &marker()).unwrap_err();
    held(Retention::LeavesMarkers, TTL).observe(at(3.1), &Act::Read, &marker()).unwrap();
    // It requests more, and is kept for the bucket's TTL: as servers do.
    held(Retention::LeavesMarkers, TTL * 6).observe(at(3.1), &Act::Read, &marker()).unwrap();
}

#[test]
fn an_entry_that_is_never_freed_is_a_difference() {
    let still = || finds(record(70, entry(TTL)));
    let after = 3.0 + NEVER.as_secs_f64();
    held(Retention::LeavesMarkers, TTL).observe(at(3.4), &Act::Read, &still()).unwrap();
    held(Retention::LeavesMarkers, TTL).observe(at(after + 0.1), &Act::Read, &still()).unwrap_err();
}

/// Of three replicas alone, which agree on it before it is stored.
#[test]
fn a_marker_that_is_under_way_outlives_a_purge() {
    for (replicated, life) in [(true, 1), (true, 2), (false, 1)] {
        let rules = Rules { replicated, ..rules(Retention::LeavesMarkers) };
        let mut model = Model::new(rules);
        let written = Outcome::Stored(Ok(Some(Revision(70))));
        let entry = write(None, Duration::from_secs(life));
        model.observe(at(1.0), &Act::Write(entry), &written).unwrap();
        model.observe(at(2.5), &Act::Deed(Deed::Vanish, None), &Outcome::Stored(Ok(None))).unwrap();
        let found = model.observe(at(2.6), &Act::Read, &finds(record(71, EXPIRED)));
        assert_eq!(found.is_ok(), replicated && life == 1);
    }
}

/// As above: it takes the place of what was written over the entry that expired.
#[test]
fn a_marker_that_is_under_way_replaces_a_write() {
    for (replicated, life) in [(true, 1), (true, 2), (false, 1)] {
        let rules = Rules { replicated, ..rules(Retention::LeavesMarkers) };
        let mut model = Model::new(rules);
        let stored = |revision| Outcome::Stored(Ok(Some(Revision(revision))));
        let entry = write(None, Duration::from_secs(life));
        model.observe(at(1.0), &Act::Write(entry), &stored(70)).unwrap();
        model.observe(at(2.5), &Act::Write(write(Some(70), TTL)), &stored(71)).unwrap();
        let mut undone = model.clone();
        model.observe(at(2.6), &Act::Read, &finds(record(71, self::entry(TTL)))).unwrap();
        let found = undone.observe(at(2.6), &Act::Read, &finds(record(72, EXPIRED)));
        assert_eq!(found.is_ok(), replicated && life == 1);
    }
}

#[test]
fn refused_valid_and_stored_invalid_writes_are_differences() {
    let mut model = held(Retention::LeavesMarkers, TTL);
    let (right, wrong) = (Act::Write(write(Some(70), TTL)), Act::Write(write(Some(69), TTL)));
    let refused = Outcome::Stored(Err(LockErrorKind::Conflict));
    let stored = Outcome::Stored(Ok(Some(Revision(75))));
    model.clone().observe(at(1.5), &right, &refused).unwrap_err();
    model.clone().observe(at(1.5), &wrong, &stored).unwrap_err();
    model.observe(at(1.5), &wrong, &refused).unwrap();
    model.observe(at(1.6), &right, &stored).unwrap();
}

#[test]
fn a_write_whose_answer_is_lost_may_be_stored_or_not() {
    let mut model = held(Retention::LeavesMarkers, TTL);
    let lost = Outcome::Stored(Err(LockErrorKind::OutcomeUnknown));
    model.observe(at(1.5), &Act::Write(write(Some(70), TTL)), &lost).unwrap();
    for revision in [70, 75] {
        model.clone().observe(at(1.6), &Act::Read, &finds(record(revision, entry(TTL)))).unwrap();
    }
}

#[test]
fn a_hint_out_of_order_or_repeated_is_a_difference() {
    let mut model = held(Retention::LeavesMarkers, TTL);
    let over = |model: &mut Model, expected, revision| {
        let stored = Outcome::Stored(Ok(Some(Revision(revision))));
        model.observe(at(1.5), &Act::Write(write(Some(expected), TTL)), &stored).unwrap();
    };
    over(&mut model, 70, 75);
    let now = Duration::from_secs_f64(1.6);
    let (first, second) = (record(70, entry(TTL)), record(75, entry(TTL)));
    let previous = Some(Some(Revision(70)));
    model.clone().receive(now, &second, previous).unwrap_err();
    model.receive(now, &first, Some(None)).unwrap();
    model.clone().receive(now, &first, Some(None)).unwrap_err();
    model.clone().receive(now, &second, Some(None)).unwrap_err();
    assert!(!model.settle());
    model.receive(now, &second, previous).unwrap();
    assert!(model.settle());
}
