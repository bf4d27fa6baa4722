//! A watch on elections that is restarted when it ends.

use std::future::pending;
use std::time::Duration;

use incumbent::lock::{ElectionUpdate, ElectionWatch, LockAdmin, LockErrorKind};

use crate::error::CliError;

/// The pause before a failed watch is restarted.
const PAUSE: Duration = Duration::from_secs(1);

/// A watcher that restarts its watch.
pub struct Watcher<'a> {
    admin: &'a dyn LockAdmin,
    names: &'a [String],
    timeout: Duration,
    watch: Option<ElectionWatch>,
    reports_every_change: bool,
    /// Whether the server denies the permission to watch.
    refused: bool,
    failed: bool,
}

impl<'a> Watcher<'a> {
    /// Starts the first watch; without the permission to watch it reports nothing.
    pub async fn begin(
        admin: &'a dyn LockAdmin,
        names: &'a [String],
        timeout: Duration,
    ) -> Result<Self, CliError> {
        let (watch, refused) = match admin.watch(names, timeout).await {
            Ok(watch) => (Some(watch), false),
            Err(error) if error.kind() == LockErrorKind::Denied => (None, true),
            Err(error) => return Err(error.into()),
        };
        let reports_every_change = watch.as_ref().is_some_and(ElectionWatch::reports_every_change);
        Ok(Self { admin, names, timeout, watch, reports_every_change, refused, failed: false })
    }

    /// Whether every change is reported.
    pub fn reports_every_change(&self) -> bool {
        self.reports_every_change
    }

    /// The next update, or why the watch failed for now. Cancel safe.
    pub async fn next(&mut self) -> Result<ElectionUpdate, CliError> {
        if self.refused {
            return pending().await;
        }
        let Some(watch) = &mut self.watch else {
            if self.failed {
                tokio::time::sleep(PAUSE).await;
            }
            self.failed = true;
            self.watch = Some(self.admin.watch(self.names, self.timeout).await?);
            return Ok(ElectionUpdate::Recheck); // changes in between were missed
        };
        match watch.next().await {
            Some(Ok(update)) => Ok(update),
            Some(Err(error)) => {
                self.watch = None;
                self.failed = true;
                Err(error.into())
            }
            None => {
                self.watch = None;
                self.failed = false;
                Ok(ElectionUpdate::Recheck)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use async_trait::async_trait;
    use futures_util::stream;
    use incumbent::lock::{ElectionRecord, LockError, LockFacts, Revision};

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
    async fn denied_watch_reports_nothing() {
        let script = Script::of([Err(LockErrorKind::Denied), Err(LockErrorKind::Unavailable)]);
        let mut watcher = script.watcher().await.unwrap();
        assert!(!watcher.reports_every_change());
        let update = tokio::time::timeout(Duration::from_secs(3600), watcher.next()).await;
        assert!(update.is_err());
        assert!(script.watcher().await.is_err());
    }
}
