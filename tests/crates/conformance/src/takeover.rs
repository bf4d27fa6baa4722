//! Who leads, and who leads next.

use std::sync::Arc;
use std::time::Duration;

use incumbent::clock::{BootClock, Clock};
use incumbent::lock::{LockErrorKind, Reading, Revision};
use incumbent::{Cause, Change, Election, Leadership, State, Stopped, new_election, observe};
use tokio::sync::mpsc;

use super::{
    ExclusionChecker, Process, Service, TIMEOUT, any_leads, appears, becomes_true, change, frees,
    in_one_term, leading, leads, leads_before, sees, soon, unless_expired,
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
        let mut leader = soon("there is a leader", wins.recv()).await.unwrap();
        let leads = leading(&candidates);
        assert!(leads.len() <= 1, "{leads:?} say that they lead");
        loop {
            let all_see = async {
                for candidate in &candidates {
                    sees(candidate, &leader).await;
                }
            };
            // On a busy machine another one may lead before all have seen this one.
            let next = tokio::select! {
                () = all_see => None,
                next = wins.recv() => next,
            };
            let Some(next) = next else { break };
            leader = next;
        }
        // `None`: it has stopped since, and the next win is on its way.
        if let Some(leader) = candidates.iter().position(|c| c.identity() == leader) {
            candidates.swap_remove(leader).stop().await;
        }
    }
    checker.verdict();
}

/// The check sends a write that the lock must refuse.
pub async fn a_check_of_its_release_leaves_the_leader_alone<S: Service>() {
    let service = S::start().await;
    let election = service.candidate("first").await.start().unwrap();
    let lock = service.lock().await;
    let holder = in_one_term(&election, async |leadership: &Leadership| {
        for name in [election.name(), "unknown"] {
            lock.check_release(name, TIMEOUT).await.unwrap();
        }
        let _ = soon("a renewal", leadership.renewed(leadership.deadline())).await;
        service.holder(election.name()).await
    });
    assert_eq!(holder.await.as_deref(), Some("first"));
}

/// A leader whose process dies is replaced when its lease has run out.
pub async fn a_crashed_leader_is_replaced<S: Service>() {
    let service = Arc::new(S::start().await);
    let first = Process::start(&service, "first").await;
    drop(leads(&first.election).await);
    let second = service.candidate("second").await.start().unwrap();
    let lost = leads_before(&first.election, &[&second]).await;
    let state = second.state();
    assert!(state == State::Candidate || !lost.is_valid(), "{state} beside the leader");
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
    drop(leads(&first.election).await);
    let second = service.candidate("second").await.start().unwrap();
    let lost = leads_before(&first.election, &[&second]).await;
    assert!(lost.remaining() <= SHORT);
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
    drop(leads(&first).await);
    let second = service.candidate("second").await.start().unwrap();
    drop(leads_before(&first, &[&second]).await);
    first.stop().await;
    assert!(!first.is_leader());
    assert_eq!(first.won().await.unwrap_err(), Stopped);
    let _leadership = leads(&second).await;
}

/// A leader whose term ends by `end` lets the other one go first. One that is too late for its turn
/// on a busy machine gets another one, a few times. `is_end`: whether this is why it ends.
async fn yields_to(
    first: &Election,
    second: &Election,
    end: impl AsyncFn(&Leadership),
    is_end: impl Fn(&Cause) -> bool,
) {
    for _ in 0..4 {
        let ended = async || {
            let leadership = leads_before(first, &[second]).await;
            end(&leadership).await;
            soon("the end", leadership.ended()).await.cause
        };
        let cause = unless_expired(ended).await;
        assert!(is_end(&cause), "{cause:?}");
        if any_leads(&[second, first]).await.0 == 0 {
            return;
        }
    }
    panic!("{} leads again before {}", first.identity(), second.identity());
}

/// A leader that resigns yields to others, and campaigns again.
pub async fn a_leader_that_resigned_is_replaced_and_campaigns_again<S: Service>() {
    let service = S::start().await;
    let first = service.candidate("first").await.start().unwrap();
    drop(leads(&first).await);
    let second = service.candidate("second").await.start().unwrap();
    let resigns = async |leadership: &Leadership| leadership.resign();
    yields_to(&first, &second, resigns, |cause| *cause == Cause::Resigned).await;
    drop(leads_before(&second, &[&first]).await);
    second.stop().await;
    let _leadership = leads(&first).await;
}

/// A leader whose entry an operator deletes steps down, another leads, and the evicted one
/// campaigns again.
pub async fn an_evicted_leader_is_replaced_and_campaigns_again<S: Service>() {
    let service = S::start().await;
    let checker = Arc::new(ExclusionChecker::default());
    let (won, _wins) = mpsc::unbounded_channel();
    let first = checker.watch(service.candidate("first").await, "first", won.clone());
    let first = first.start().unwrap();
    drop(leads(&first).await);
    let second = checker.watch(service.candidate("second").await, "second", won);
    let second = second.start().unwrap();
    let evicts = async |_: &Leadership| service.evict("my_app").await;
    let found = Cause::Superseded { by: Some("second".into()) };
    let is_evicted =
        |cause: &Cause| *cause == Cause::Evicted || !S::HEARS_DELETIONS && *cause == found;
    yields_to(&first, &second, evicts, is_evicted).await;
    second.stop().await;
    drop(leads(&first).await);
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
    drop(leads(&election).await);
    // Where there is no server, others learn of it a little later than its leader.
    let listed = appears("it is listed", async || {
        let mut names = admin.names(TIMEOUT).await.unwrap();
        names.pop().filter(|_| names.is_empty())
    })
    .await;
    // `None`: its lease has run out.
    let revision = async || match lock.read("my_app", TIMEOUT).await.unwrap() {
        Reading::Found(record) => Some(record.revision),
        Reading::Empty { .. } => None,
    };
    let stale = Revision(appears("the entry", &revision).await.0 - 1);
    let refused = admin.evict(&listed, stale, TIMEOUT).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Conflict, "{refused}");
    let evicted = async || {
        let leadership = leads(&election).await;
        soon("an eviction between two renewals", async {
            while let Some(revision) = revision().await {
                match admin.evict(&listed, revision, TIMEOUT).await {
                    Ok(()) => return,
                    Err(refused) => {
                        assert_eq!(refused.kind(), LockErrorKind::Conflict, "{refused}");
                    }
                }
            }
        })
        .await;
        soon("the end", leadership.ended()).await.cause
    };
    assert_eq!(unless_expired(evicted).await, Cause::Evicted);
    drop(leads(&election).await);
}

/// Dropping the last handle of an election stops it as `stop` would.
pub async fn dropping_the_last_handle_releases_the_leadership<S: Service>() {
    let service = S::start().await;
    let first = service.candidate("first").await.start().unwrap();
    drop(leads(&first).await);
    let second = service.candidate("second").await.start().unwrap();
    drop(leads_before(&first, &[&second]).await);
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
        let token = election.token();
        if leadership.is_valid() {
            assert_eq!(token, Some(leadership.token()));
        }
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
    let seen = change(&mut changes, "the observer sees it", |change| match change {
        Change::Leader(Some(leader)) => Some(leader.clone()),
        _ => None,
    })
    .await;
    assert_eq!((&*seen.identity, seen.is_me), ("first", false));
    let knows_the_term = async || {
        let (token, seen) = (election.token(), observer.leader());
        token.is_some() && seen.is_some_and(|leader| leader.token == token)
    };
    becomes_true("the observer sees the term", knows_the_term).await;
    let leadership = leads(&election).await;
    let freed = frees(&service, &election, leadership).await;
    change(&mut changes, "the observer sees the vacancy", |change| {
        matches!(change, Change::Leader(None)).then_some(())
    })
    .await;
    // On a busy machine there may have been another vacancy before.
    becomes_true("nobody leads", async || observer.leader().is_none()).await;
    let holder = service.holder("my_app").await;
    assert!(holder.is_none() || !freed && holder.as_deref() == Some("first"), "{holder:?}");
    observer.stop().await;
}

/// However late it gets to read them.
pub async fn a_subscription_from_the_start_misses_no_change<S: Service>() {
    let service = S::start().await;
    let (election, mut changes) = service.candidate("only").await.start_with_changes().unwrap();
    let leadership = leads(&election).await;
    // On a busy machine the lease of an earlier term may have run out before.
    change(&mut changes, "the win is told", |change| match change {
        Change::Won { token } => (*token == leadership.token()).then_some(()),
        _ => None,
    })
    .await;
}

/// An election can be left and entered again by the same process.
pub async fn a_candidate_campaigns_again_after_stop_and_start<S: Service>() {
    let service = S::start().await;
    let lock = service.lock().await;
    let enters_and_leaves = async || {
        let builder = new_election("my_app", Arc::clone(&lock)).identity("again").lease(S::LEASE);
        let election = builder.start().unwrap();
        let leadership = leads(&election).await;
        let holder = service.holder("my_app").await;
        if leadership.is_valid() {
            assert_eq!(holder.as_deref(), Some("again"));
        }
        frees(&service, &election, leadership).await
    };
    for _ in 0..3 {
        becomes_true("a term and its release", &enters_and_leaves).await;
    }
}
