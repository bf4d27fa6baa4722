//! The elections of any lock, by what every lock answers.

use std::sync::Arc;
use std::time::Duration;

use backon::{ConstantBuilder, Retryable};
use futures_util::future::BoxFuture;
use incumbent::lock::{
    Content, HintSink, Lock, LockError, LockErrorKind, Reading, Record, Subscription,
};
use incumbent::lock::{Revision, Tombstone};
use tokio::sync::mpsc;

use super::status::{ElectionStatus, Holder, LeaderStatus};
use super::watcher::Update;
use crate::error::{CliError, Code};
use crate::time_format;

/// When to ask again where nobody answers.
const AGAIN: Duration = Duration::from_millis(100);

/// The elections of a lock.
pub struct LockElections {
    pub lock: Arc<dyn Lock>,
    /// What it is called.
    pub title: String,
    pub timeout: Duration,
}

/// What is heard of them: that something may have changed.
pub struct LockWatcher {
    hints: mpsc::Receiver<()>,
    _subscription: Subscription,
}

impl LockElections {
    pub fn check_name(&self, name: &str) -> Result<(), CliError> {
        self.lock.check_name(name).map_err(|rule| CliError::new(Code::Usage, rule))
    }

    pub async fn read(&self, name: &str) -> Result<Option<ElectionStatus>, CliError> {
        Ok(match self.patiently(|| self.lock.read(name, self.timeout)).await? {
            Reading::Found(record) => Some(self.status_of(name, record)),
            Reading::Empty { .. } => None,
        })
    }

    /// A connection that is being made is waited for.
    async fn patiently<'a, T>(
        &'a self,
        ask: impl Fn() -> BoxFuture<'a, Result<T, LockError>>,
    ) -> Result<T, LockError> {
        let times = self.timeout.div_duration_f32(AGAIN) as usize;
        ask.retry(ConstantBuilder::new().with_delay(AGAIN).with_max_times(times))
            .when(|error| error.kind() == LockErrorKind::Unavailable)
            .await
    }

    pub async fn list(&self) -> Result<Vec<ElectionStatus>, CliError> {
        let mut names = self.patiently(|| self.lock.names(self.timeout)).await?;
        names.sort_unstable();
        let mut elections = Vec::new();
        for name in names {
            elections.extend(self.read(&name).await?);
        }
        Ok(elections)
    }

    pub fn watch(&self, only: Option<&str>) -> LockWatcher {
        let (tell, hints) = mpsc::channel(1);
        let sink = HintSink::new(move |_| {
            let _ = tell.try_send(()); // one that waits says as much as two
        });
        let subscribed = only.map(|name| self.lock.subscribe(name, sink));
        LockWatcher { hints, _subscription: subscribed.unwrap_or_else(Subscription::none) }
    }

    /// None if somebody has written meanwhile.
    pub async fn evict(&self, status: &ElectionStatus) -> Result<Option<u64>, CliError> {
        let revision = status.revision;
        match self.lock.evict(&status.election, Revision(revision), self.timeout).await {
            Ok(()) => Ok(Some(revision)),
            Err(error) if error.kind() == LockErrorKind::Conflict => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn status_of(&self, name: &str, record: Record) -> ElectionStatus {
        let expires = self.lock.capabilities().expires;
        let state = match record.content {
            Content::Held(entry) => LeaderStatus::Held(Holder {
                leader: entry.identity.to_string(),
                // The write that begins a term has no token yet: its revision is it.
                token: (entry.mark.as_ref())
                    .map(|mark| mark.token.map_or(record.revision.0, |token| token.0)),
                since: entry
                    .mark
                    .as_ref()
                    .and_then(|mark| time_format::from_unix_ms(mark.since_unix_ms)),
                lease: Some(entry.life).filter(|_| !expires),
                advertisement: entry.advertisement,
                writes: entry.mark.as_ref().map(|mark| mark.write.number),
                pod: None,
            }),
            Content::Vacant(tombstone) => LeaderStatus::Vacant(
                match tombstone {
                    Tombstone::Released { .. } => "released",
                    Tombstone::Expired => "expired",
                    Tombstone::Deleted => "evicted",
                }
                .to_owned(),
            ),
        };
        ElectionStatus {
            election: name.to_owned(),
            revision: record.revision.0,
            written: None,
            state,
        }
    }
}

impl LockWatcher {
    /// Cancel safe.
    pub async fn next(&mut self) -> Update {
        match self.hints.recv().await {
            Some(()) => Update::Recheck,
            None => std::future::pending().await, // nothing is heard here
        }
    }
}
