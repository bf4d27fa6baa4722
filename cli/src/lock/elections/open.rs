//! How each lock is opened for an operator, and what people call it.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::{Lock, LockAdmin};
use incumbent::lock_url::{LockTarget, NatsBucket};
use incumbent::nats::Bucket;

use super::{Access, Elections, LockLabel, OpenLock};
use crate::error::{CliError, Code};
use crate::lock::nats::{Session, check_bucket};
use crate::lock::{
    ElectionLock, ElectionObjects, Kind, LifeObjects, LockArgs, SelectedLock, check_name,
    open_within,
};
use crate::output::time_format;

impl Elections {
    /// Opens the lock; `only` must be a valid election name there.
    pub async fn open(lock: &LockArgs, only: Option<&str>) -> Result<Self, CliError> {
        Self::open_for(lock, only.as_slice()).await
    }

    /// Opens the lock; the names must be valid election names there.
    pub async fn open_for(lock: &LockArgs, names: &[impl AsRef<str>]) -> Result<Self, CliError> {
        let selected = lock.at().await?;
        names.iter().try_for_each(|name| check_name(name.as_ref()))?;
        let elections = match selected {
            SelectedLock::ForLife(locks) => Self::of(OpenLock::for_life(locks)).await?,
            SelectedLock::Elections(lock) => Self::of_leases(&lock).await?,
        };
        names.iter().try_for_each(|name| elections.check_name(name.as_ref()))?;
        Ok(elections)
    }

    async fn of_leases(lock: &ElectionLock) -> Result<Self, CliError> {
        match lock.of_flags() {
            Some(LockTarget::Nats(bucket)) => Self::of_bucket(&bucket).await,
            Some(LockTarget::Kubernetes(objects)) => {
                Self::of(OpenLock::of_objects(lock.objects(objects).await?)).await
            }
            _ => Self::of(OpenLock::of_url(lock).await?).await,
        }
    }

    async fn of_bucket(bucket: &NatsBucket) -> Result<Self, CliError> {
        let session = Session::connect(&bucket.connection).await?;
        check_bucket(&bucket.bucket)?;
        let lock = Bucket::for_admin(session.connection(), bucket.config())?.lock();
        let label = LockLabel::new("Bucket", lock.bucket_name());
        let mut elections =
            Self::of(OpenLock::new(Arc::new(lock), session.timeout(), label)).await?;
        elections.lock.label.detail = match elections.facts.max_lease {
            Some(ttl) => format!(", TTL {}", time_format::span(ttl)),
            None => ", no TTL".to_owned(),
        };
        Ok(elections)
    }
}

impl LockLabel {
    fn new(noun: &'static str, name: impl Into<String>) -> Self {
        Self { noun, name: name.into(), detail: String::new(), fields: Vec::new() }
    }
}

impl OpenLock {
    fn new(lock: Arc<dyn Lock>, timeout: Duration, label: LockLabel) -> Self {
        let named = Arc::clone(&lock);
        Self {
            timeout,
            patience: Duration::ZERO,
            label,
            name_rule: Box::new(move |name| {
                named.check_name(name).map_err(|rule| CliError::new(Code::Usage, rule))
            }),
            identity: lock.identity(),
            calls: Ok(Arc::clone(&lock)),
            access: Access::Lock(lock),
        }
    }

    async fn of_url(selected: &ElectionLock) -> Result<Self, CliError> {
        let timeout = selected.timeout();
        let lock = open_within(&selected.url.clone().without_create(), timeout).await?;
        if lock.members().is_some() {
            let message = "several locks have a leader each: select one of them";
            return Err(CliError::new(Code::Usage, message));
        }
        let label = LockLabel::new("Lock", selected.url.to_string());
        Ok(Self { patience: timeout, ..Self::new(lock, timeout, label) })
    }

    fn of_objects(objects: ElectionObjects) -> Self {
        let kind = objects.kind();
        let label = LockLabel {
            detail: format!(", kind {}", kind.name()),
            fields: vec![("kind", kind.name())],
            ..LockLabel::new("Namespace", objects.namespace())
        };
        let mut opened = Self::new(Arc::clone(&objects.lock), objects.timeout, label);
        if kind != Kind::Lease {
            let why = format!("a {} carries no roll calls, only a Lease does", kind.name());
            opened.calls = Err(why);
        }
        Self { name_rule: Box::new(move |name| objects.check_name(name)), ..opened }
    }

    fn for_life(locks: LifeObjects) -> Self {
        let kind = locks.kind.name();
        let no_calls = "a lock for life carries no roll calls: its candidates are unknown";
        Self {
            access: Access::ForLife(Arc::clone(&locks.locks) as Arc<dyn LockAdmin>),
            timeout: locks.timeout,
            patience: Duration::ZERO,
            label: LockLabel {
                detail: format!(", leaders for life, kind {kind}"),
                fields: vec![("kind", "ForLife"), ("life_kind", kind)],
                ..LockLabel::new("Namespace", locks.namespace())
            },
            identity: locks.cluster.lease_lock().identity(),
            calls: Err(no_calls.to_owned()),
            name_rule: Box::new(move |name| locks.check_name(name)),
        }
    }
}
