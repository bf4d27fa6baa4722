//! Runs the check of a candidate.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tracing::{info, warn};

use crate::protocol::Health;
use crate::time::clock::{Clock, sleep_until};
use crate::util::text::escape_line;

/// The most bytes of a failure that are kept.
const MAX_FAILURE_LEN: usize = 256;

/// A check of whether a candidate can do the work of a leader.
///
/// One that fails stands behind all others; a leader that fails hands over to one that is ready. If
/// there is none, the leader continues to lead: a leader that is sick is better than none.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::time::Duration;
/// # let lock = incumbent::memory::MemoryLock::new();
/// # async fn ping() -> Result<(), std::io::Error> { Ok(()) }
/// use incumbent::HealthCheck;
///
/// let check = HealthCheck::new(|| async { ping().await }).every(Duration::from_secs(2)).failures(5);
/// let election = incumbent::new_election("my_app", lock).check(check).start()?;
/// # election.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HealthCheck {
    run: Arc<dyn Fn() -> BoxFuture<'static, Result<(), Arc<str>>> + Send + Sync>,
    pub(crate) interval: Duration,
    failures: NonZeroU32,
}

impl HealthCheck {
    /// Calls `check` every 5 s; three failures in a row count, and as many passes. One call that
    /// takes longer than the interval, or panics, is a failure. The call is dropped then.
    pub fn new<F, Fut, E>(check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        let run = move || {
            let check = check();
            async move {
                check.await.map_err(|error| escape_line(&error.to_string(), MAX_FAILURE_LEN).into())
            }
            .boxed()
        };
        Self {
            run: Arc::new(run),
            interval: Duration::from_secs(5),
            failures: NonZeroU32::MIN.saturating_add(2),
        }
    }

    /// How often to check, from the end of one check to the start of the next: 10 ms to an hour.
    pub fn every(self, interval: Duration) -> Self {
        let interval = interval.clamp(Duration::from_millis(10), Duration::from_secs(3600));
        Self { interval, ..self }
    }

    /// How many failures in a row make the candidate sick, and how many passes make it healthy
    /// again. At least one.
    pub fn failures(self, failures: u32) -> Self {
        Self { failures: NonZeroU32::new(failures).unwrap_or(NonZeroU32::MIN), ..self }
    }

    /// The health of what was not checked yet.
    pub(crate) fn unchecked(&self) -> Health {
        Health::new(self.failures)
    }

    /// Checks until dropped.
    pub(crate) async fn run(
        self,
        clock: Arc<dyn Clock>,
        report: impl Fn(Result<(), Arc<str>>) + Send,
    ) {
        loop {
            // The closure runs inside too: it may panic before there is a future.
            let check = AssertUnwindSafe(async { (self.run)().await }).catch_unwind();
            let limit = sleep_until(Arc::clone(&clock), clock.now() + self.interval);
            let result = tokio::select! {
                result = check => result.unwrap_or_else(|_| Err("the check panicked".into())),
                () = limit => Err(format!("the check took longer than {:?}", self.interval).into()),
            };
            report(result);
            sleep_until(Arc::clone(&clock), clock.now() + self.interval).await;
        }
    }
}

/// Takes the result of a check, and logs what it changes.
pub(crate) fn record(health: &mut Health, result: Result<(), Arc<str>>) {
    if health.record(result) {
        match health.failure() {
            Some(failure) => warn!("the check fails: {failure}"),
            None => info!("the check passes"),
        }
    }
}

partial_debug!(HealthCheck, self, interval: self.interval, failures: self.failures);
