//! Hearing of objects of Kubernetes by watches, each of which ends after a while.

use std::future::{Future, pending};
use std::time::Duration;

use incumbent::lock::{LockError, LockErrorKind};

use super::status::ElectionStatus;
use crate::error::CliError;

/// How long to wait before a watch that failed is begun anew.
const PAUSE: Duration = Duration::from_secs(1);

/// What was heard.
pub enum Update {
    /// Something was written, or is there.
    Status(ElectionStatus),
    /// Something may have changed: a reason to look.
    Recheck,
    /// Nothing is heard for now.
    Failed(CliError),
}

/// What can be watched.
pub trait WatchSource {
    type Watch: Send;

    fn begin(&self) -> impl Future<Output = Result<Self::Watch, LockError>> + Send;

    /// `None`: the watch is over. Cancel safe.
    fn next(
        watch: &mut Self::Watch,
    ) -> impl Future<Output = Option<Result<Update, LockError>>> + Send;
}

/// What is heard by one watch after another.
pub struct RestartingWatch<W: WatchSource> {
    watched: W,
    watch: Option<W::Watch>,
    /// Whether the server refuses to tell.
    refused: bool,
    failed: bool,
}

impl<W: WatchSource> RestartingWatch<W> {
    /// Begins; without the right to do so nothing is heard.
    pub async fn begin(watched: W) -> Result<Self, CliError> {
        let (watch, refused) = match watched.begin().await {
            Ok(watch) => (Some(watch), false),
            Err(error) if error.kind() == LockErrorKind::Denied => (None, true),
            Err(error) => return Err(error.into()),
        };
        Ok(Self { watched, watch, refused, failed: false })
    }

    /// Whether every change is heard.
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
                    Update::Recheck // what happened meanwhile is not told
                }
                Err(error) => {
                    self.failed = true;
                    Update::Failed(error.into())
                }
            };
        };
        match W::next(watch).await {
            Some(Ok(heard)) => heard,
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

    /// Watches one after the other; what each tells before it is over.
    struct Script(Mutex<VecDeque<Result<Tells, LockErrorKind>>>);

    type Tells = VecDeque<Result<Update, LockError>>;

    fn error(kind: LockErrorKind) -> LockError {
        LockError::new(kind, "refused")
    }

    impl Script {
        fn of(watches: impl IntoIterator<Item = Result<Tells, LockErrorKind>>) -> Self {
            Self(Mutex::new(watches.into_iter().collect()))
        }
    }

    impl WatchSource for Script {
        type Watch = Tells;

        async fn begin(&self) -> Result<Tells, LockError> {
            self.0.lock().unwrap().pop_front().expect("another watch").map_err(error)
        }

        async fn next(watch: &mut Tells) -> Option<Result<Update, LockError>> {
            watch.pop_front()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_over_or_fails_is_followed_by_another_with_a_look() {
        let broken = Tells::from([Err(error(LockErrorKind::Unavailable))]);
        let script = Script::of([
            Ok(Tells::new()),
            Ok(broken),
            Err(LockErrorKind::Denied),
            Ok(Tells::from([Ok(Update::Recheck)])),
        ]);
        let mut watcher = RestartingWatch::begin(script).await.unwrap();
        let begun = tokio::time::Instant::now();
        assert!(matches!(watcher.next().await, Update::Recheck), "it is over");
        assert!(matches!(watcher.next().await, Update::Recheck), "another one has begun");
        assert!(matches!(watcher.next().await, Update::Failed(_)), "which broke");
        assert_eq!(begun.elapsed(), Duration::ZERO, "so far it goes on at once");
        assert!(matches!(watcher.next().await, Update::Failed(_)), "and none is to be had");
        assert!(matches!(watcher.next().await, Update::Recheck), "but later one is");
        assert_eq!(begun.elapsed(), PAUSE * 2);
        assert!(watcher.reports_every_change());
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_right_nothing_is_heard() {
        let mut watcher =
            RestartingWatch::begin(Script::of([Err(LockErrorKind::Denied)])).await.unwrap();
        assert!(!watcher.reports_every_change());
        let heard = tokio::time::timeout(Duration::from_secs(3600), watcher.next()).await;
        assert!(heard.is_err());
        let other = RestartingWatch::begin(Script::of([Err(LockErrorKind::Unavailable)])).await;
        assert!(other.is_err());
    }
}
