//! A fleet moves from one lock to another, a candidate at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use incumbent::lock::{Lock, LockMember};
use incumbent::memory::MemoryLock;
use incumbent::{Election, all_of, best_effort, required};
use tokio::sync::watch;

use crate::conformance::{leads, soon};
use crate::env::{candidate, memory};

/// Who works, and whether two ever did.
#[derive(Default)]
struct Floor {
    overlaps: AtomicUsize,
    at_work: AtomicUsize,
    terms: watch::Sender<usize>,
}

impl Floor {
    fn start(self: &Arc<Self>, lock: impl Lock, identity: &str) -> Election {
        let floor = Arc::clone(self);
        candidate(lock, identity)
            .on_won(move |leadership| {
                let floor = Arc::clone(&floor);
                async move {
                    if floor.at_work.fetch_add(1, Ordering::SeqCst) > 0 {
                        floor.overlaps.fetch_add(1, Ordering::SeqCst);
                    }
                    floor.terms.send_modify(|terms| *terms += 1);
                    leadership.ended().await;
                    floor.at_work.fetch_sub(1, Ordering::SeqCst);
                }
            })
            .start()
            .expect("a start")
    }

    /// Waits for a term that begins from now on, or continues.
    async fn is_led(&self, fleet: &[Election]) {
        let mut terms = self.terms.subscribe();
        soon("there is a leader", async {
            while !fleet.iter().any(Election::is_leader) {
                let _ = terms.changed().await;
            }
        })
        .await;
    }
}

/// One step of the way: the locks of a candidate that has been upgraded.
type Step = fn(&MemoryLock, &MemoryLock) -> Vec<LockMember>;

const STEPS: [Step; 5] = [
    |a, _| vec![required(a.clone())],
    |a, b| vec![required(a.clone()), best_effort(b.clone())],
    |a, b| vec![required(a.clone()), required(b.clone())],
    |a, b| vec![best_effort(a.clone()), required(b.clone())],
    |_, b| vec![required(b.clone())],
];

/// From A alone to B alone, candidate by candidate: each step shares a required lock with the one
/// before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_fleet_that_changes_its_lock_never_has_two_leaders() {
    for turn in 0..4 {
        let (a, b) = (memory(), memory());
        let floor = Arc::new(Floor::default());
        let start = |step: Step, who: usize| floor.start(all_of(step(&a, &b)), &format!("c{who}"));
        let mut fleet: Vec<Election> = (0..3).map(|who| start(STEPS[0], who)).collect();
        floor.is_led(&fleet).await;
        for (number, step) in STEPS.iter().enumerate().skip(1) {
            // The leader first, in the midst or last: each in turn.
            for upgraded in 0..fleet.len() {
                let who = (upgraded + turn) % fleet.len();
                fleet[who].stop().await;
                fleet[who] = start(*step, number * 10 + who);
                floor.is_led(&fleet).await;
            }
        }
        assert!(fleet.iter().any(Election::is_leader));
        for election in &fleet {
            election.stop().await;
        }
        assert_eq!(floor.overlaps.load(Ordering::SeqCst), 0, "two led at once");
    }
}

/// What the way must not be: from A to B without a step at which both are required.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn two_may_lead_without_a_common_required_lock() {
    let (a, b) = (memory(), memory());
    let (old, new) = (candidate(a, "old").start().unwrap(), candidate(b, "new").start().unwrap());
    let _leads = leads(&old).await;
    let _leads_as_well = leads(&new).await;
    assert!(old.is_leader() && new.is_leader(), "which is why \"any of\" is not offered");
}
