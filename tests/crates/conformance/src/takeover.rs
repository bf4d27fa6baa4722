//! Who leads, and who leads next.

use std::sync::Arc;
use std::time::Duration;

use incumbent::clock::{BootClock, Clock};
use incumbent::lock::{LockErrorKind, Reading, Revision};
use incumbent::{Cause, Change, State, Stopped, new_election, observe};
use tokio::sync::mpsc;

use super::{
    ExclusionChecker, Process, Service, TIMEOUT, becomes_true, change, leads, lost, sees, soon,
};

/// Of ten candidates one leads, the others know it, and each of the ten leads in turn as its
/// leaders stop.
pub async fn one_leader_of_ten<S: Service>() {
    let service = S::start().await;
    let checker = Arc::new(ExclusionChecker::default());
    let (won, mut wins) = mpsc::unbounded_channel();
    let mut candidates = Vec::new();
    for i in 0..10 {
        let identity = format!("c{i}");
        let builder = checker.watch(service.candidate(&identity).await, &identity, won.clone());
        candidates.push(builder.start().unwrap());
    }
    while !candidates.is_empty() {
        let leader = soon("there is a leader", wins.recv()).await.unwrap();
        let leads = candidates.iter().filter(|c| c.is_leader()).count();
        assert!(leads <= 1, "{leads} say that they lead");
        for candidate in &candidates {
            sees(candidate, &leader).await;
        }
        let leader = candidates.iter().position(|c| c.identity() == leader).unwrap();
        candidates.swap_remove(leader).stop().await;
    }
    checker.verdict();
}

/// The check sends a write that the lock must refuse.
pub async fn a_check_of_its_release_leaves_the_leader_alone<S: Service>() {
    let service = S::start().await;
    let election = service.candidate("first").await.start().unwrap();
    let leadership = leads(&election).await;
    let lock = service.lock().await;
    for name in [election.name(), "unknown"] {
        lock.check_release(name, TIMEOUT).await.unwrap();
    }
    let renewed = leadership.renewed(leadership.deadline());
    soon("a renewal", renewed).await.expect("it still leads");
    assert_eq!(service.holder(election.name()).await.as_deref(), Some("first"));
}

/// A leader whose process dies is replaced when its lease has run out.
pub async fn a_crashed_leader_is_replaced<S: Service>() {
    let service = Arc::new(S::start().await);
    let first = Process::start(&service, "first").await;
    let lost = leads(&first.election).await;
    let second = service.candidate("second").await.start().unwrap();
    sees(&second, "first").await;
    assert_eq!(second.state(), State::Candidate);
    first.crash();
    let leadership = leads(&second).await;
    assert!(leadership.token() > lost.token());
    assert!(!lost.is_valid());
    assert!(leadership.remaining() <= S::LEASE);
}

/// A crashed leader with a lease below a second is replaced by a standby that has a longer one.
pub async fn a_crashed_leader_with_a_short_lease_is_replaced<S: Service>() {
    const SHORT: Duration = Duration::from_millis(500);
    let service = Arc::new(S::start().await);
    if service.lock().await.capabilities().min_lease > SHORT {
        return; // it refuses such a lease, as another test shows
    }
    let first = Process::start_with(&service, "first", |builder| builder.lease(SHORT)).await;
    let lost = leads(&first.election).await;
    assert!(lost.remaining() <= SHORT);
    let second = service.candidate("second").await.start().unwrap();
    sees(&second, "first").await;
    first.crash();
    let leadership = leads(&second).await;
    assert!(leadership.token() > lost.token());
    assert!(BootClock.now() >= lost.deadline());
}

/// Leading is a comparison with the clock: no task of the leader has to run for it to become false.
pub async fn a_leader_whose_runtime_is_blocked_is_replaced<S: Service>() {
    let service = Arc::new(S::start().await);
    let process = Process::start(&service, "blocked").await;
    let leadership = leads(&process.election).await;
    let blocked = process.block();
    let standby = service.candidate("next").await.start().unwrap();
    let _leads = leads(&standby).await;
    assert!(!process.election.is_leader());
    assert!(!leadership.is_valid());
    assert_eq!(leadership.remaining(), Duration::ZERO);
    drop(blocked);
    assert!(matches!(
        soon("the loss", leadership.ended()).await.cause,
        Cause::Expired { .. } | Cause::Superseded { .. }
    ));
    drop(leadership);
    standby.stop().await;
}

/// A leader that stops releases its entry.
pub async fn a_stopped_leader_is_replaced<S: Service>() {
    let service = S::start().await;
    let first = service.candidate("first").await.start().unwrap();
    let leadership = leads(&first).await;
    let second = service.candidate("second").await.start().unwrap();
    sees(&second, "first").await;
    drop(leadership);
    first.stop().await;
    assert!(!first.is_leader());
    assert_eq!(first.won().await.unwrap_err(), Stopped);
    let _leadership = leads(&second).await;
}

/// A leader that resigns yields to others, and campaigns again.
pub async fn a_leader_that_resigned_is_replaced_and_campaigns_again<S: Service>() {
    let service = S::start().await;
    let first = service.candidate("first").await.start().unwrap();
    let leadership = leads(&first).await;
    let second = service.candidate("second").await.start().unwrap();
    sees(&second, "first").await;
    leadership.resign();
    assert_eq!(soon("the end", leadership.ended()).await.cause, Cause::Resigned);
    drop(leadership);
    let leadership = leads(&second).await;
    sees(&first, "second").await;
    drop(leadership);
    second.stop().await;
    let _leadership = leads(&first).await;
}

/// A leader whose entry an operator deletes steps down, another leads, and the evicted one
/// campaigns again.
pub async fn an_evicted_leader_is_replaced_and_campaigns_again<S: Service>() {
    let service = S::start().await;
    let checker = Arc::new(ExclusionChecker::default());
    let (won, mut wins) = mpsc::unbounded_channel();
    let first = checker.watch(service.candidate("first").await, "first", won.clone());
    let first = first.start().unwrap();
    let mut changes = first.changes();
    assert_eq!(soon("the first leads", wins.recv()).await.unwrap(), "first");
    let second = checker.watch(service.candidate("second").await, "second", won);
    let second = second.start().unwrap();
    sees(&second, "first").await;
    service.evict("my_app").await;
    let cause = lost(&mut changes).await;
    let found = Cause::Superseded { by: Some("second".into()) };
    assert!(cause == Cause::Evicted || !S::HEARS_DELETIONS && cause == found, "{cause:?}");
    assert_eq!(soon("the second leads", wins.recv()).await.unwrap(), "second");
    second.stop().await;
    assert_eq!(soon("the first leads again", wins.recv()).await.unwrap(), "first");
    checker.verdict();
}

/// What an operator's tools do, whatever the lock: an eviction that was meant for an earlier write
/// does nothing.
pub async fn an_operator_lists_elections_and_evicts_the_listed_leader<S: Service>() {
    let service = S::start().await;
    let lock = service.operators_lock().await;
    if lock.members().is_some() {
        return; // each of its locks is asked by itself
    }
    let admin = lock.admin().expect("an operator's lock");
    let election = service.candidate("only").await.start().unwrap();
    let mut changes = election.changes();
    drop(leads(&election).await);
    // Where there is no server, others learn of it a little later than its leader.
    let is_listed = async || admin.names(TIMEOUT).await.unwrap().len() == 1;
    becomes_true("it is listed", is_listed).await;
    let listed = admin.names(TIMEOUT).await.unwrap().pop().expect("the name of the election there");
    let revision = async || match lock.read("my_app", TIMEOUT).await.unwrap() {
        Reading::Found(record) => record.revision,
        Reading::Empty { .. } => panic!("it leads"),
    };
    let stale = Revision(revision().await.0 - 1);
    let refused = admin.evict(&listed, stale, TIMEOUT).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Conflict, "{refused}");
    soon("an eviction between two renewals", async {
        while let Err(refused) = admin.evict(&listed, revision().await, TIMEOUT).await {
            assert_eq!(refused.kind(), LockErrorKind::Conflict, "{refused}");
        }
    })
    .await;
    assert_eq!(lost(&mut changes).await, Cause::Evicted);
    drop(leads(&election).await);
}

/// Dropping the last handle of an election stops it as `stop` would.
pub async fn dropping_the_last_handle_releases_the_leadership<S: Service>() {
    let service = S::start().await;
    let first = service.candidate("first").await.start().unwrap();
    drop(leads(&first).await);
    let second = service.candidate("second").await.start().unwrap();
    sees(&second, "first").await;
    drop(first);
    let _leadership = leads(&second).await;
}

/// Whatever ends a term, the next one has a greater token.
pub async fn tokens_grow_from_term_to_term<S: Service>() {
    let service = S::start().await;
    let election = service.candidate("only").await.start().unwrap();
    let mut last = 0;
    for turn in 0..4 {
        let leadership = leads(&election).await;
        let is_valid = leadership.is_valid();
        let seen = format!("turn {turn}: {leadership:?}, valid: {is_valid}, after {last}");
        assert!(leadership.token().0 > last, "{seen}");
        assert_eq!(election.token(), Some(leadership.token()));
        last = leadership.token().0;
        match turn % 2 {
            0 => leadership.resign(),
            _ => service.evict("my_app").await,
        }
        drop(leadership);
        let mut changes = election.changes();
        if election.token().map(|t| t.0) == Some(last) {
            change(&mut changes, "the term ends", |c| {
                matches!(c, Change::Lost { .. }).then_some(())
            })
            .await;
        }
    }
}

/// Two candidates that show the same identity (kubernetes/kubernetes#61151) are two: one of them
/// leads.
pub async fn two_candidates_with_the_same_identity_are_distinct<S: Service>() {
    let service = S::start().await;
    let checker = Arc::new(ExclusionChecker::default());
    let (won, mut wins) = mpsc::unbounded_channel();
    let a = checker.watch(service.candidate("twin").await, "a", won.clone()).start().unwrap();
    let b = checker.watch(service.candidate("twin").await, "b", won).start().unwrap();
    for (name, twin, other) in [("a", &a, &b), ("b", &b, &a)].repeat(2) {
        while soon("a twin leads", wins.recv()).await.unwrap() != name {
            other.resign(); // its turn was before
        }
        sees(other, "twin").await;
        let (token, seen) = (twin.token(), other.leader());
        // Unless the term ended meanwhile.
        if token.is_some() && twin.token() == token {
            assert!(!other.is_leader() && !seen.is_some_and(|leader| leader.is_me));
        }
        twin.resign();
    }
    checker.verdict();
}

/// Watching an election shows who leads, and leaves it alone.
pub async fn an_observer_sees_the_leader_and_never_campaigns<S: Service>() {
    let service = S::start().await;
    let observer = observe("my_app", service.lock().await).unwrap();
    let mut changes = observer.changes();
    let election = service.candidate("first").await.start().unwrap();
    let leadership = leads(&election).await;
    let seen = change(&mut changes, "the observer sees it", |change| match change {
        Change::Leader(Some(leader)) => Some(leader.clone()),
        _ => None,
    })
    .await;
    assert_eq!((&*seen.identity, seen.is_me), ("first", false));
    assert_eq!(observer.leader().unwrap().token, Some(leadership.token()));
    election.stop().await;
    change(&mut changes, "the observer sees the vacancy", |change| {
        matches!(change, Change::Leader(None)).then_some(())
    })
    .await;
    assert_eq!(observer.leader(), None);
    assert_eq!(service.holder("my_app").await, None);
    observer.stop().await;
}

/// However late it gets to read them.
pub async fn a_subscription_from_the_start_misses_no_change<S: Service>() {
    let service = S::start().await;
    let (election, mut changes) = service.candidate("only").await.start_with_changes().unwrap();
    let leadership = leads(&election).await;
    let told = change(&mut changes, "the win is told", |change| match change {
        Change::Won { token } => Some(*token),
        _ => None,
    })
    .await;
    assert_eq!(told, leadership.token());
}

/// An election can be left and entered again by the same process.
pub async fn a_candidate_campaigns_again_after_stop_and_start<S: Service>() {
    let service = S::start().await;
    let lock = service.lock().await;
    for _ in 0..3 {
        let builder = new_election("my_app", Arc::clone(&lock)).identity("again").lease(S::LEASE);
        let election = builder.start().unwrap();
        let leadership = leads(&election).await;
        assert_eq!(service.holder("my_app").await.as_deref(), Some("again"));
        drop(leadership);
        election.stop().await;
        assert_eq!(service.holder("my_app").await, None);
    }
}
