//! The sentinel of a candidate, in its guard: it releases what the candidate held when it died.
//!
//! It has a thread and a connection of its own, so that no server delays the guard.

use std::sync::{Arc, mpsc};
use std::thread;

use incumbent::sentinel::SentinelMessage;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::lock::LockArgs;
use crate::output;
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
    runtime: Handle,
    /// Ends the thread when it is dropped.
    _thread: oneshot::Sender<()>,
}

impl GuardSentinel {
    /// `args`: those of the candidate, as JSON.
    pub fn start(args: &str, parse: ParseArgs) -> Option<Self> {
        let SentinelArgs { lock, object } = parse(serde_json::from_str(args).ok()?)?;
        let registry = Registry::new(SentinelLocks::new(lock, object).without_programs());
        let (sender, started) = mpsc::channel();
        let (thread, end) = oneshot::channel::<()>();
        let run = move || {
            // A runtime may not be dropped in a task of another one.
            let runtime = Builder::new_current_thread().enable_all().build().ok()?;
            sender.send(runtime.handle().clone()).ok()?;
            runtime.block_on(end).ok()
        };
        thread::Builder::new().name("sentinel".to_owned()).spawn(run).ok()?;
        let runtime = started.recv().ok()?;
        Some(Self { registry: Arc::new(registry), runtime, _thread: thread })
    }

    /// Takes a term that began, or is over.
    pub fn on_change(&self, change: &SentinelMessage) {
        let Ok(Some((election, term))) = self.registry.on_message(CANDIDATE, change) else {
            return;
        };
        let registry = Arc::clone(&self.registry);
        let check = async move {
            // It also connects.
            if let Err(reason) = registry.check(CANDIDATE, &election, term).await {
                output::note(format!(
                    "incumbent: {election} cannot be released if this process is killed: {reason}; \
                     its lease decides then"
                ));
            }
        };
        self.runtime.spawn(check);
    }

    /// Releases all terms. The candidate and everything that the guard started must be dead.
    pub async fn release(self) {
        let (registry, terms) = (Arc::clone(&self.registry), self.registry.take(CANDIDATE));
        let release = async move { registry.release(terms, RELEASE_TIMEOUT).await };
        let _ = self.runtime.spawn(release).await;
    }
}
