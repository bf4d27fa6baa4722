//! The elections of a Kubernetes namespace.

use std::sync::Arc;
use std::time::Duration;

use incumbent::kubernetes::{self, ElectionEvent, ElectionWatch};
use incumbent::lock::LockError;
use time::OffsetDateTime;

use super::status::{ElectionStatus, Holder, LeaderStatus};
use super::watcher::Update;
use super::watcher::{RestartingWatch, WatchSource};
use crate::error::CliError;
use crate::lock_args::{ElectionObjects, Records};
use crate::time_format;

/// The elections of a namespace.
pub struct KubernetesElections(pub ElectionObjects);

/// The watched objects.
pub struct KubernetesSource {
    records: Arc<dyn Records>,
    only: Option<String>,
    timeout: Duration,
}

/// The watcher of objects.
pub type KubernetesWatcher = RestartingWatch<KubernetesSource>;

impl KubernetesElections {
    pub async fn read(&self, name: &str) -> Result<Option<ElectionStatus>, CliError> {
        let status = self.0.records.status(name, self.0.timeout).await?;
        Ok(status.map(status_of))
    }

    pub async fn list(&self) -> Result<Vec<ElectionStatus>, CliError> {
        let elections = self.0.records.list(self.0.timeout).await?;
        Ok(elections.into_iter().map(status_of).collect())
    }

    /// Watches one election, or all; without the right to watch it reports nothing.
    pub async fn watch(&self, only: Option<&str>) -> Result<KubernetesWatcher, CliError> {
        let only = only.map(str::to_owned);
        let records = Arc::clone(&self.0.records);
        RestartingWatch::begin(KubernetesSource { records, only, timeout: self.0.timeout }).await
    }
}

impl WatchSource for KubernetesSource {
    type Watch = ElectionWatch;

    async fn begin(&self) -> Result<ElectionWatch, LockError> {
        self.records.watch(self.only.as_deref(), self.timeout).await
    }

    async fn next(watch: &mut ElectionWatch) -> Option<Result<Update, LockError>> {
        Some(watch.next().await?.map(|change| match change {
            ElectionEvent::Written(object) => Update::Status(status_of(object)),
            ElectionEvent::Deleted(object) => Update::Status(deleted(object)),
            _ => Update::Recheck,
        }))
    }
}

fn status_of(object: kubernetes::ElectionStatus) -> ElectionStatus {
    let now = OffsetDateTime::now_utc();
    let renewed = object.renewed.and_then(time_format::from_system).unwrap_or(now);
    let (state, written) = match object.holding {
        kubernetes::HolderStatus::Held(holder) => {
            let holder = Holder {
                leader: holder.identity.to_string(),
                token: holder.token.map(|token| token.0),
                since: object.acquired.and_then(time_format::from_system),
                lease: Some(holder.lease),
                ttl: Some(holder.lease),
                advertisement: holder.advertisement,
                moves: holder.moves,
                writes: holder.writes,
                pod: None,
            };
            (LeaderStatus::Held(holder), renewed)
        }
        kubernetes::HolderStatus::Released(cause) => {
            (LeaderStatus::Vacant(cause.unwrap_or_else(|| "released".to_owned())), renewed)
        }
        kubernetes::HolderStatus::New => (LeaderStatus::Vacant("new".to_owned()), now),
        // An eviction leaves the times of the former holder.
        _ => (LeaderStatus::Vacant("evicted".to_owned()), now),
    };
    let written = Some(written);
    ElectionStatus { election: object.object, revision: object.resource_version, written, state }
}

fn deleted(object: kubernetes::ElectionStatus) -> ElectionStatus {
    let state = LeaderStatus::Vacant("evicted".to_owned());
    ElectionStatus { state, written: Some(OffsetDateTime::now_utc()), ..status_of(object) }
}
