//! The elections of the lock that the flags select.

use std::time::Duration;

use incumbent::nats::Finding;
use serde_json::{Map, Value, json};

use super::for_life::{LifeEar, LifeOffices};
use super::kubernetes::{ObjectEar, ObjectOffices};
use super::lock::{LockEar, LockOffices};
use super::nats::{BucketEar, BucketOffices};
use super::status::{Holder, Office};
use super::watcher::Heard;
use crate::error::{CliError, Code};
use crate::lock_args::{LockArgs, SelectedLock, check_name, open_within};
use crate::nats::PATIENCE;
use crate::text;
use crate::{output, time_format};

/// The elections of a lock.
pub enum Offices<'a> {
    Bucket(Box<BucketOffices<'a>>),
    Objects(ObjectOffices),
    ForLife(LifeOffices),
    Lock(LockOffices),
}

/// A way to hear of changes.
pub enum Ear {
    Bucket(Box<BucketEar>),
    Objects(Box<ObjectEar>),
    ForLife(Box<LifeEar>),
    Lock(LockEar),
}

impl<'a> Offices<'a> {
    /// Opens the lock; `only` must be the name of an election there.
    pub async fn open(lock: &'a LockArgs, only: Option<&str>) -> Result<Self, CliError> {
        let at = lock.at().await?;
        if let Some(name) = only {
            check_name(name)?;
            match &at {
                SelectedLock::Nats(_) | SelectedLock::Url(..) => {}
                SelectedLock::Kubernetes(objects) => objects.check_name(name)?,
                SelectedLock::ForLife(locks) => locks.check_name(name)?,
            }
        }
        Ok(match at {
            SelectedLock::Nats(lock) => Self::Bucket(Box::new(BucketOffices::open(lock).await?)),
            SelectedLock::Kubernetes(objects) => Self::Objects(ObjectOffices(objects)),
            SelectedLock::ForLife(locks) => Self::ForLife(LifeOffices(locks)),
            SelectedLock::Url(url, timeout) => {
                let timeout = timeout.unwrap_or(PATIENCE);
                let offices = LockOffices {
                    lock: open_within(&url.clone().make_nothing(), timeout).await?,
                    title: url.to_string(),
                    timeout,
                };
                if offices.lock.members().is_some() {
                    let message = "each of several locks has its own leader: name one of them";
                    return Err(CliError::new(Code::Usage, message));
                }
                only.map_or(Ok(()), |name| offices.check_name(name))?;
                Self::Lock(offices)
            }
        })
    }

    /// The last that was written of an election; none where there is nothing.
    pub async fn read(&self, name: &str) -> Result<Option<Office>, CliError> {
        let office = match self {
            Self::Bucket(offices) => offices.read(name).await,
            Self::Objects(offices) => offices.read(name).await,
            Self::ForLife(offices) => offices.read(name).await,
            Self::Lock(offices) => offices.read(name).await,
        };
        let office = office?;
        if office.is_none() {
            self.check_place().await?;
        }
        Ok(office)
    }

    /// All of them, in the order of their names.
    pub async fn all(&self) -> Result<Vec<Office>, CliError> {
        let all = match self {
            Self::Bucket(offices) => offices.all().await,
            Self::Objects(offices) => offices.all().await,
            Self::ForLife(offices) => offices.all().await,
            Self::Lock(offices) => offices.all().await,
        };
        let all = all?;
        if all.is_empty() {
            self.check_place().await?;
        }
        Ok(all)
    }

    /// Refuses a namespace that is not there: there is nothing in it, and no other request says why.
    async fn check_place(&self) -> Result<(), CliError> {
        match self {
            Self::Bucket(_) | Self::Lock(_) => Ok(()),
            Self::Objects(ObjectOffices(objects)) => objects.check_namespace().await,
            Self::ForLife(LifeOffices(locks)) => locks.check_namespace().await,
        }
    }

    /// Listens to one election, or to all.
    pub async fn listen(&self, only: Option<&str>) -> Result<Ear, CliError> {
        Ok(match self {
            Self::Bucket(offices) => Ear::Bucket(Box::new(offices.listen(only).await?)),
            Self::Objects(offices) => Ear::Objects(Box::new(offices.listen(only).await?)),
            Self::ForLife(offices) => Ear::ForLife(Box::new(offices.listen(only).await?)),
            Self::Lock(offices) => Ear::Lock(offices.listen(only)),
        })
    }

    /// Ends the term of its holder, if nobody has written meanwhile. Answers a revision before those of later terms; none
    /// if somebody has written.
    pub async fn evict(&self, office: &Office, doing: &str) -> Result<Option<u64>, CliError> {
        match self {
            Self::Bucket(offices) => offices.evict(office, doing).await,
            Self::Objects(offices) => offices.evict(office).await,
            Self::ForLife(offices) => offices.evict(office).await,
            Self::Lock(offices) => offices.evict(office).await,
        }
    }

    /// How long others may wait until they follow this holder; none where it is not known.
    pub fn longest_wait(&self, holder: &Holder) -> Option<Duration> {
        match self {
            Self::Bucket(offices) => offices.ttl(),
            Self::Objects(_) => holder.lease,
            Self::ForLife(_) => None,
            Self::Lock(offices) => {
                holder.lease.or_else(|| Some(offices.lock.capabilities().longest_lease))
            }
        }
    }

    /// Why an office is vacant of which nothing is there any more.
    pub fn cause_of_absence(&self) -> &'static str {
        match self {
            Self::Bucket(_) => "expired", // a deletion leaves a marker
            Self::Objects(_) => "evicted",
            Self::Lock(_) => "gone",
            Self::ForLife(_) => "deleted", // by the garbage collector, a successor, or somebody
        }
    }

    /// What is to be mended in the lock; none where there is nothing to examine.
    pub async fn findings(&self) -> Result<Option<Vec<Finding>>, CliError> {
        match self {
            Self::Bucket(offices) => offices.findings().await.map(Some),
            Self::Objects(_) | Self::ForLife(_) | Self::Lock(_) => Ok(None),
        }
    }

    /// Where they are, for people.
    pub fn title(&self) -> String {
        match self {
            Self::Bucket(offices) => {
                let ttl = offices.ttl().map(|ttl| format!("TTL {}", time_format::span(ttl)));
                let ttl = ttl.unwrap_or_else(|| "no TTL".to_owned());
                format!("Bucket {}, {ttl}", output::bold(offices.bucket()))
            }
            Self::Objects(ObjectOffices(objects)) => {
                format!(
                    "Namespace {}, kind {}",
                    output::bold(text::printable(objects.namespace())),
                    objects.kind().name()
                )
            }
            Self::Lock(offices) => {
                format!("Lock {}", output::bold(text::printable(&offices.title)))
            }
            Self::ForLife(LifeOffices(locks)) => format!(
                "Namespace {}, leaders for life, kind {}",
                output::bold(text::printable(locks.namespace())),
                locks.kind.name()
            ),
        }
    }

    /// The same for programs.
    pub fn json(&self) -> Map<String, Value> {
        let fields = match self {
            Self::Bucket(offices) => json!({"bucket": offices.bucket()}),
            Self::Objects(ObjectOffices(objects)) => {
                json!({"namespace": objects.namespace(), "kind": objects.kind().name()})
            }
            Self::Lock(offices) => json!({"lock": offices.title}),
            Self::ForLife(LifeOffices(locks)) => {
                json!({"namespace": locks.namespace(), "kind": "ForLife", "carrier": locks.kind.name()})
            }
        };
        fields.as_object().cloned().unwrap_or_default()
    }
}

impl Ear {
    /// Whether every change is heard.
    pub fn hears_all(&self) -> bool {
        match self {
            Self::Bucket(ear) => ear.hears_all(),
            Self::Objects(ear) => ear.hears_all(),
            Self::ForLife(ear) => ear.hears_all(),
            Self::Lock(_) => false,
        }
    }

    /// Cancel safe.
    pub async fn next(&mut self) -> Heard {
        match self {
            Self::Bucket(ear) => ear.next().await,
            Self::Objects(ear) => ear.next().await,
            Self::ForLife(ear) => ear.next().await,
            Self::Lock(ear) => ear.next().await,
        }
    }
}
