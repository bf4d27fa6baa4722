//! The elections of a Kubernetes namespace.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use incumbent::kubernetes::{self, OfficeChange, OfficeWatch};
use incumbent::lock::LockErrorKind;
use time::OffsetDateTime;

use super::super::office::{Holder, Holding, Office};
use super::Heard;
use crate::failure::Failure;
use crate::place::{Objects, Records};

/// How long to wait before a watch that failed is begun anew.
const PAUSE: Duration = Duration::from_secs(1);

/// The elections of a namespace.
pub struct ObjectOffices(pub Objects);

/// What is heard of them: a watch.
pub struct ObjectEar {
    records: Arc<dyn Records>,
    only: Option<String>,
    timeout: Duration,
    watch: Option<OfficeWatch>,
    /// Whether the server refuses to tell.
    refused: bool,
    failed: bool,
}

impl ObjectOffices {
    pub async fn read(&self, name: &str) -> Result<Option<Office>, Failure> {
        let office = self.0.records.one(name, self.0.timeout).await?;
        Ok(office.map(understand))
    }

    pub async fn all(&self) -> Result<Vec<Office>, Failure> {
        let offices = self.0.records.all(self.0.timeout).await?;
        Ok(offices.into_iter().map(understand).collect())
    }

    /// Watches one election, or all; without the right to do so nothing is heard.
    pub async fn listen(&self, only: Option<&str>) -> Result<ObjectEar, Failure> {
        let mut ear = ObjectEar {
            records: Arc::clone(&self.0.records),
            only: only.map(str::to_owned),
            timeout: self.0.timeout,
            watch: None,
            refused: false,
            failed: false,
        };
        match ear.records.watch(only, ear.timeout).await {
            Ok(watch) => ear.watch = Some(watch),
            Err(error) if error.kind() == LockErrorKind::Denied => ear.refused = true,
            Err(error) => return Err(error.into()),
        }
        Ok(ear)
    }

    /// Empties the holder if the object is still of this version, and answers the version that it has then; none if it
    /// has been written meanwhile.
    pub async fn evict(&self, office: &Office) -> Result<Option<u64>, Failure> {
        match self.0.records.empty(&office.election, office.revision, self.0.timeout).await {
            Ok(version) => Ok(Some(version)),
            Err(error) if error.kind() == LockErrorKind::Conflict => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl ObjectEar {
    /// Whether every change is heard.
    pub fn hears_all(&self) -> bool {
        !self.refused
    }

    /// Cancel safe.
    pub async fn next(&mut self) -> Heard {
        if self.refused {
            return pending().await;
        }
        let Some(watch) = &mut self.watch else {
            if self.failed {
                tokio::time::sleep(PAUSE).await;
            }
            return match self.records.watch(self.only.as_deref(), self.timeout).await {
                Ok(watch) => {
                    self.watch = Some(watch);
                    Heard::Look // a deletion meanwhile is not told
                }
                Err(error) => {
                    self.failed = true;
                    Heard::Failed(error.into())
                }
            };
        };
        match watch.next().await {
            Some(Ok(OfficeChange::Written(office))) => Heard::Office(understand(office)),
            Some(Ok(OfficeChange::Deleted(office))) => Heard::Office(deleted(office)),
            Some(Ok(_)) => Heard::Look,
            Some(Err(error)) => {
                self.watch = None;
                self.failed = true;
                Heard::Failed(error.into())
            }
            None => {
                self.watch = None;
                self.failed = false;
                Heard::Look
            }
        }
    }
}

fn understand(office: kubernetes::Office) -> Office {
    let now = OffsetDateTime::now_utc();
    let renewed = office.renewed.map_or(now, OffsetDateTime::from);
    let (holding, written) = match office.holding {
        kubernetes::Holding::Held(holder) => {
            let holder = Holder {
                leader: holder.identity.to_string(),
                token: holder.token.map(|token| token.0),
                since: office.acquired.map(OffsetDateTime::from),
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
