//! Finding the leader, and why there is none.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::{
    Content, Lock, Mark, Nonce, Reading, Record, Release, Tombstone, Write, WriteId,
};
use incumbent::protocol::CRASHED;
use incumbent::{Advertisement, Change, Changes, ElectionBuilder, Leader, Leadership, observe};

use super::{
    Service, TIMEOUT, appears, becomes_true, change, in_one_term, leads, leads_before, soon,
};

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
    let itself = in_one_term(&leading, async |_: &Leadership| leading.leader()).await.unwrap();
    assert_eq!(itself.advertisement.as_deref(), Some(&first));
    let stands = advertising(service.candidate("second").await, &second).unwrap();
    let by_standby = appears("the standby sees it", async || {
        drop(leads_before(&leading, &[&stands]).await);
        stands.leader().filter(|leader| &*leader.identity == "first")
    });
    for seen in [leader(&mut observed, "first").await, by_standby.await] {
        assert_eq!((seen.advertisement.as_deref(), seen.is_me), (Some(&first), false));
    }
    let is_fresh = async || {
        drop(leads_before(&leading, &[&stands]).await);
        let (fresh, age) = (observer.fresh_leader(), observer.leader_age());
        fresh.is_some_and(|fresh| {
            let is_young = age.is_some_and(|age| age < fresh.lease);
            is_young && fresh.advertisement.as_deref() == Some(&first)
        })
    };
    becomes_true("a fresh leader is seen", is_fresh).await;

    let moved = Advertisement::new("10.0.0.1:50052");
    leading.advertise(moved.clone()).unwrap();
    assert!(leading.advertise("here there").is_err());
    soon("the new address is seen", async {
        loop {
            tokio::select! {
                // On a busy machine the observer may have lost sight of the leader before.
                seen = leader(&mut observed, "first") => {
                    if seen.advertisement.as_deref() == Some(&moved) {
                        return;
                    }
                }
                // Or its lease may have run out.
                won = stands.won() => {
                    let leadership = won.expect("a campaign");
                    leadership.resign();
                    leadership.ended().await;
                }
            }
        }
    })
    .await;
    let holds = async || {
        drop(leads_before(&leading, &[&stands]).await);
        service.holder("my_app").await.as_deref() == Some("first")
    };
    becomes_true("the first holds the entry", holds).await;

    leading.stop().await;
    drop(leads(&stands).await);
    let seen = leader(&mut observed, "second").await;
    assert_eq!(seen.advertisement.as_deref(), Some(&second));
    let holder = in_one_term(&stands, async |_: &Leadership| service.holder("my_app").await).await;
    assert_eq!(holder.as_deref(), Some("second"));
}

/// What the lock holds after a release, and the cause and the successor in it. `None`: no release.
async fn released(lock: &dyn Lock) -> Option<(Record, Option<Arc<str>>, Option<Nonce>)> {
    let Ok(Reading::Found(record)) = lock.read("my_app", TIMEOUT).await else { return None };
    match &record.content {
        Content::Vacant(Tombstone::Released { cause, to, .. }) => {
            let (cause, to) = (cause.clone(), *to);
            Some((record, cause, to))
        }
        _ => None,
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
    let stopped = async || {
        let election = service.candidate("only").await.start().unwrap();
        drop(leads(&election).await);
        election.stop().await;
        // On a busy machine its lease may have run out before.
        released(&*lock).await.filter(|(_, cause, _)| cause.as_deref() != Some("expired"))
    };
    let (_, cause, to) = appears("a release", stopped).await;
    assert_eq!((cause.as_deref(), to), (Some("stopped"), None));

    let by = Nonce(7);
    let crashed = async || {
        let expected = match lock.read("my_app", TIMEOUT).await.expect("a read") {
            Reading::Found(record) => Some(record.revision),
            Reading::Empty { .. } => None,
        };
        let write = WriteId { nonce: by, number: 1 };
        let entry = Write {
            identity: "crashes".into(),
            mark: Mark::new(write, S::LEASE, None),
            ttl: S::LEASE,
            expected,
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
        lock.release("my_app", release).await.ok()
    };
    appears("a release", crashed).await;
    let (_, cause, to) = released(&*lock).await.expect("a release");
    assert_eq!((cause.as_deref(), to), (Some("crashed"), Some(Nonce(8))));
}
