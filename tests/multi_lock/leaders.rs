//! The stream of fresh leaders, for an observer that is cut off from the lock.

use std::time::Duration;

use incumbent::discovery::Leaders;
use incumbent::lock::LockErrorKind;
use incumbent::{Leader, Token};

use crate::conformance::{Diary, Failing, SwitchableLock, leads, soon};
use crate::env::{NAME, STEADY, candidate, memory, steady};

/// Waits for the leader to be this one, and returns the token.
async fn next(leaders: &mut Leaders, identity: Option<&str>) -> Option<Token> {
    soon(&format!("{identity:?} leads"), async {
        loop {
            let leader: Option<Leader> = leaders.next().await.expect("it continues");
            if leader.as_ref().map(|leader| &*leader.identity) == identity {
                return leader.and_then(|leader| leader.token);
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_leader_not_seen_to_renew_is_none_until_seen_again() {
    let lock = steady();
    let switchable = SwitchableLock::new(&lock, "observer", &Diary::default());
    let observer = incumbent::observe(NAME, switchable.clone()).unwrap();
    let mut leaders = Leaders::new(observer.clone());
    assert_eq!(soon("the first one", leaders.next()).await, Some(None), "at once");

    let first = candidate(lock.clone(), "first").lease(STEADY).advertise("10.0.0.1:80");
    let first = first.start().unwrap();
    let leadership = leads(&first).await;
    let token = next(&mut leaders, Some("first")).await;
    assert_eq!(token, Some(leadership.token()));

    switchable.fail(Failing::All(LockErrorKind::Unavailable));
    next(&mut leaders, None).await;
    assert!(first.is_leader(), "it still leads, unseen");
    switchable.fail(Failing::Nothing);
    assert_eq!(next(&mut leaders, Some("first")).await, token);

    let second = candidate(lock.clone(), "second").start().unwrap();
    drop(leadership);
    first.stop().await;
    assert!(next(&mut leaders, Some("second")).await > token);
    second.stop().await;
    observer.stop().await;
    soon("the end", async { while leaders.next().await.is_some() {} }).await;
}

/// A leader is fresh for a second at least, also where its lease is shorter.
#[tokio::test]
async fn a_short_lease_of_a_leader_unseen_ends_too() {
    let lock = memory();
    let switchable = SwitchableLock::new(&lock, "observer", &Diary::default());
    let observer = incumbent::observe(NAME, switchable.clone()).unwrap();
    let mut leaders = Leaders::new(observer);

    let first = candidate(lock.clone(), "first").lease(Duration::from_millis(300));
    let first = first.start().unwrap();
    next(&mut leaders, Some("first")).await;
    switchable.fail(Failing::All(LockErrorKind::Unavailable));
    next(&mut leaders, None).await;
    first.stop().await;
}
