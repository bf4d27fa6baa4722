//! The causes of losses, as callbacks, guards and changes report them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use incumbent::{Cause, Change, Election};
use tokio::sync::mpsc;

use super::{Service, change, leads, lost_unexpired, soon, unless_expired, won};

/// The callbacks and the stream of changes report won, lost, won, lost, each loss with its own
/// cause.
pub async fn wins_and_losses_alternate_and_each_loss_has_its_cause<S: Service>() {
    let service = S::start().await;
    soon("no lease runs out", async { while !each_loss_has_its_cause(&service).await {} }).await;
}

/// False: a lease has run out before anything else ended its term, as it may on a busy machine.
async fn each_loss_has_its_cause<S: Service>(service: &S) -> bool {
    let (told, mut tellings) = mpsc::unbounded_channel();
    let lost = told.clone();
    let (election, mut changes) = service
        .candidate("only")
        .await
        .on_won(move |leadership| {
            let _ = told.send(format!("won {}", leadership.token()));
            async move {
                leadership.ended().await;
            }
        })
        .on_lost(move |loss| {
            let _ = lost.send(format!("lost {} {}", loss.token, loss.cause.as_str()));
            async {}
        })
        .start_with_changes()
        .unwrap();
    for cause in ["resigned", "evicted", "stopped"] {
        let won = soon("a win", tellings.recv()).await.unwrap();
        let token = won.strip_prefix("won ").expect("a win comes first").to_owned();
        match cause {
            "resigned" => election.resign(),
            "evicted" => service.evict("my_app").await,
            _ => election.stop().await,
        }
        let lost = soon("a loss", tellings.recv()).await.unwrap();
        if lost == format!("lost {token} expired") {
            election.stop().await;
            return false;
        }
        assert_eq!(lost, format!("lost {token} {cause}"));
        let of_term = |change: &Change| match change {
            Change::Lost { token, cause } => Some((token.to_string(), cause.as_str())),
            Change::Won { .. } => None,
            _ => None,
        };
        assert_eq!(change(&mut changes, "the change", of_term).await, (token, cause));
    }
    assert!(tellings.recv().await.is_none(), "nothing is told after the end");
    while let Some(change) = changes.next().await {
        let of_term = matches!(change, Change::Won { .. } | Change::Lost { .. });
        assert!(!of_term, "{change:?} after the end");
    }
    true
}

/// A leader that finds a foreign value in its entry steps down and reports the holder.
pub async fn a_leader_whose_entry_is_overwritten_is_superseded<S: Service>() {
    let service = S::start().await;
    let election = service.candidate("only").await.start().unwrap();
    let overwritten = async || {
        let leadership = leads(&election).await;
        service.overwrite("my_app", "mallory").await;
        let loss = soon("the end", leadership.ended()).await;
        assert!(!leadership.is_valid());
        assert_ne!(election.token(), Some(leadership.token()));
        loss.cause
    };
    let cause = unless_expired(overwritten).await;
    assert_eq!(cause, Cause::Superseded { by: Some("mallory".into()) });
}

/// Work that has ended releases the leadership (kubernetes-client/python#2670: the task had died,
/// renewals continued).
pub async fn work_that_ends_ends_the_term<S: Service>() {
    let service = S::start().await;
    let candidate = service.candidate("only").await.on_won(|_leadership| async {});
    let (_election, mut changes) = candidate.start_with_changes().unwrap();
    assert_eq!(lost_unexpired(&mut changes).await, Cause::WorkEnded);
}

/// Work that panics releases the leadership, and the campaign continues.
pub async fn work_that_panics_ends_the_term<S: Service>() {
    let service = S::start().await;
    let told = Arc::new(AtomicBool::new(false));
    let succeeds = Arc::clone(&told);
    let (_election, mut changes) = service
        .candidate("only")
        .await
        .on_won(move |leadership| {
            let fails = !succeeds.load(Ordering::SeqCst);
            async move {
                assert!(!fails, "the work fails, as this test wants it to");
                leadership.ended().await;
            }
        })
        .start_with_changes()
        .unwrap();
    assert_eq!(lost_unexpired(&mut changes).await, Cause::WorkPanicked);
    told.store(true, Ordering::SeqCst);
    won(&mut changes).await;
}

/// Work under a guard is dropped when the term ends, and its caller gets the cause.
pub async fn a_guard_sees_the_end_of_its_term_and_its_work_is_dropped<S: Service>() {
    let service = S::start().await;
    let election = service.candidate("only").await.start().unwrap();
    let cause = unless_expired(async || end_of_guarded_work(&service, &election).await).await;
    assert_eq!(cause, Cause::Evicted);
}

/// Why the term ends whose entry is deleted while it does work under a guard.
async fn end_of_guarded_work<S: Service>(service: &S, election: &Election) -> Cause {
    let leadership = leads(election).await;
    let before = leadership.deadline();
    match leadership.run(async { 7 }).await {
        Ok(done) => assert_eq!(done, 7),
        Err(loss) => return loss.cause,
    }
    let (is_leader, deadline) = (election.is_leader(), election.deadline());
    let since = election.leader().and_then(|leader| leader.since_unix_ms);
    if leadership.is_valid() {
        assert!(is_leader, "the guard is still held");
        assert!(since.is_some(), "it knows since when it leads itself");
        assert!(deadline.is_some_and(|deadline| deadline >= before));
    }
    match soon("a renewal is told", leadership.renewed(before)).await {
        Ok(renewed) => assert!(before < renewed && renewed <= leadership.deadline()),
        Err(loss) => return loss.cause,
    }
    let (work, mut working) = mpsc::unbounded_channel::<()>();
    let run = leadership.run(async move {
        let _work = work;
        std::future::pending::<()>().await;
    });
    let (ended, ()) = tokio::join!(run, async { service.evict("my_app").await });
    let loss = ended.unwrap_err();
    assert_eq!(&*loss.election, "my_app");
    assert!(loss.stop_by <= leadership.deadline());
    assert!(working.recv().await.is_none(), "the work is gone");
    // What has expired by the clock may not have been noticed by its candidate yet.
    if loss.cause == Cause::Evicted {
        assert_ne!(election.deadline(), Some(leadership.deadline()), "of a term that is over");
    }
    loss.cause
}
