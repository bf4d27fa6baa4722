//! Hints that come faster than a campaign takes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use incumbent::lock::{Hint, HintSink, Lock};
use incumbent::memory::MemoryLock;
use incumbent::new_election;

use crate::conformance::{LEASE, leads, sees, soon};
use crate::{STEADY, WithHints, without_hints};

/// Its subscriptions begin with many hints at once.
fn flooding(lock: MemoryLock) -> WithHints {
    let subscribe = |lock: &MemoryLock, name: &str, sink: HintSink| {
        for _ in 0..1_000 {
            sink.send(Hint::Recheck);
        }
        lock.subscribe(name, sink) // tells that everything is heard
    };
    WithHints { subscribe, ..without_hints(lock) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn coverage_survives_an_overflow_of_hints() {
    let lock = MemoryLock::with_ttl(STEADY);
    let leader = new_election("my_app", lock.clone()).identity("leader").renewal(LEASE / 3);
    let leader = leader.start().unwrap();
    let _leadership = leads(&leader).await;
    let polls = Arc::new(AtomicUsize::new(0));
    let polled = Arc::clone(&polls);
    let standby = new_election("my_app", flooding(lock))
        .identity("standby")
        .backoff(move |_, _| {
            polled.fetch_add(1, Ordering::SeqCst);
            LEASE / 10
        })
        .start()
        .unwrap();
    sees(&standby, "leader").await;
    let mut seen = None;
    soon("five renewals are seen", async {
        for _ in 0..5 {
            let now = || standby.leader().map(|leader| leader.last_seen);
            while now() == seen {
                tokio::time::sleep(LEASE / 50).await;
            }
            seen = now();
        }
    })
    .await;
    assert_eq!(polls.load(Ordering::SeqCst), 0, "it polls though every change is told");
}
