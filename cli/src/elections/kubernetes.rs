//! The elections of a Kubernetes namespace.

use std::sync::Arc;
use std::time::Duration;

use incumbent::kubernetes::{self, OfficeChange, OfficeWatch};
use incumbent::lock::{LockError, LockErrorKind};
use time::OffsetDateTime;

use super::status::{Holder, Holding, Office};
use super::watcher::Heard;
use super::watcher::{WatchEar, Watched};
use crate::error::CliError;
use crate::lock_args::{ElectionObjects, Records};
use crate::time_format;

/// The elections of a namespace.
pub struct ObjectOffices(pub ElectionObjects);

/// What is watched of them.
pub struct WatchedObjects {
    records: Arc<dyn Records>,
    only: Option<String>,
    timeout: Duration,
}

/// What is heard of them.
pub type ObjectEar = WatchEar<WatchedObjects>;

impl ObjectOffices {
    pub async fn read(&self, name: &str) -> Result<Option<Office>, CliError> {
        let office = self.0.records.one(name, self.0.timeout).await?;
        Ok(office.map(understand))
    }

    pub async fn all(&self) -> Result<Vec<Office>, CliError> {
        let offices = self.0.records.all(self.0.timeout).await?;
        Ok(offices.into_iter().map(understand).collect())
    }

    /// Watches one election, or all; without the right to do so nothing is heard.
    pub async fn listen(&self, only: Option<&str>) -> Result<ObjectEar, CliError> {
        let only = only.map(str::to_owned);
        let records = Arc::clone(&self.0.records);
        WatchEar::begin(WatchedObjects { records, only, timeout: self.0.timeout }).await
    }

    /// Empties the holder if the object is still of this version, and answers the version that it has then; none if it
    /// has been written meanwhile.
    pub async fn evict(&self, office: &Office) -> Result<Option<u64>, CliError> {
        match self.0.records.empty(&office.election, office.revision, self.0.timeout).await {
            Ok(version) => Ok(Some(version)),
            Err(error) if error.kind() == LockErrorKind::Conflict => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Watched for WatchedObjects {
    type Watch = OfficeWatch;

    async fn begin(&self) -> Result<OfficeWatch, LockError> {
        self.records.watch(self.only.as_deref(), self.timeout).await
    }

    async fn next(watch: &mut OfficeWatch) -> Option<Result<Heard, LockError>> {
        Some(watch.next().await?.map(|change| match change {
            OfficeChange::Written(office) => Heard::Office(understand(office)),
            OfficeChange::Deleted(office) => Heard::Office(deleted(office)),
            _ => Heard::Look,
        }))
    }
}

fn understand(office: kubernetes::Office) -> Office {
    let now = OffsetDateTime::now_utc();
    let renewed = office.renewed.and_then(time_format::from_system).unwrap_or(now);
    let (holding, written) = match office.holding {
        kubernetes::Holding::Held(holder) => {
            let holder = Holder {
                leader: holder.identity.to_string(),
                token: holder.token.map(|token| token.0),
                since: office.acquired.and_then(time_format::from_system),
                lease: Some(holder.lease),
                advertisement: holder.advertisement,
                writes: holder.writes,
                pod: None,
            };
            (Holding::Held(holder), renewed)
        }
        kubernetes::Holding::Released(cause) => {
            (Holding::Vacant(cause.unwrap_or_else(|| "released".to_owned())), renewed)
        }
        kubernetes::Holding::New => (Holding::Vacant("new".to_owned()), now),
        // Whoever evicts leaves the times of the holder.
        _ => (Holding::Vacant("evicted".to_owned()), now),
    };
    let written = Some(written);
    Office { election: office.object, revision: office.resource_version, written, holding }
}

fn deleted(office: kubernetes::Office) -> Office {
    let holding = Holding::Vacant("evicted".to_owned());
    Office { holding, written: Some(OffsetDateTime::now_utc()), ..understand(office) }
}
