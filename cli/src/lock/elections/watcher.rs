//! A watch on elections that is restarted when it ends.

use std::future::pending;
use std::time::Duration;

use futures_util::future::BoxFuture;
use incumbent::lock::{ElectionUpdate, ElectionWatch, LockAdmin, LockError, LockErrorKind};
use tokio::time::sleep;

use crate::error::CliError;

/// The pause before a failed watch is restarted.
const PAUSE: Duration = Duration::from_secs(1);

/// A watcher that restarts its watch.
pub struct Watcher<'a> {
    admin: &'a dyn LockAdmin,
    names: &'a [String],
    timeout: Duration,
    watch: WatchState<'a>,
    reports_every_change: bool,
}

enum WatchState<'a> {
    Open(ElectionWatch),
    /// Kept between calls, with its pause: who drops each of them early gets a watch, too.
    Opening(BoxFuture<'a, Result<ElectionWatch, LockError>>),
    /// The server denies the permission to watch.
    Refused,
}

impl<'a> Watcher<'a> {
    /// Starts the first watch; without the permission to watch it reports nothing.
    pub async fn begin(
        admin: &'a dyn LockAdmin,
        names: &'a [String],
        timeout: Duration,
    ) -> Result<Self, CliError> {
        let watch = match admin.watch(names, timeout).await {
            Ok(watch) => WatchState::Open(watch),
            Err(error) if error.kind() == LockErrorKind::Denied => WatchState::Refused,
            Err(error) => return Err(error.into()),
        };
        let reports_every_change =
            matches!(&watch, WatchState::Open(watch) if watch.reports_every_change());
        Ok(Self { admin, names, timeout, watch, reports_every_change })
    }

    /// Whether every change is reported.
    pub fn reports_every_change(&self) -> bool {
        self.reports_every_change
    }

    /// The next update, or why the watch failed for now. Cancel safe.
    pub async fn next(&mut self) -> Result<ElectionUpdate, CliError> {
        match &mut self.watch {
            WatchState::Refused => pending().await,
            WatchState::Opening(opening) => match opening.await {
                Ok(watch) => {
                    self.watch = WatchState::Open(watch);
                    Ok(ElectionUpdate::Recheck) // changes in between were missed
                }
                Err(error) => {
                    self.open_after(Some(PAUSE));
                    Err(error.into())
                }
            },
            WatchState::Open(watch) => match watch.next().await {
                Some(Ok(update)) => Ok(update),
                Some(Err(error)) => {
                    self.open_after(Some(PAUSE));
                    Err(error.into())
                }
                None => {
                    self.open_after(None);
                    Ok(ElectionUpdate::Recheck)
                }
            },
        }
    }

    fn open_after(&mut self, pause: Option<Duration>) {
        let Self { admin, names, timeout, .. } = *self;
        self.watch = WatchState::Opening(Box::pin(async move {
            if let Some(pause) = pause {
                sleep(pause).await;
            }
            admin.watch(names, timeout).await
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use async_trait::async_trait;
    use futures_util::stream;
    use incumbent::lock::{ElectionRecord, LockFacts, Revision};
    use tokio::time::timeout;

    use super::*;

    /// Scripted watches, each with its updates.
    #[derive(Debug)]
    struct Script(Mutex<VecDeque<Result<Updates, LockErrorKind>>>);

    type Updates = Vec<Result<ElectionUpdate, LockError>>;

    fn error(kind: LockErrorKind) -> LockError {
        LockError::new(kind, "refused")
    }

    impl Script {
        fn of(watches: impl IntoIterator<Item = Result<Updates, LockErrorKind>>) -> Self {
            Self(Mutex::new(watches.into_iter().collect()))
        }

        async fn watcher(&self) -> Result<Watcher<'_>, CliError> {
            Watcher::begin(self, &[], Duration::ZERO).await
        }
    }

    #[async_trait]
    impl LockAdmin for Script {
        async fn facts(&self, _: Duration) -> Result<LockFacts, LockError> {
            unreachable!()
        }

        async fn record(&self, _: &str, _: Duration) -> Result<Option<ElectionRecord>, LockError> {
            unreachable!()
        }

        async fn names(&self, _: Duration) -> Result<Vec<String>, LockError> {
            unreachable!()
        }

        async fn watch(&self, _: &[String], _: Duration) -> Result<ElectionWatch, LockError> {
            let updates = self.0.lock().unwrap().pop_front().expect("another watch");
            Ok(ElectionWatch::new(stream::iter(updates.map_err(error)?), true))
        }

        async fn evict(&self, _: &str, _: Revision, _: Duration) -> Result<(), LockError> {
            unreachable!()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ended_or_failed_watch_is_restarted_with_a_recheck() {
        let broken = vec![Err(error(LockErrorKind::Unavailable))];
        let script = Script::of([
            Ok(Vec::new()),
            Ok(broken),
            Err(LockErrorKind::Denied),
            Ok(vec![Ok(ElectionUpdate::Recheck)]),
        ]);
        let mut watcher = script.watcher().await.unwrap();
        let begun = tokio::time::Instant::now();
        assert!(
            matches!(watcher.next().await, Ok(ElectionUpdate::Recheck)),
            "the first watch ended"
        );
        assert!(
            matches!(watcher.next().await, Ok(ElectionUpdate::Recheck)),
            "the second one started"
        );
        assert!(watcher.next().await.is_err(), "the second one failed");
        assert_eq!(begun.elapsed(), Duration::ZERO, "so far without a pause");
        assert!(watcher.next().await.is_err(), "the third one is denied");
        assert!(
            matches!(watcher.next().await, Ok(ElectionUpdate::Recheck)),
            "the fourth one started"
        );
        assert_eq!(begun.elapsed(), PAUSE * 2);
        assert!(watcher.reports_every_change());
    }

    #[tokio::test(start_paused = true)]
    async fn watch_is_restarted_for_who_never_waits_long() {
        let broken = vec![Err(error(LockErrorKind::Unavailable))];
        let script = Script::of([Ok(broken), Err(LockErrorKind::Unavailable), Ok(Vec::new())]);
        let mut watcher = script.watcher().await.unwrap();
        let (mut failures, mut is_open) = (0, false);
        for _ in 0..8 {
            match timeout(PAUSE / 2, watcher.next()).await {
                Ok(Ok(_)) => is_open = true,
                Ok(Err(_)) => failures += 1,
                Err(_) => {}
            }
            if is_open {
                break;
            }
        }
        assert_eq!((failures, is_open), (2, true));
    }

    #[tokio::test(start_paused = true)]
    async fn denied_watch_reports_nothing() {
        let script = Script::of([Err(LockErrorKind::Denied), Err(LockErrorKind::Unavailable)]);
        let mut watcher = script.watcher().await.unwrap();
        assert!(!watcher.reports_every_change());
        let update = timeout(Duration::from_secs(3600), watcher.next()).await;
        assert!(update.is_err());
        assert!(script.watcher().await.is_err());
    }
}
