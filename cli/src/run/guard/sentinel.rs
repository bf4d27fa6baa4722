//! The sentinel of a candidate, in its guard: it releases what the candidate held when it died.
//!
//! It has a thread and a connection of its own, so that no server delays the guard.

use std::sync::Arc;

use incumbent::sentinel::SentinelMessage;
use tokio::runtime::{Builder, Runtime};

use crate::lock_args::LockArgs;
use crate::sentinel::{RELEASE_TIMEOUT, Registry, SentinelLocks};

/// The registry knows one process: the candidate.
const CANDIDATE: u64 = 0;

/// The lock of a sentinel.
pub struct SentinelArgs {
    pub lock: LockArgs,
    /// As with `--object`.
    pub object: Option<String>,
}

/// Parses the arguments of the program.
pub type ParseArgs = fn(Vec<String>) -> Option<SentinelArgs>;

/// The registered terms of the candidate, and the thread that checks and releases them.
pub struct GuardSentinel {
    registry: Arc<Registry>,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl GuardSentinel {
    /// `args`: those of the candidate, as JSON.
    pub fn start(args: &str, parse: ParseArgs) -> Option<Self> {
        let SentinelArgs { lock, object } = parse(serde_json::from_str(args).ok()?)?;
        let registry = Registry::new(SentinelLocks::new(lock, object));
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().ok()?;
        Some(Self { registry: Arc::new(registry), runtime: Some(runtime) })
    }

    /// Replaces the terms, given as JSON.
    pub fn set_terms(&mut self, terms: &str) {
        let Ok(messages) = serde_json::from_str::<Vec<SentinelMessage>>(terms) else { return };
        self.registry.take(CANDIDATE);
        for message in &messages {
            let Ok(Some((election, term))) = self.registry.on_message(CANDIDATE, message) else {
                continue;
            };
            let registry = Arc::clone(&self.registry);
            let check = async move {
                // It also connects.
                if let Err(reason) = registry.check(CANDIDATE, &election, term).await {
                    eprintln!(
                        "incumbent: {election} cannot be released if this process is killed: \
                         {reason}; its lease decides then"
                    );
                }
            };
            self.runtime.as_ref().map(|runtime| runtime.spawn(check));
        }
    }

    /// Releases all terms. The candidate and everything that the guard started must be dead.
    pub async fn release(self) {
        let (registry, terms) = (Arc::clone(&self.registry), self.registry.take(CANDIDATE));
        let release = async move { registry.release(terms, RELEASE_TIMEOUT).await };
        if let Some(runtime) = &self.runtime {
            let _ = runtime.spawn(release).await;
        }
    }
}

/// A runtime that is dropped in the task of another one must not wait for its threads.
impl Drop for GuardSentinel {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
