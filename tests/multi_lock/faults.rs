//! What befalls either lock of a leader.

use std::sync::Arc;

use incumbent::lock::LockErrorKind;
use incumbent::{Cause, all_of};
use tokio::sync::mpsc;

use crate::conformance::{Diary, ExclusionChecker, Failing, SwitchableLock, leads, sees, soon};
use crate::env::{NAME, candidate, memory};

/// What befalls a lock.
#[derive(Debug, Clone, Copy)]
enum Blow {
    Evicted,
    Overwritten,
    OutOfReach,
    Denied,
    Missing,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_fault_of_either_lock_ends_the_term_without_overlap() {
    for blow in [Blow::Evicted, Blow::Overwritten, Blow::OutOfReach, Blow::Denied, Blow::Missing] {
        for struck in [0, 1] {
            befalls(blow, struck).await;
        }
    }
}

async fn befalls(blow: Blow, struck: usize) {
    let locks = [memory(), memory()];
    let diary = Diary::default();
    let switchable =
        [SwitchableLock::new(&locks[0], "a", &diary), SwitchableLock::new(&locks[1], "b", &diary)];
    let checker = Arc::new(ExclusionChecker::default());
    let (won, mut wins) = mpsc::unbounded_channel();
    let watch = |builder, who: &str| checker.watch(builder, who, won.clone());
    let first = watch(candidate(all_of(switchable.clone()), "first"), "first").start().unwrap();
    assert_eq!(soon("a win", wins.recv()).await.unwrap(), "first");
    let leadership = leads(&first).await;
    let second = watch(candidate(all_of(locks.clone()), "second"), "second").start().unwrap();
    sees(&second, "first").await;
    match blow {
        Blow::Evicted => drop(locks[struck].evict(NAME)),
        Blow::Overwritten => drop(locks[struck].overwrite(NAME, "mallory")),
        Blow::OutOfReach => switchable[struck].fail(Failing::All(LockErrorKind::Unavailable)),
        Blow::Denied => switchable[struck].fail(Failing::Writes(LockErrorKind::Denied)),
        Blow::Missing => switchable[struck].fail(Failing::All(LockErrorKind::Misconfigured)),
    }
    let loss = soon(&format!("{blow:?} of {struck}"), leadership.ended()).await;
    let as_expected = match blow {
        Blow::Evicted => loss.cause == Cause::Evicted,
        Blow::Overwritten => loss.cause == Cause::Superseded { by: Some("mallory".into()) },
        Blow::OutOfReach | Blow::Missing => {
            matches!(loss.cause, Cause::Expired { last_error: Some(_) })
        }
        Blow::Denied => matches!(loss.cause, Cause::Denied { .. }),
    };
    assert!(as_expected, "{blow:?} of {struck}: {loss:?}");
    drop(leadership);
    let next = soon(&format!("{blow:?} of {struck}: the next"), wins.recv()).await.unwrap();
    if matches!(blow, Blow::OutOfReach | Blow::Denied | Blow::Missing) {
        assert_eq!(next, "second", "{blow:?} of {struck}");
    }
    second.stop().await;
    first.stop().await;
    checker.verdict();
}
