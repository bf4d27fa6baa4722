//! The leaders for life of a Kubernetes namespace.

use std::sync::Arc;
use std::time::Duration;

use incumbent::kubernetes::{LifeLock, LifeLocks, LifeWatch, PodState};
use incumbent::lock::{LockError, LockErrorKind};
use time::OffsetDateTime;

use super::status::{Holder, Holding, OfPod, Office};
use super::watcher::Heard;
use super::watcher::{WatchEar, Watched};
use crate::error::{CliError, Code};
use crate::lock_args::LifeObjects;
use crate::time_format;

/// The locks of a namespace.
pub struct LifeOffices(pub LifeObjects);

/// What is watched of them.
pub struct WatchedLocks {
    locks: Arc<LifeLocks>,
    only: Option<String>,
    timeout: Duration,
}

/// What is heard of them.
pub type LifeEar = WatchEar<WatchedLocks>;

impl LifeOffices {
    pub async fn read(&self, name: &str) -> Result<Option<Office>, CliError> {
        Ok(self.0.locks.lock(name, self.0.timeout).await?.map(understand))
    }

    pub async fn all(&self) -> Result<Vec<Office>, CliError> {
        let locks = self.0.locks.locks(self.0.timeout).await?;
        Ok(locks.into_iter().map(understand).collect())
    }

    /// Watches one lock, or all; without the right to do so nothing is heard.
    pub async fn listen(&self, only: Option<&str>) -> Result<LifeEar, CliError> {
        let only = only.map(str::to_owned);
        let locks = Arc::clone(&self.0.locks);
        WatchEar::begin(WatchedLocks { locks, only, timeout: self.0.timeout }).await
    }

    /// Deletes the lock if it is still of this version, and answers that; none if it has been written meanwhile.
    pub async fn evict(&self, office: &Office) -> Result<Option<u64>, CliError> {
        let (locks, timeout) = (&self.0.locks, self.0.timeout);
        let lock = locks.lock(&office.election, timeout).await?;
        let Some(lock) = lock.filter(|lock| lock.resource_version == office.revision) else {
            return Ok(None);
        };
        match locks.evict(&lock, timeout).await {
            Ok(()) => Ok(Some(office.revision)),
            Err(error) if error.kind() == LockErrorKind::Conflict => Ok(None),
            Err(error) if error.kind() == LockErrorKind::Unknown => {
                let hint = "nobody knows whether it was done; look with `election info`";
                Err(CliError::new(Code::Unreachable, format!("{error}: {hint}")))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Watched for WatchedLocks {
    type Watch = LifeWatch;

    async fn begin(&self) -> Result<LifeWatch, LockError> {
        self.locks.watch(self.only.as_deref(), self.timeout).await
    }

    async fn next(watch: &mut LifeWatch) -> Option<Result<Heard, LockError>> {
        Some(watch.next().await?.map(|()| Heard::Look))
    }
}

fn understand(lock: LifeLock) -> Office {
    let since = lock.since.and_then(time_format::from_system);
    let all = |word: fn(&incumbent::kubernetes::LifeOwner) -> String| {
        lock.owners.iter().map(word).collect::<Vec<_>>().join(", ")
    };
    let holding = match lock.owners.as_slice() {
        [] => Holding::Vacant("no owner".to_owned()),
        owners => Holding::Held(Holder {
            leader: all(|owner| owner.pod.clone()),
            token: Some(lock.resource_version),
            since,
            lease: None,
            advertisement: None,
            writes: None,
            pod: Some(OfPod {
                uid: all(|owner| owner.uid.clone()),
                phase: all(|owner| owner.state.to_string()),
                gone: owners.iter().all(|owner| owner.state == PodState::Gone),
                lock: lock.uid.clone(),
            }),
        }),
    };
    let written = Some(since.unwrap_or_else(OffsetDateTime::now_utc));
    Office { election: lock.name, revision: lock.resource_version, written, holding }
}
