//! Hints that are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use incumbent::lock::{Content, Coverage, Hint, HintSink, Lock, Subscription};
use incumbent::nats::NatsLock;
use incumbent_test_support::eventually;

/// How many hints of stored entries have come.
pub struct Hints {
    pub subscription: Subscription,
    pub stored: Arc<AtomicUsize>,
    /// How often it was said that hints come: of all entries, then of a few.
    pub covered: Arc<AtomicUsize>,
}

pub async fn hints_of(lock: &NatsLock, name: &str) -> Hints {
    let stored = Arc::new(AtomicUsize::new(0));
    let covered = Arc::new(AtomicUsize::new(0));
    let (counted, coverage) = (Arc::clone(&stored), Arc::clone(&covered));
    let sink = HintSink::new(move |hint| match hint {
        Hint::Stored { record, .. } if matches!(record.content, Content::Held(_)) => {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        Hint::Coverage(Coverage::Sampled | Coverage::Full) => {
            coverage.fetch_add(1, Ordering::SeqCst);
        }
        _ => {}
    });
    let subscription = lock.subscribe(name, sink);
    eventually("hints come", async || (covered.load(Ordering::SeqCst) > 0).then_some(())).await;
    Hints { subscription, stored, covered }
}
