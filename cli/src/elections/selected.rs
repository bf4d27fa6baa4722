//! The elections of the lock that the flags select.

use std::sync::Arc;
use std::time::Duration;

use backon::{ConstantBuilder, Retryable};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt, stream};
use incumbent::lock::{
    CandidateRequest, ElectionRecord, Finding, Holder, Lock, LockAdmin, LockError, LockErrorKind,
    LockFacts, Position, RollCall, StoredCheckpoint,
};
use incumbent::lock_url::{LockTarget, NatsBucket};
use incumbent::nats::{Bucket, NatsLock};
use incumbent::{CandidateInfo, Token};
use serde_json::{Map, Value, json};

use super::watcher::Watcher;
use crate::error::{CliError, Code, one_line};
use crate::lock::nats::{Session, check_bucket};
use crate::lock::{
    ElectionLock, ElectionObjects, Kind, LifeObjects, LockArgs, SelectedLock, check_name,
    open_within,
};
use crate::output::text;
use crate::output::{self, time_format};

/// The pause before a request to an unavailable lock is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// How many entries are read at the same time.
const READS: usize = 32;

/// How many elections are sampled for entries without a mark.
const SAMPLE: usize = 200;

/// The elections of a lock.
pub struct Elections {
    at: OpenLock,
    facts: LockFacts,
    timeout: Duration,
}

/// The selected lock, open for an operator.
enum OpenLock {
    Nats(NatsLock),
    Kubernetes(ElectionObjects),
    ForLife(LifeObjects),
    /// The lock of a URL, and its name.
    Url(Arc<dyn Lock>, String),
}

impl OpenLock {
    fn lock(&self) -> Option<&dyn Lock> {
        match self {
            Self::Nats(lock) => Some(lock),
            Self::Kubernetes(objects) => Some(&*objects.lock),
            Self::ForLife(_) => None,
            Self::Url(lock, _) => Some(&**lock),
        }
    }

    fn admin(&self) -> Result<&dyn LockAdmin, CliError> {
        let admin = match self {
            Self::ForLife(objects) => Some(&*objects.locks as &dyn LockAdmin),
            of_leases => of_leases.lock().and_then(Lock::admin),
        };
        let message = "this lock does not support requests of operators";
        admin.ok_or_else(|| CliError::new(Code::Usage, message))
    }

    /// Sends a request, and repeats it while the lock of a URL is unavailable, as during the
    /// connection.
    async fn request<'a, T>(
        &'a self,
        timeout: Duration,
        request: impl Fn() -> BoxFuture<'a, Result<T, LockError>>,
    ) -> Result<T, CliError> {
        let times = match self {
            Self::Url(..) => timeout.div_duration_f32(RETRY_PAUSE) as usize,
            _ => 0,
        };
        let retried = request
            .retry(ConstantBuilder::new().with_delay(RETRY_PAUSE).with_max_times(times))
            .when(|error: &LockError| error.kind() == LockErrorKind::Unavailable);
        Ok(retried.await?)
    }
}

impl Elections {
    /// Opens the lock; `only` must be a valid election name there.
    pub async fn open(lock: &LockArgs, only: Option<&str>) -> Result<Self, CliError> {
        Self::open_for(lock, only.as_slice()).await
    }

    /// Opens the lock; the names must be valid election names there.
    pub async fn open_for(lock: &LockArgs, names: &[impl AsRef<str>]) -> Result<Self, CliError> {
        let at = lock.at().await?;
        names.iter().try_for_each(|name| check_name(name.as_ref()))?;
        let elections = match at {
            SelectedLock::ForLife(locks) => {
                let timeout = locks.timeout;
                Self::of_lock(OpenLock::ForLife(locks), timeout).await?
            }
            SelectedLock::Elections(lock) => Self::of_url(&lock).await?,
        };
        names.iter().try_for_each(|name| elections.check_name(name.as_ref()))?;
        Ok(elections)
    }

    async fn of_url(lock: &ElectionLock) -> Result<Self, CliError> {
        let timeout = lock.timeout();
        match lock.of_flags() {
            Some(LockTarget::Nats(bucket)) => {
                let session = Session::connect(&bucket.connection).await?;
                return Self::of_bucket(&session, &bucket).await;
            }
            Some(LockTarget::Kubernetes(objects)) => {
                let objects = lock.objects(objects).await?;
                return Self::of_lock(OpenLock::Kubernetes(objects), timeout).await;
            }
            _ => {}
        }
        let title = lock.url.to_string();
        let lock = open_within(&lock.url.clone().without_create(), timeout).await?;
        if lock.members().is_some() {
            let message = "several locks have a leader each: select one of them";
            return Err(CliError::new(Code::Usage, message));
        }
        Self::of_lock(OpenLock::Url(lock, title), timeout).await
    }

    /// The checkpoint of an election, if it has one and this program may read it.
    pub async fn checkpoint(&self, name: &str) -> Option<StoredCheckpoint> {
        self.read_checkpoint(name).await.ok().flatten()
    }

    /// The checkpoint of an election, if it has one.
    ///
    /// # Errors
    /// The lock stores none, cannot be reached, or stores something else there.
    pub async fn read_checkpoint(&self, name: &str) -> Result<Option<StoredCheckpoint>, CliError> {
        let Some(lock) = self.at.lock() else {
            let message = "a leader for life keeps no checkpoint, and runs no jobs";
            return Err(CliError::new(Code::Usage, message));
        };
        Ok(lock.checkpoint(name, self.timeout).await?)
    }

    /// Whether elections of the lock can have checkpoints.
    pub fn store_checkpoints(&self) -> bool {
        self.at.lock().is_some_and(|lock| lock.checkpoints().is_some())
    }

    async fn of_lock(at: OpenLock, timeout: Duration) -> Result<Self, CliError> {
        let admin = at.admin()?;
        let facts = at.request(timeout, || admin.facts(timeout)).await?;
        Ok(Self { at, facts, timeout })
    }

    async fn of_bucket(session: &Session, bucket: &NatsBucket) -> Result<Self, CliError> {
        check_bucket(&bucket.bucket)?;
        let lock = Bucket::for_admin(session.connection(), bucket.config())?.lock();
        Self::of_lock(OpenLock::Nats(lock), session.timeout()).await
    }

    pub fn facts(&self) -> &LockFacts {
        &self.facts
    }

    /// Refuses a name that no election of the lock can have.
    pub fn check_name(&self, name: &str) -> Result<(), CliError> {
        check_name(name)?;
        match &self.at {
            OpenLock::Nats(_) => Ok(()),
            OpenLock::Kubernetes(objects) => objects.check_name(name),
            OpenLock::ForLife(locks) => locks.check_name(name),
            OpenLock::Url(lock, _) => {
                lock.check_name(name).map_err(|rule| CliError::new(Code::Usage, rule))
            }
        }
    }

    /// The last write to an election; `None` if there is none.
    pub async fn read(&self, name: &str) -> Result<Option<ElectionRecord>, CliError> {
        let admin = self.at.admin()?;
        let record = self.at.request(self.timeout, || admin.record(name, self.timeout)).await?;
        if record.is_none() {
            self.check_place().await?;
        }
        Ok(record)
    }

    /// The last write to an election, and its leader. Fails if there is none.
    pub async fn read_led(&self, name: &str) -> Result<(ElectionRecord, Holder), CliError> {
        let no_leader = || CliError::new(Code::NotFound, format!("election {name}: no leader"));
        let record = self.read(name).await?.ok_or_else(no_leader)?;
        let holder = record.holder().cloned().ok_or_else(no_leader)?;
        Ok((record, holder))
    }

    /// All elections, sorted by name.
    pub async fn list(&self) -> Result<Vec<ElectionRecord>, CliError> {
        let admin = self.at.admin()?;
        let all = self.at.request(self.timeout, || admin.list(self.timeout)).await?;
        if all.is_empty() {
            self.check_place().await?;
        }
        Ok(all)
    }

    /// How far the lock has been written, if one request shows it.
    pub async fn position(&self) -> Result<Option<Position>, CliError> {
        Ok(self.at.admin()?.position(self.timeout).await?)
    }

    /// All writes to an election that the lock still stores; `None` if that is only the last one.
    pub async fn stored(&self, name: &str) -> Result<Option<Vec<ElectionRecord>>, CliError> {
        Ok(self.at.admin()?.stored(name, self.timeout).await?)
    }

    /// Refuses a missing namespace: an empty result does not show it.
    async fn check_place(&self) -> Result<(), CliError> {
        match &self.at {
            OpenLock::Nats(_) | OpenLock::Url(..) => Ok(()),
            OpenLock::Kubernetes(objects) => objects.check_namespace().await,
            OpenLock::ForLife(locks) => locks.check_namespace().await,
        }
    }

    /// Watches the named elections, or all if none is named. Others may be reported too.
    pub async fn watch<'a>(&'a self, names: &'a [String]) -> Result<Watcher<'a>, CliError> {
        Watcher::begin(self.at.admin()?, names, self.timeout).await
    }

    /// Sends a request to the candidates, and returns what they answer.
    pub async fn call_roll(
        &self,
        name: &str,
        request: CandidateRequest,
        within: Duration,
    ) -> Result<Vec<CandidateInfo>, CliError> {
        if let OpenLock::Kubernetes(objects) = &self.at
            && objects.kind() != Kind::Lease
        {
            let kind = objects.kind().name();
            let message = format!("a {kind} carries no roll calls, only a Lease does");
            return Err(CliError::new(Code::Usage, message));
        }
        let Some(lock) = self.at.lock() else {
            let message = "a lock for life carries no roll calls: its candidates are unknown";
            return Err(CliError::new(Code::Usage, message));
        };
        let found =
            self.at.request(self.timeout, || lock.call_roll(name, request.clone(), within)).await?;
        if found.is_empty() {
            self.check_place().await?;
        }
        Ok(found)
    }

    /// Ends the holder's term. Returns whether it was evicted: not if the entry was written
    /// meanwhile. Later terms have higher revisions than the record.
    pub async fn evict(&self, record: &ElectionRecord) -> Result<bool, CliError> {
        let (name, admin) = (&record.election, self.at.admin()?);
        match admin.evict(name, record.revision, self.timeout).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == LockErrorKind::Conflict => Ok(false),
            Err(error) if error.kind() == LockErrorKind::OutcomeUnknown => {
                let hint = "the outcome is unknown; check with `election info`";
                Err(CliError::new(Code::Unreachable, format!("{}: {hint}", one_line(&error))))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The identity of candidates on this host that set none.
    pub fn default_identity(&self) -> String {
        let identity = match &self.at {
            OpenLock::ForLife(locks) => locks.cluster.lease_lock().identity(),
            at => at.lock().and_then(Lock::identity),
        };
        identity.unwrap_or_else(|| gethostname::gethostname().to_string_lossy().into_owned())
    }

    /// The longest wait of a successor of this holder; `None` if it is unknown.
    pub fn max_wait(&self, holder: &Holder) -> Option<Duration> {
        let of_url = match &self.at {
            OpenLock::Url(lock, _) => Some(lock.capabilities().max_lease),
            _ => None,
        };
        holder.lease.or(self.facts.max_lease).or(of_url)
    }

    /// Whether the leaders are pods that lead for life.
    pub fn are_for_life(&self) -> bool {
        matches!(self.at, OpenLock::ForLife(_))
    }

    /// The problems of the lock; `None` if it has no check.
    pub async fn findings(&self) -> Result<Option<Vec<Finding>>, CliError> {
        Ok(self.at.admin()?.diagnose(None, self.timeout).await?)
    }

    /// The name of the bucket, the namespace or the lock.
    pub fn name(&self) -> &str {
        match &self.at {
            OpenLock::Nats(lock) => lock.bucket_name(),
            OpenLock::Kubernetes(objects) => objects.namespace(),
            OpenLock::ForLife(locks) => locks.namespace(),
            OpenLock::Url(_, title) => title,
        }
    }

    /// The lock, as a heading.
    pub fn title(&self) -> String {
        let name = output::bold(text::printable(self.name()));
        match &self.at {
            OpenLock::Nats(_) => match self.facts.max_lease {
                Some(ttl) => format!("Bucket {name}, TTL {}", time_format::span(ttl)),
                None => format!("Bucket {name}, no TTL"),
            },
            OpenLock::Kubernetes(objects) => {
                format!("Namespace {name}, kind {}", objects.kind().name())
            }
            OpenLock::ForLife(locks) => {
                format!("Namespace {name}, leaders for life, kind {}", locks.kind.name())
            }
            OpenLock::Url(..) => format!("Lock {name}"),
        }
    }

    /// The heading without the codes of a terminal.
    pub fn plain_title(&self) -> String {
        anstream::adapter::strip_str(&self.title()).to_string()
    }

    /// The lock, as JSON fields.
    pub fn json(&self) -> Map<String, Value> {
        let name = self.name();
        let fields = match &self.at {
            OpenLock::Nats(_) => json!({"bucket": name}),
            OpenLock::Kubernetes(objects) => {
                json!({"namespace": name, "kind": objects.kind().name()})
            }
            OpenLock::ForLife(locks) => {
                json!({"namespace": name, "kind": "ForLife", "life_kind": locks.kind.name()})
            }
            OpenLock::Url(..) => json!({"lock": name}),
        };
        fields.as_object().cloned().unwrap_or_default()
    }

    /// The lock as JSON fields, with what distinguishes it from another one of its name.
    pub fn lock_json(&self) -> Map<String, Value> {
        let mut fields = self.json();
        if let Some(created) = self.facts.created.and_then(time_format::from_system) {
            fields.insert("created".to_owned(), time_format::rfc3339(created).into());
        }
        fields
    }
}

/// The elections whose holder has no mark of this library, among the first ones of a bucket.
pub async fn unmarked(session: &Session, bucket: &NatsBucket) -> Result<Vec<String>, CliError> {
    let elections = Elections::of_bucket(session, bucket).await?;
    let mut names = elections.at.admin()?.names(elections.timeout).await?;
    names.sort_unstable();
    names.truncate(SAMPLE);
    let reads: Vec<_> = names.iter().map(|name| elections.read(name)).collect();
    let found: Vec<_> = stream::iter(reads).buffered(READS).try_collect().await?;
    let foreign = |record: &ElectionRecord| record.holder().is_some_and(|who| who.token.is_none());
    Ok(found.into_iter().flatten().filter(foreign).map(|record| record.election).collect())
}

/// Refuses to wait so long for the answers to a roll call.
pub fn check_within(within: Duration) -> Result<(), CliError> {
    match within <= RollCall::MAX_WITHIN {
        true => Ok(()),
        false => Err(CliError::new(Code::Usage, "--within is at most 30s")),
    }
}

/// The token of a leader, if it is known, in words that follow others.
pub fn with_token(token: Option<Token>) -> String {
    token.map(|token| format!(" with token {token}")).unwrap_or_default()
}

/// A leader, formatted for the terminal.
pub fn shown(holder: &Holder) -> String {
    let leader = output::bold(text::printable(&holder.identity));
    match &holder.pod {
        Some(pod) => {
            let (uid, phase) = (text::printable(&pod.uid), text::printable(&pod.phase));
            format!("pod {leader} ({phase}, UID {uid})")
        }
        None => leader,
    }
}
