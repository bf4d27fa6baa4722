//! What befalls either lock of a leader.

use std::sync::Arc;

use futures_util::future::join_all;
use incumbent::lock::LockErrorKind;
use incumbent::{Cause, all_of};
use tokio::sync::mpsc;

use crate::conformance::{
    Diary, ExclusionChecker, Failing, SwitchableLock, any_leads, leads, leads_before, soon,
};
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
    let blows = [Blow::Evicted, Blow::Overwritten, Blow::OutOfReach, Blow::Denied, Blow::Missing];
    let each = blows.into_iter().flat_map(|blow| [0, 1].map(|struck| strikes(blow, struck)));
    join_all(each).await;
}

async fn strikes(blow: Blow, struck: usize) {
    let what = format!("a term that lasts until {blow:?} of {struck}");
    soon(&what, async { while !befalls(blow, struck).await {} }).await;
}

/// False: the lease has run out before the blow shows, as it may on a busy machine.
async fn befalls(blow: Blow, struck: usize) -> bool {
    let locks = [memory(), memory()];
    let diary = Diary::default();
    let switchable =
        [SwitchableLock::new(&locks[0], "a", &diary), SwitchableLock::new(&locks[1], "b", &diary)];
    let checker = Arc::new(ExclusionChecker::default());
    let (won, _wins) = mpsc::unbounded_channel();
    let watch = |builder, who: &str| checker.watch(builder, who, won.clone());
    let first = watch(candidate(all_of(switchable.clone()), "first"), "first").start().unwrap();
    drop(leads(&first).await);
    let second = watch(candidate(all_of(locks.clone()), "second"), "second").start().unwrap();
    let leadership = leads_before(&first, &[&second]).await;
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
    if !as_expected {
        assert!(matches!(loss.cause, Cause::Expired { .. }), "{blow:?} of {struck}: {loss:?}");
        return false;
    }
    drop(leadership);
    match blow {
        Blow::OutOfReach | Blow::Denied | Blow::Missing => drop(leads(&second).await),
        Blow::Evicted | Blow::Overwritten => drop(any_leads(&[&first, &second]).await),
    }
    second.stop().await;
    first.stop().await;
    checker.verdict();
    true
}
