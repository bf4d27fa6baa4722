//! Callbacks that do what they should not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use incumbent::clock::{BootClock, Clock};
use incumbent::{Cause, Election, State};
use tokio::sync::{Notify, mpsc, oneshot};

use super::{Service, frees, leads, lost, soon, unless_expired, won};

/// Calls every method of an election.
fn interrogate(election: &Election) {
    let _ = (election.name(), election.identity(), election.is_leader(), election.state());
    let _ = (election.leader(), election.lock_failure(), election.token(), election.changes());
    let _ = format!("{election:?}");
}

/// No lock is held while a callback runs: each may call every method.
pub async fn callbacks_may_call_every_method_of_the_election<S: Service>() {
    let service = S::start().await;
    let cell: Arc<OnceLock<Election>> = Arc::default();
    let (won, lost, campaigned) = (Arc::clone(&cell), Arc::clone(&cell), Arc::clone(&cell));
    let (done, mut dones) = mpsc::unbounded_channel();
    let started = Arc::new(Notify::new());
    let may_begin = Arc::clone(&started);
    let election = service
        .candidate("only")
        .await
        .on_campaign(move |_| {
            let cell = Arc::clone(&campaigned);
            async move { cell.get().map_or((), interrogate) }
        })
        .on_won(move |leadership| {
            let (cell, may_begin) = (Arc::clone(&won), Arc::clone(&may_begin));
            async move {
                may_begin.notified().await;
                may_begin.notify_one(); // for the next term: on a busy machine a lease may run out
                let election = cell.get().expect("it has started");
                interrogate(election);
                assert!(election.is_leader() || !leadership.is_valid());
                let second = election.won().await.expect("a share of the same term");
                assert_eq!(second.token(), leadership.token());
                election.resign();
                leadership.ended().await;
            }
        })
        .on_lost(move |loss| {
            let (cell, done) = (Arc::clone(&lost), done.clone());
            async move {
                // `None`: the lease has run out before the test has got this far.
                let Some(election) = cell.get() else { return };
                interrogate(election);
                assert!(!election.is_leader());
                election.resign();
                let _ = done.send(loss.cause);
            }
        })
        .start()
        .unwrap();
    assert!(cell.set(election.clone()).is_ok());
    started.notify_one();
    let mut cause = soon("the loss", dones.recv()).await;
    while matches!(cause, Some(Cause::Expired { .. })) {
        cause = soon("the loss", dones.recv()).await;
    }
    assert_eq!(cause, Some(Cause::Resigned));
    election.stop().await;
}

/// A panic in a callback ends the term; it does not end the campaign.
pub async fn panics_in_callbacks_end_the_term_but_not_the_campaign<S: Service>() {
    let service = S::start().await;
    let told = Arc::new(AtomicBool::new(false));
    let succeeds = Arc::clone(&told);
    let (election, mut changes) = service
        .candidate("only")
        .await
        .on_campaign(move |state| {
            let fails = state == State::Leader && !succeeds.load(Ordering::SeqCst);
            async move { assert!(!fails, "on_campaign fails, as this test wants it to") }
        })
        .on_won(|leadership| async move {
            leadership.ended().await;
        })
        .on_lost(|_| async { panic!("on_lost fails, as this test wants it to") })
        .start_with_changes()
        .unwrap();
    while lost(&mut changes).await != Cause::WorkPanicked {} // on a busy machine a lease may end first
    told.store(true, Ordering::SeqCst);
    won(&mut changes).await;
    election.stop().await;
}

/// A callback that does not return in time is dropped (cilium/cilium#42920): neither `stop` nor the
/// next leader waits for it longer than the lease.
pub async fn a_callback_that_never_returns_is_dropped_and_stop_returns<S: Service>() {
    let service = S::start().await;
    let (held, dropped) = oneshot::channel::<()>();
    let held = Arc::new(std::sync::Mutex::new(Some(held)));
    let (election, mut changes) = service
        .candidate("first")
        .await
        .on_won(move |leadership| {
            let held = held.lock().unwrap().take();
            async move {
                let _ = (&leadership, &held);
                std::future::pending::<()>().await;
            }
        })
        .on_lost(|_| std::future::pending())
        .start_with_changes()
        .unwrap();
    won(&mut changes).await;
    let second = service.candidate("second").await.start().unwrap();
    soon("stop returns", election.stop()).await;
    assert!(soon("the work is dropped", dropped).await.is_err());
    let _leadership = leads(&second).await;
}

/// Whatever `on_campaign` still does when the campaign is over is dropped.
pub async fn a_call_of_on_campaign_ends_with_the_campaign<S: Service>() {
    let service = S::start().await;
    let (held, dropped) = oneshot::channel::<()>();
    let held = Arc::new(std::sync::Mutex::new(Some(held)));
    let builder = service.candidate("only").await;
    let builder = builder.on_campaign(move |_| {
        let held = held.lock().unwrap().take();
        async move {
            let _held = held;
            std::future::pending::<()>().await;
        }
    });
    let election = builder.start().unwrap();
    drop(leads(&election).await);
    soon("stop returns", election.stop()).await;
    assert!(soon("the call is dropped", dropped).await.is_err());
}

/// Work that blocks its thread cannot be stopped; but it leads no more, and a successor does.
pub async fn work_that_blocks_its_thread_does_not_keep_the_leadership<S: Service>() {
    let service = S::start().await;
    let cause = unless_expired(async || end_of_blocked_work(&service).await).await;
    assert_eq!(cause, Cause::Resigned);
}

/// Why the term ends whose work blocks its thread, once a successor leads.
async fn end_of_blocked_work<S: Service>(service: &S) -> Cause {
    let (finish, finished) = std::sync::mpsc::channel::<()>();
    let finished = Arc::new(std::sync::Mutex::new(finished));
    let (first, mut changes) = service
        .candidate("first")
        .await
        .on_won(move |leadership| {
            let finished = Arc::clone(&finished);
            async move {
                let _ = finished.lock().unwrap().recv(); // blocks a thread of the runtime
                assert!(!leadership.is_valid(), "the work no longer leads when it wakes up");
            }
        })
        .start_with_changes()
        .unwrap();
    won(&mut changes).await;
    first.resign();
    let second = service.candidate("second").await.start().unwrap();
    let leadership = leads(&second).await;
    assert!(!first.is_leader());
    drop(finish);
    let cause = lost(&mut changes).await;
    let is_leader = second.is_leader();
    match leadership.is_valid() {
        true => assert!(is_leader),
        // As the other's may have, on a busy machine.
        false => assert!(matches!(leadership.ended().await.cause, Cause::Expired { .. })),
    }
    drop(leadership);
    first.stop().await;
    second.stop().await;
    cause
}

/// The order at the end of a term: the work stops, the loss is reported, then the entry is
/// released.
pub async fn the_loss_is_reported_between_the_work_and_the_release<S: Service>() {
    let service = Arc::new(S::start().await);
    for _ in 0..20 {
        // None: it took so long to see who holds the lock that the lease ran out, or to release it.
        let Some((working, holder)) = what_on_lost_sees(&service).await else { continue };
        assert!(!working, "the work has stopped before the loss is told");
        assert_eq!(holder.as_deref(), Some("only"), "the entry is released after the loss is told");
        return;
    }
    panic!("on_lost never knew in time who holds the lock");
}

/// Whether the work is on when `on_lost` runs, and who holds the entry.
async fn what_on_lost_sees<S: Service>(service: &Arc<S>) -> Option<(bool, Option<String>)> {
    let working = Arc::new(AtomicBool::new(false));
    let (begins, ended) = (Arc::clone(&working), Arc::clone(&working));
    let asked = Arc::clone(service);
    let held_until = Arc::new(OnceLock::new());
    let holds = Arc::clone(&held_until);
    let (started, mut starts) = mpsc::unbounded_channel();
    let (told, tellings) = oneshot::channel();
    let told = Arc::new(std::sync::Mutex::new(Some(told)));
    let election = service
        .candidate("only")
        .await
        .grace(S::LEASE / 2)
        .on_won(move |leadership| {
            let (working, started) = (Arc::clone(&begins), started.clone());
            let holds = Arc::clone(&holds);
            async move {
                working.store(true, Ordering::SeqCst);
                let _ = started.send(());
                leadership.ended().await;
                let _ = holds.set(leadership.deadline()); // of the first term, which is looked at
                // Time enough for a loss reported too early to arrive.
                tokio::time::sleep(S::LEASE / 10).await;
                working.store(false, Ordering::SeqCst);
            }
        })
        .on_lost(move |_| {
            let (working, service) = (Arc::clone(&ended), Arc::clone(&asked));
            let held_until = Arc::clone(&held_until);
            let told = told.lock().unwrap().take();
            async move {
                let seen = (working.load(Ordering::SeqCst), service.holder("my_app").await);
                let in_time = held_until.get().is_some_and(|until| BootClock.now() < *until);
                if let Some(told) = told.filter(|_| in_time) {
                    let _ = told.send(seen);
                }
            }
        })
        .start()
        .unwrap();
    soon("the work begins", starts.recv()).await;
    let leadership = leads(&election).await;
    if !frees(&**service, &election, leadership).await {
        return None;
    }
    soon("the loss", tellings).await.ok()
}
