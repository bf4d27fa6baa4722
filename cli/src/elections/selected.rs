//! The elections of the lock that the flags select.

use std::sync::Arc;
use std::time::Duration;

use incumbent::CandidateInfo;
use incumbent::lock::{CandidateRequest, Lock, LockErrorKind, Revision};
use incumbent::lock_url::LockTarget;
use incumbent::nats::Finding;
use serde_json::{Map, Value, json};

use super::for_life::{LifeElections, LifeWatcher};
use super::kubernetes::{KubernetesElections, KubernetesWatcher};
use super::lock::{LockElections, LockWatcher};
use super::nats::{NatsElections, NatsWatcher};
use super::status::{ElectionStatus, Holder, Position};
use super::watcher::Update;
use crate::error::{CliError, Code};
use crate::lock_args::{
    ElectionLock, ElectionObjects, Kind, LockArgs, SelectedLock, check_name, open_within,
};
use crate::text;
use crate::{output, time_format};

/// The elections of a lock.
pub enum Elections {
    Nats(Box<NatsElections>),
    Kubernetes(KubernetesElections),
    ForLife(LifeElections),
    Lock(LockElections),
}

/// The watcher of a lock.
pub enum Watcher {
    Nats(Box<NatsWatcher>),
    Kubernetes(Box<KubernetesWatcher>),
    ForLife(Box<LifeWatcher>),
    Lock(LockWatcher),
}

impl Elections {
    /// Opens the lock; `only` must be a valid election name there.
    pub async fn open(lock: &LockArgs, only: Option<&str>) -> Result<Self, CliError> {
        Self::open_for(lock, only.as_slice()).await
    }

    /// The same for several elections.
    pub async fn open_for(lock: &LockArgs, names: &[impl AsRef<str>]) -> Result<Self, CliError> {
        let at = lock.at().await?;
        names.iter().try_for_each(|name| check_name(name.as_ref()))?;
        let elections = match at {
            SelectedLock::ForLife(locks) => Self::ForLife(LifeElections(locks)),
            SelectedLock::Elections(lock) => Self::of_lock(&lock).await?,
        };
        names.iter().try_for_each(|name| elections.check_name(name.as_ref()))?;
        Ok(elections)
    }

    async fn of_lock(lock: &ElectionLock) -> Result<Self, CliError> {
        let timeout = lock.timeout();
        match lock.of_flags() {
            Some(LockTarget::Nats(bucket)) => {
                return Ok(Self::Nats(Box::new(NatsElections::open(*bucket).await?)));
            }
            Some(LockTarget::Kubernetes(objects)) => {
                let objects = ElectionObjects::open(objects, timeout).await?;
                return Ok(Self::Kubernetes(KubernetesElections(objects)));
            }
            _ => {}
        }
        let title = lock.url.to_string();
        let lock = open_within(&lock.url.clone().without_create(), timeout).await?;
        if lock.members().is_some() {
            let message = "several locks have a leader each: select one of them";
            return Err(CliError::new(Code::Usage, message));
        }
        Ok(Self::Lock(LockElections { lock, title, timeout }))
    }

    /// Refuses a name that no election of the lock can have.
    pub fn check_name(&self, name: &str) -> Result<(), CliError> {
        check_name(name)?;
        match self {
            Self::Nats(_) => Ok(()),
            Self::Kubernetes(KubernetesElections(objects)) => objects.check_name(name),
            Self::ForLife(LifeElections(locks)) => locks.check_name(name),
            Self::Lock(elections) => elections.check_name(name),
        }
    }

    /// The last write to an election; `None` if there is none.
    pub async fn read(&self, name: &str) -> Result<Option<ElectionStatus>, CliError> {
        let status = match self {
            Self::Nats(elections) => elections.read(name).await,
            Self::Kubernetes(elections) => elections.read(name).await,
            Self::ForLife(elections) => elections.read(name).await,
            Self::Lock(elections) => elections.read(name).await,
        };
        let status = status?;
        if status.is_none() {
            self.check_place().await?;
        }
        Ok(status)
    }

    /// All elections, sorted by name.
    pub async fn list(&self) -> Result<Vec<ElectionStatus>, CliError> {
        let all = match self {
            Self::Nats(elections) => elections.list().await,
            Self::Kubernetes(elections) => elections.list().await,
            Self::ForLife(elections) => elections.list().await,
            Self::Lock(elections) => elections.list().await,
        };
        let all = all?;
        if all.is_empty() {
            self.check_place().await?;
        }
        Ok(all)
    }

    /// How far the lock has been written, if one request shows it.
    pub async fn position(&self) -> Result<Option<Position>, CliError> {
        match self {
            Self::Nats(elections) => elections.position().await,
            Self::Kubernetes(_) | Self::ForLife(_) | Self::Lock(_) => Ok(None),
        }
    }

    /// Refuses a missing namespace: an empty result does not show it.
    async fn check_place(&self) -> Result<(), CliError> {
        match self {
            Self::Nats(_) | Self::Lock(_) => Ok(()),
            Self::Kubernetes(KubernetesElections(objects)) => objects.check_namespace().await,
            Self::ForLife(LifeElections(locks)) => locks.check_namespace().await,
        }
    }

    /// Watches the named elections, or all if none is named. Others may be reported too.
    pub async fn watch(&self, names: &[String]) -> Result<Watcher, CliError> {
        let only = match names {
            [name] => Some(name.as_str()),
            _ => None,
        };
        Ok(match self {
            Self::Nats(elections) => Watcher::Nats(Box::new(elections.watch(only).await?)),
            Self::Kubernetes(elections) => {
                Watcher::Kubernetes(Box::new(elections.watch(only).await?))
            }
            Self::ForLife(elections) => Watcher::ForLife(Box::new(elections.watch(only).await?)),
            Self::Lock(elections) => Watcher::Lock(elections.watch(names)),
        })
    }

    /// Sends a request to the candidates, and returns what they answer.
    pub async fn call_roll(
        &self,
        name: &str,
        request: CandidateRequest,
        within: Duration,
    ) -> Result<Vec<CandidateInfo>, CliError> {
        let lock = match self {
            Self::Nats(elections) => elections.deferred()?,
            Self::Lock(elections) => return elections.call_roll(name, request, within).await,
            Self::Kubernetes(KubernetesElections(objects)) if objects.kind() != Kind::Lease => {
                let kind = objects.kind().name();
                let message = format!("a {kind} carries no roll calls, only a Lease does");
                return Err(CliError::new(Code::Usage, message));
            }
            Self::Kubernetes(KubernetesElections(objects)) => objects.lock(),
            Self::ForLife(_) => {
                let message = "a lock for life carries no roll calls: its candidates are unknown";
                return Err(CliError::new(Code::Usage, message));
            }
        };
        let found = lock.call_roll(name, request, within).await?;
        if found.is_empty() {
            self.check_place().await?;
        }
        Ok(found)
    }

    /// Ends the holder's term. Returns a revision below those of later terms, or `None` if the
    /// entry was written meanwhile.
    pub async fn evict(&self, status: &ElectionStatus) -> Result<Option<u64>, CliError> {
        let revision = status.revision;
        let (lock, timeout) = match self {
            Self::Nats(elections) => (elections.lock().await?, elections.session.timeout()),
            // One that knows no object yet: there the version of the object is the revision.
            Self::Kubernetes(KubernetesElections(objects)) => (objects.lock(), objects.timeout),
            Self::Lock(elections) => (Arc::clone(&elections.lock), elections.timeout),
            Self::ForLife(elections) => return elections.evict(status).await,
        };
        match lock.evict(&status.election, Revision(revision), timeout).await {
            Ok(()) => Ok(Some(revision)),
            Err(error) if error.kind() == LockErrorKind::Conflict => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The identity of candidates on this host that set none.
    pub fn default_identity(&self) -> String {
        let identity = match self {
            Self::Nats(_) => None,
            Self::Kubernetes(KubernetesElections(objects)) => {
                objects.cluster().lease_lock().identity()
            }
            Self::ForLife(LifeElections(locks)) => locks.cluster.lease_lock().identity(),
            Self::Lock(elections) => elections.lock.identity(),
        };
        identity.unwrap_or_else(|| gethostname::gethostname().to_string_lossy().into_owned())
    }

    /// The longest wait of a successor of this holder; `None` if it is unknown.
    pub fn max_wait(&self, holder: &Holder) -> Option<Duration> {
        match self {
            Self::Nats(elections) => elections.ttl(),
            Self::Kubernetes(_) => holder.lease,
            Self::ForLife(_) => None,
            Self::Lock(elections) => {
                holder.lease.or_else(|| Some(elections.lock.capabilities().max_lease))
            }
        }
    }

    /// The lease of a holder whose record states none.
    pub fn default_lease(&self) -> Option<Duration> {
        match self {
            Self::Nats(elections) => elections.ttl(),
            Self::Kubernetes(_) | Self::ForLife(_) | Self::Lock(_) => None,
        }
    }

    /// Whether the times of writes are those of the lock, rather than of leaders.
    pub fn has_lock_times(&self) -> bool {
        matches!(self, Self::Nats(_))
    }

    /// The cause of a vacancy without an entry.
    pub fn cause_of_absence(&self) -> &'static str {
        match self {
            Self::Nats(_) => "expired", // a deletion leaves a marker
            Self::Kubernetes(_) => "evicted",
            Self::Lock(_) => "gone",
            Self::ForLife(_) => "deleted", // by the garbage collector, a successor, or an operator
        }
    }

    /// The problems of the lock; `None` if it has no check.
    pub async fn findings(&self) -> Result<Option<Vec<Finding>>, CliError> {
        match self {
            Self::Nats(elections) => elections.findings().await.map(Some),
            Self::Kubernetes(_) | Self::ForLife(_) | Self::Lock(_) => Ok(None),
        }
    }

    /// The lock, as a heading.
    pub fn title(&self) -> String {
        match self {
            Self::Nats(elections) => {
                let ttl = elections.ttl().map(|ttl| format!("TTL {}", time_format::span(ttl)));
                let ttl = ttl.unwrap_or_else(|| "no TTL".to_owned());
                format!("Bucket {}, {ttl}", output::bold(elections.bucket()))
            }
            Self::Kubernetes(KubernetesElections(objects)) => {
                format!(
                    "Namespace {}, kind {}",
                    output::bold(text::printable(objects.namespace())),
                    objects.kind().name()
                )
            }
            Self::Lock(elections) => {
                format!("Lock {}", output::bold(text::printable(&elections.title)))
            }
            Self::ForLife(LifeElections(locks)) => format!(
                "Namespace {}, leaders for life, kind {}",
                output::bold(text::printable(locks.namespace())),
                locks.kind.name()
            ),
        }
    }

    /// The same without the codes of a terminal.
    pub fn plain_title(&self) -> String {
        anstream::adapter::strip_str(&self.title()).to_string()
    }

    /// The lock, as JSON fields.
    pub fn json(&self) -> Map<String, Value> {
        let fields = match self {
            Self::Nats(elections) => json!({"bucket": elections.bucket()}),
            Self::Kubernetes(KubernetesElections(objects)) => {
                json!({"namespace": objects.namespace(), "kind": objects.kind().name()})
            }
            Self::Lock(elections) => json!({"lock": elections.title}),
            Self::ForLife(LifeElections(locks)) => {
                json!({"namespace": locks.namespace(), "kind": "ForLife", "life_kind": locks.kind.name()})
            }
        };
        fields.as_object().cloned().unwrap_or_default()
    }
}

impl Elections {
    /// The same, with what distinguishes the lock from another one of its name.
    pub fn lock_json(&self) -> Map<String, Value> {
        let mut fields = self.json();
        if let Self::Nats(elections) = self {
            let created = time_format::rfc3339(elections.created());
            fields.insert("created".to_owned(), created.into());
        }
        fields
    }
}

impl Watcher {
    /// Whether every change is reported.
    pub fn reports_every_change(&self) -> bool {
        match self {
            Self::Nats(watcher) => watcher.reports_every_change(),
            Self::Kubernetes(watcher) => watcher.reports_every_change(),
            Self::ForLife(watcher) => watcher.reports_every_change(),
            Self::Lock(_) => false,
        }
    }

    /// Cancel safe.
    pub async fn next(&mut self) -> Update {
        match self {
            Self::Nats(watcher) => watcher.next().await,
            Self::Kubernetes(watcher) => watcher.next().await,
            Self::ForLife(watcher) => watcher.next().await,
            Self::Lock(watcher) => watcher.next().await,
        }
    }
}
