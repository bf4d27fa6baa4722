//! Watches of Kubernetes objects, which the server ends after a while.

use std::future::{Future, pending};
use std::time::Duration;

use incumbent::lock::{LockError, LockErrorKind};

use super::status::ElectionStatus;
use crate::error::CliError;

/// The pause before a failed watch is restarted.
const PAUSE: Duration = Duration::from_secs(1);

/// What a message states of a write, which anybody may have sent who may publish beside the lock.
#[derive(Debug)]
pub struct Hint {
    pub status: ElectionStatus,
    /// The write before it to the same election.
    pub previous: Option<u64>,
}

/// An update of a watcher.
pub enum Update {
    /// An entry was written, or exists.
    Status(ElectionStatus),
    /// A write that is to be confirmed.
    Hint(Hint),
    /// Something may have changed: read again.
    Recheck,
    /// The watch failed for now.
    Failed(CliError),
}

/// Objects that can be watched.
pub trait WatchSource {
    type Watch: Send;

    fn begin(&self) -> impl Future<Output = Result<Self::Watch, LockError>> + Send;

    /// `None`: the watch ended. Cancel safe.
    fn next(
        watch: &mut Self::Watch,
    ) -> impl Future<Output = Option<Result<Update, LockError>>> + Send;
}

/// A watcher that restarts its watch.
pub struct RestartingWatch<W: WatchSource> {
    watched: W,
    watch: Option<W::Watch>,
    /// Whether the server denies the right to watch.
    refused: bool,
    failed: bool,
}

impl<W: WatchSource> RestartingWatch<W> {
    /// Starts the first watch; without the right to watch it reports nothing.
    pub async fn begin(watched: W) -> Result<Self, CliError> {
        let (watch, refused) = match watched.begin().await {
            Ok(watch) => (Some(watch), false),
            Err(error) if error.kind() == LockErrorKind::Denied => (None, true),
            Err(error) => return Err(error.into()),
        };
        Ok(Self { watched, watch, refused, failed: false })
    }

    /// Whether every change is reported.
    pub fn reports_every_change(&self) -> bool {
        !self.refused
    }

    /// Cancel safe.
    pub async fn next(&mut self) -> Update {
        if self.refused {
            return pending().await;
        }
        let Some(watch) = &mut self.watch else {
            if self.failed {
                tokio::time::sleep(PAUSE).await;
            }
            return match self.watched.begin().await {
                Ok(watch) => {
                    self.watch = Some(watch);
                    Update::Recheck // changes in between were missed
                }
                Err(error) => {
                    self.failed = true;
                    Update::Failed(error.into())
                }
            };
        };
        match W::next(watch).await {
            Some(Ok(update)) => update,
            Some(Err(error)) => {
                self.watch = None;
                self.failed = true;
                Update::Failed(error.into())
            }
            None => {
                self.watch = None;
                self.failed = false;
                Update::Recheck
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use super::*;

    /// Scripted watches, each with its updates.
    struct Script(Mutex<VecDeque<Result<Updates, LockErrorKind>>>);

    type Updates = VecDeque<Result<Update, LockError>>;

    fn error(kind: LockErrorKind) -> LockError {
        LockError::new(kind, "refused")
    }

    impl Script {
        fn of(watches: impl IntoIterator<Item = Result<Updates, LockErrorKind>>) -> Self {
            Self(Mutex::new(watches.into_iter().collect()))
        }
    }

    impl WatchSource for Script {
        type Watch = Updates;

        async fn begin(&self) -> Result<Updates, LockError> {
            self.0.lock().unwrap().pop_front().expect("another watch").map_err(error)
        }

        async fn next(watch: &mut Updates) -> Option<Result<Update, LockError>> {
            watch.pop_front()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ended_or_failed_watch_is_restarted_with_a_recheck() {
        let broken = Updates::from([Err(error(LockErrorKind::Unavailable))]);
        let script = Script::of([
            Ok(Updates::new()),
            Ok(broken),
            Err(LockErrorKind::Denied),
            Ok(Updates::from([Ok(Update::Recheck)])),
        ]);
        let mut watcher = RestartingWatch::begin(script).await.unwrap();
        let begun = tokio::time::Instant::now();
        assert!(matches!(watcher.next().await, Update::Recheck), "the first watch ended");
        assert!(matches!(watcher.next().await, Update::Recheck), "the second one started");
        assert!(matches!(watcher.next().await, Update::Failed(_)), "the second one failed");
        assert_eq!(begun.elapsed(), Duration::ZERO, "so far without a pause");
        assert!(matches!(watcher.next().await, Update::Failed(_)), "the third one is denied");
        assert!(matches!(watcher.next().await, Update::Recheck), "the fourth one started");
        assert_eq!(begun.elapsed(), PAUSE * 2);
        assert!(watcher.reports_every_change());
    }

    #[tokio::test(start_paused = true)]
    async fn denied_watch_reports_nothing() {
        let mut watcher =
            RestartingWatch::begin(Script::of([Err(LockErrorKind::Denied)])).await.unwrap();
        assert!(!watcher.reports_every_change());
        let update = tokio::time::timeout(Duration::from_secs(3600), watcher.next()).await;
        assert!(update.is_err());
        let other = RestartingWatch::begin(Script::of([Err(LockErrorKind::Unavailable)])).await;
        assert!(other.is_err());
    }
}
