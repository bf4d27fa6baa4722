//! Checks that at most one candidate leads at any instant.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use incumbent::{ElectionBuilder, Leadership};
use tokio::sync::mpsc;

/// Counts the candidates at work, and keeps the tokens in the order in which terms began.
#[derive(Default)]
pub struct ExclusionChecker {
    at_work: AtomicUsize,
    overlaps: AtomicUsize,
    tokens: Mutex<Vec<u64>>,
}

impl ExclusionChecker {
    /// Records the work of a candidate, and sends its identity when a term begins.
    pub fn watch(
        self: &Arc<Self>,
        builder: ElectionBuilder,
        identity: &str,
        won: mpsc::UnboundedSender<String>,
    ) -> ElectionBuilder {
        let (checker, identity) = (Arc::clone(self), identity.to_owned());
        builder.on_won(move |leadership| {
            let (checker, won, identity) = (Arc::clone(&checker), won.clone(), identity.clone());
            async move {
                let _at_work = checker.begin(&leadership);
                let _ = won.send(identity);
                leadership.ended().await;
            }
        })
    }

    fn begin(self: &Arc<Self>, leadership: &Leadership) -> AtWork {
        self.tokens.lock().unwrap().push(leadership.token().0);
        if self.at_work.fetch_add(1, Ordering::SeqCst) != 0 {
            self.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        AtWork(Arc::clone(self))
    }

    /// Fails the test if two worked at once, or a term had a smaller token than an earlier one.
    pub fn verdict(&self) {
        assert_eq!(self.overlaps.load(Ordering::SeqCst), 0, "two led at once");
        let tokens = self.tokens.lock().unwrap();
        assert!(tokens.is_sorted_by(|a, b| a < b), "tokens do not grow: {tokens:?}");
    }
}

struct AtWork(Arc<ExclusionChecker>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.at_work.fetch_sub(1, Ordering::SeqCst);
    }
}
