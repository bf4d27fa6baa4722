//! The leaders for life of a Kubernetes namespace.

use std::sync::Arc;
use std::time::Duration;

use incumbent::kubernetes::{LifeLock, LifeLocks, LifeWatch, PodState};
use incumbent::lock::{LockError, LockErrorKind};
use time::OffsetDateTime;

use super::status::{ElectionStatus, Holder, LeaderStatus, PodInfo};
use super::watcher::Update;
use super::watcher::{RestartingWatch, WatchSource};
use crate::error::{CliError, Code};
use crate::lock_args::LifeObjects;
use crate::time_format;

/// The locks of a namespace.
pub struct LifeElections(pub LifeObjects);

/// The watched locks.
pub struct LifeSource {
    locks: Arc<LifeLocks>,
    only: Option<String>,
    timeout: Duration,
}

/// The watcher of locks.
pub type LifeWatcher = RestartingWatch<LifeSource>;

impl LifeElections {
    pub async fn read(&self, name: &str) -> Result<Option<ElectionStatus>, CliError> {
        Ok(self.0.locks.lock(name, self.0.timeout).await?.map(status_of))
    }

    pub async fn list(&self) -> Result<Vec<ElectionStatus>, CliError> {
        let locks = self.0.locks.locks(self.0.timeout).await?;
        Ok(locks.into_iter().map(status_of).collect())
    }

    /// Watches one lock, or all; without the right to watch it reports nothing.
    pub async fn watch(&self, only: Option<&str>) -> Result<LifeWatcher, CliError> {
        let only = only.map(str::to_owned);
        let locks = Arc::clone(&self.0.locks);
        RestartingWatch::begin(LifeSource { locks, only, timeout: self.0.timeout }).await
    }

    /// Deletes the lock if it still has this version. Returns the version, or `None` if the lock
    /// was written meanwhile.
    pub async fn evict(&self, status: &ElectionStatus) -> Result<Option<u64>, CliError> {
        let (locks, timeout) = (&self.0.locks, self.0.timeout);
        let lock = locks.lock(&status.election, timeout).await?;
        let Some(lock) = lock.filter(|lock| lock.resource_version == status.revision) else {
            return Ok(None);
        };
        match locks.evict(&lock, timeout).await {
            Ok(()) => Ok(Some(status.revision)),
            Err(error) if error.kind() == LockErrorKind::Conflict => Ok(None),
            Err(error) if error.kind() == LockErrorKind::OutcomeUnknown => {
                let hint = "the outcome is unknown; check with `election info`";
                Err(CliError::new(Code::Unreachable, format!("{error}: {hint}")))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl WatchSource for LifeSource {
    type Watch = LifeWatch;

    async fn begin(&self) -> Result<LifeWatch, LockError> {
        self.locks.watch(self.only.as_deref(), self.timeout).await
    }

    async fn next(watch: &mut LifeWatch) -> Option<Result<Update, LockError>> {
        Some(watch.next().await?.map(|()| Update::Recheck))
    }
}

fn status_of(lock: LifeLock) -> ElectionStatus {
    let since = lock.since.and_then(time_format::from_system);
    let all = |word: fn(&incumbent::kubernetes::LifeOwner) -> String| {
        lock.owners.iter().map(word).collect::<Vec<_>>().join(", ")
    };
    let state = match lock.owners.as_slice() {
        [] => LeaderStatus::Vacant("no owner".to_owned()),
        owners => LeaderStatus::Held(Holder {
            since,
            pod: Some(Box::new(PodInfo {
                uid: all(|owner| owner.uid.clone()),
                phase: all(|owner| owner.state.to_string()),
                gone: owners.iter().all(|owner| owner.state == PodState::Gone),
                lock: lock.uid.clone(),
            })),
            ..Holder::new(all(|owner| owner.pod.clone()), Some(lock.resource_version))
        }),
    };
    let written = Some(since.unwrap_or_else(OffsetDateTime::now_utc));
    ElectionStatus { election: lock.name, revision: lock.resource_version, written, state }
}
