//! The elections of any lock, through the trait `Lock`.

use std::sync::Arc;
use std::time::Duration;

use backon::{ConstantBuilder, Retryable};
use futures_util::future::BoxFuture;
use incumbent::CandidateInfo;
use incumbent::lock::{
    CandidateRequest, HintSink, Lock, LockError, LockErrorKind, Reading, Record, Subscription,
};
use tokio::sync::mpsc;

use super::status::{ElectionStatus, LeaderStatus};
use super::watcher::Update;
use crate::error::{CliError, Code};

/// The pause before a request to an unavailable lock is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The elections of a lock.
pub struct LockElections {
    pub lock: Arc<dyn Lock>,
    /// The name of the lock.
    pub title: String,
    pub timeout: Duration,
}

/// The watcher of a lock: it reports that something may have changed.
pub struct LockWatcher {
    hints: mpsc::Receiver<()>,
    _subscriptions: Vec<Subscription>,
}

impl LockElections {
    pub fn check_name(&self, name: &str) -> Result<(), CliError> {
        self.lock.check_name(name).map_err(|rule| CliError::new(Code::Usage, rule))
    }

    pub async fn read(&self, name: &str) -> Result<Option<ElectionStatus>, CliError> {
        Ok(match self.retrying(|| self.lock.read(name, self.timeout)).await? {
            Reading::Found(record) => Some(self.status_of(name, record)),
            Reading::Empty { .. } => None,
        })
    }

    /// Repeats the request while the lock is unavailable, as during the connection.
    async fn retrying<'a, T>(
        &'a self,
        request: impl Fn() -> BoxFuture<'a, Result<T, LockError>>,
    ) -> Result<T, LockError> {
        let times = self.timeout.div_duration_f32(RETRY_PAUSE) as usize;
        request
            .retry(ConstantBuilder::new().with_delay(RETRY_PAUSE).with_max_times(times))
            .when(|error| error.kind() == LockErrorKind::Unavailable)
            .await
    }

    pub async fn list(&self) -> Result<Vec<ElectionStatus>, CliError> {
        let mut names = self.retrying(|| self.lock.names(self.timeout)).await?;
        names.sort_unstable();
        let mut elections = Vec::new();
        for name in names {
            elections.extend(self.read(&name).await?);
        }
        Ok(elections)
    }

    /// Hints of the named elections; a lock has none of all elections.
    pub fn watch(&self, names: &[String]) -> LockWatcher {
        let (sender, hints) = mpsc::channel(1);
        let subscribe = |name: &String| {
            let sender = sender.clone();
            let sink = HintSink::new(move |_| {
                let _ = sender.try_send(()); // one waiting hint is enough
            });
            self.lock.subscribe(name, sink)
        };
        LockWatcher { hints, _subscriptions: names.iter().map(subscribe).collect() }
    }

    pub async fn call_roll(
        &self,
        name: &str,
        request: CandidateRequest,
        within: Duration,
    ) -> Result<Vec<CandidateInfo>, CliError> {
        Ok(self.retrying(|| self.lock.call_roll(name, request.clone(), within)).await?)
    }

    fn status_of(&self, name: &str, record: Record) -> ElectionStatus {
        let expires = self.lock.capabilities().expires_entries;
        let state = LeaderStatus::of(record.content, record.revision.0, expires);
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
            None => std::future::pending().await, // no hints
        }
    }
}
