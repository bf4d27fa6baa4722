//! The sentinel of a candidate, in its guard: it releases what the candidate held when it died.
//!
//! It has a thread and a connection of its own, so that no server delays the guard.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use incumbent::protocol::RegisteredTerm;
use incumbent::sentinel::SentinelMessage;
use tokio::sync::{mpsc, oneshot};

use crate::run::Run;
use crate::sentinel::{RegisteredTerms, Registry, SentinelLocks};

/// How long to try to release.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Parses the arguments of the program.
pub type ParseRun = fn(Vec<String>) -> Option<Run>;

/// A handle on the thread, which ends with it.
pub struct GuardSentinel {
    orders: mpsc::UnboundedSender<Order>,
    terms: RegisteredTerms,
}

type Term = (Arc<str>, RegisteredTerm);

enum Order {
    Check(Term),
    Release(Vec<Term>, oneshot::Sender<()>),
}

impl GuardSentinel {
    /// `args`: those of the candidate, as JSON.
    pub fn start(args: &str, parse: ParseRun) -> Option<Self> {
        let run = parse(serde_json::from_str(args).ok()?)?;
        let registry = Registry::new(SentinelLocks::new(run.lock, run.candidate.lease.object));
        let (orders, receiver) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let serve = move || runtime.block_on(serve(Arc::new(registry), receiver));
        thread::Builder::new().name("sentinel".to_owned()).spawn(serve).ok()?;
        Some(Self { orders, terms: RegisteredTerms::default() })
    }

    /// Replaces the terms, given as JSON.
    pub fn set_terms(&mut self, terms: &str) {
        let Ok(messages) = serde_json::from_str::<Vec<SentinelMessage>>(terms) else { return };
        self.terms.take();
        for message in &messages {
            if let Ok(Some(term)) = self.terms.on_message(message) {
                let _ = self.orders.send(Order::Check(term)); // it also connects
            }
        }
    }

    /// Releases all terms. The candidate and everything that the guard started must be dead.
    pub async fn release(mut self) {
        let (done, is_done) = oneshot::channel();
        let _ = self.orders.send(Order::Release(self.terms.take(), done));
        let _ = is_done.await;
    }
}

async fn serve(registry: Arc<Registry>, mut orders: mpsc::UnboundedReceiver<Order>) {
    while let Some(order) = orders.recv().await {
        match order {
            Order::Check((election, term)) => {
                let registry = Arc::clone(&registry);
                tokio::spawn(async move {
                    if let Err(reason) = registry.check(&election, term).await {
                        eprintln!(
                            "incumbent: {election} cannot be released if this process is killed: \
                             {reason}; its lease decides then"
                        );
                    }
                });
            }
            Order::Release(terms, done) => {
                registry.release(terms, RELEASE_TIMEOUT).await;
                let _ = done.send(());
            }
        }
    }
}
