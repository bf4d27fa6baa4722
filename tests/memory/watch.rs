//! The level-triggered status, and the callback for a new leader.

use std::sync::Arc;
use std::time::Duration;

use incumbent::clock::{BootClock, Clock};
use incumbent::memory::MemoryLock;
use incumbent::{CoolDown, State, StatusWatch, WaitReason, new_election, observe};
use tokio::sync::mpsc;

use crate::STEADY;
use crate::conformance::{LEASE, leads, soon};

async fn until(
    watch: &mut StatusWatch,
    is: impl Fn(&incumbent::Status) -> bool,
) -> incumbent::Status {
    soon("the status", async {
        loop {
            let status = watch.next().await.expect("the candidate has not stopped");
            if is(&status) {
                return status;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_watch_shows_the_newest_status_and_ends_with_the_candidate() {
    let lock = MemoryLock::with_ttl(STEADY);
    let election = new_election("my_app", lock.clone()).identity("first").start().unwrap();
    let mut watch = election.watch();
    assert_eq!(watch.next().await.expect("the first status, at once").state, State::Unknown);
    let leadership = leads(&election).await;

    let leading = until(&mut watch, |status| status.state == State::Leader).await;
    assert_eq!(leading.token, Some(leadership.token()));
    let mut current = watch.current();
    if let (Some(now), Some(seen)) = (&mut current.leader, &leading.leader) {
        now.last_seen = seen.last_seen; // it may have renewed
    }
    assert_eq!(leading, current);
    let leader = leading.leader.expect("a leader");
    assert_eq!((&*leader.identity, leader.is_me), ("first", true));

    // Not read while one term ends and the next one begins.
    drop(leadership);
    let next = soon("another term", async {
        loop {
            let leadership = election.won().await.expect("a term");
            if Some(leadership.token()) != leading.token {
                return leadership;
            }
        }
    })
    .await;
    let newest = until(&mut watch, |status| status.state == State::Leader).await;
    assert_eq!(newest.token, Some(next.token()));

    drop(next);
    election.stop().await;
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn a_winner_that_waits_states_until_when_and_why() {
    let wait = Duration::from_secs(10); // so long that a busy machine sees it
    let election = new_election("my_app", MemoryLock::with_ttl(STEADY))
        .cool_down(CoolDown::For(wait))
        .start()
        .unwrap();
    let mut watch = election.watch();
    let waiting = until(&mut watch, |status| status.cool_down.is_some()).await;
    assert_eq!((waiting.state, waiting.token), (State::Candidate, None));
    assert_eq!(waiting.cool_down.map(|wait| wait.reason), Some(WaitReason::Policy));
    let leading = until(&mut watch, |status| status.state == State::Leader).await;
    assert_eq!(leading.cool_down, None);
    assert!(BootClock.now() >= waiting.cool_down.expect("a wait").until);
    election.stop().await;
}

#[tokio::test]
async fn an_observer_watches_the_leader() {
    let lock = MemoryLock::with_ttl(LEASE);
    let observer = observe("my_app", lock.clone()).unwrap();
    let mut watch = observer.watch();
    let election = new_election("my_app", lock).identity("first").start().unwrap();
    let _leadership = leads(&election).await;
    let status = until(&mut watch, |status| status.leader.is_some()).await;
    assert_eq!(status.leader.map(|leader| leader.is_me), Some(false));
    assert_eq!(status.token, None);
}

#[tokio::test]
async fn on_new_leader_is_called_for_each_leader_and_survives_a_panic() {
    let lock = MemoryLock::with_ttl(STEADY);
    let (calls, mut called) = mpsc::unbounded_channel::<Option<Arc<str>>>();
    let election = new_election("my_app", lock.clone())
        .identity("first")
        .on_new_leader(move |leader| {
            let identity = leader.map(|leader| leader.identity);
            calls.send(identity.clone()).expect("the test reads");
            assert_ne!(identity.as_deref(), Some("first"), "a panic before there is a future");
            async move { assert_ne!(identity.as_deref(), Some("second"), "a panic of the user") }
        })
        .start()
        .unwrap();
    let leadership = leads(&election).await;
    let other = new_election("my_app", lock).identity("second").start().unwrap();
    let mut leaders = async |identity: &str| {
        soon(&format!("{identity} leads"), async {
            while called.recv().await.expect("the candidate has not stopped").as_deref()
                != Some(identity)
            {}
        })
        .await;
    };
    leaders("first").await;
    leadership.resign();
    drop(leadership);
    leaders("second").await;
    other.stop().await;
    leaders("first").await;
    election.stop().await;
    soon("the end of the calls", async { while called.recv().await.is_some() {} }).await;
}
