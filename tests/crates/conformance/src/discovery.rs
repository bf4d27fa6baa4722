//! Finding the leader, and why there is none.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::{
    Content, Lock, Mark, Nonce, Reading, Record, Release, Tombstone, Write, WriteId,
};
use incumbent::protocol::CRASHED;
use incumbent::{Advertisement, Change, Changes, ElectionBuilder, Leader, observe};

use super::{Service, TIMEOUT, change, leads, sees};

/// Waits until the leader is `identity`.
async fn leader(changes: &mut Changes<incumbent::Change>, identity: &str) -> Leader {
    change(changes, "who leads is told", |change| match change {
        Change::Leader(Some(leader)) if &*leader.identity == identity => Some(leader.clone()),
        _ => None,
    })
    .await
}

/// Candidates and observers read the leader's address, also when it has changed, and after a
/// takeover.
pub async fn every_candidate_and_observer_sees_the_advertisement<S: Service>() {
    let service = S::start().await;
    let observer = observe("my_app", service.lock().await).unwrap();
    let mut observed = observer.changes();
    let first = Advertisement::new("10.0.0.1:50051").with("zone", "größer");
    let second = Advertisement::new("https://c2.example.net");
    let advertising =
        |builder: ElectionBuilder, said: &Advertisement| builder.advertise(said.clone()).start();

    let leading = advertising(service.candidate("first").await, &first).unwrap();
    drop(leads(&leading).await);
    assert_eq!(leading.leader().unwrap().advertisement.as_deref(), Some(&first));
    let stands = advertising(service.candidate("second").await, &second).unwrap();
    sees(&stands, "first").await;
    for seen in [leader(&mut observed, "first").await, stands.leader().unwrap()] {
        assert_eq!((seen.advertisement.as_deref(), seen.is_me), (Some(&first), false));
    }
    let fresh = observer.fresh_leader().expect("it renews");
    assert_eq!(fresh.advertisement.as_deref(), Some(&first));
    assert!(observer.leader_age().is_some_and(|age| age < fresh.lease));

    let moved = Advertisement::new("10.0.0.1:50052");
    leading.advertise(moved.clone()).unwrap();
    assert!(leading.advertise("here there").is_err());
    // On a busy machine the observer may have lost sight of the leader before.
    while leader(&mut observed, "first").await.advertisement.as_deref() != Some(&moved) {}
    assert_eq!(service.holder("my_app").await.as_deref(), Some("first"));

    leading.stop().await;
    let _leadership = leads(&stands).await;
    let seen = leader(&mut observed, "second").await;
    assert_eq!(seen.advertisement.as_deref(), Some(&second));
    assert_eq!(service.holder("my_app").await.as_deref(), Some("second"));
}

/// What the lock holds after a release, and the cause and the successor in it.
async fn released(lock: &dyn Lock) -> (Record, Option<Arc<str>>, Option<Nonce>) {
    let Ok(Reading::Found(record)) = lock.read("my_app", TIMEOUT).await else {
        panic!("no tombstone");
    };
    match &record.content {
        Content::Vacant(Tombstone::Released { cause, to, .. }) => {
            let (cause, to) = (cause.clone(), *to);
            (record, cause, to)
        }
        content => panic!("not released: {content:?}"),
    }
}

/// A lock keeps the cause of a release for people, that of a leader and that of a sentinel, and the
/// successor of a handover.
pub async fn the_cause_and_the_successor_of_a_release_are_read_back<S: Service>() {
    let service = S::start().await;
    let lock = service.operators_lock().await;
    if lock.members().is_some() {
        return; // each of its locks is asked by itself
    }
    let election = service.candidate("only").await.start().unwrap();
    drop(leads(&election).await);
    election.stop().await;
    let (record, cause, to) = released(&*lock).await;
    assert_eq!((cause.as_deref(), to), (Some("stopped"), None));

    let by = Nonce(7);
    let write = WriteId { nonce: by, number: 1 };
    let entry = Write {
        identity: "crashes".into(),
        mark: Mark::new(write, S::LEASE, None),
        ttl: S::LEASE,
        expected: Some(record.revision),
        advertisement: None,
        timeout: TIMEOUT,
    };
    let expected = lock.write("my_app", entry).await.expect("a write");
    let left = Duration::ZERO;
    let release = Release {
        expected,
        by,
        left,
        cause: CRASHED,
        to: Some(Nonce(8)),
        pause: None,
        timeout: TIMEOUT,
    };
    lock.release("my_app", release).await.expect("a release");
    let (_, cause, to) = released(&*lock).await;
    assert_eq!((cause.as_deref(), to), (Some("crashed"), Some(Nonce(8))));
}
