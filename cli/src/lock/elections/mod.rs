//! The elections of the selected lock, for those who take no part: reading, watching and evicting.
//!
//! [`open`] knows which lock the flags select. What is asked of it is the same on every lock.

mod changes;
mod now;
mod open;
mod watcher;

use std::sync::Arc;
use std::time::Duration;

use backon::{ConstantBuilder, Retryable};
use futures_util::future::BoxFuture;
use incumbent::lock::{
    CandidateRequest, Finding, Lock, LockAdmin, LockError, LockErrorKind, LockFacts, RollCall,
    StoredCheckpoint,
};
use incumbent::{CandidateInfo, Token};
use serde_json::{Map, Value};

use crate::error::{CliError, Code, one_line};
use crate::lock::check_name;
use crate::output::text;
use crate::output::{self, time_format};

pub use changes::Handover;
pub use incumbent::lock::{ElectionRecord, ElectionState, Holder, HolderPod, Position, Vacancy};
pub use watcher::Watcher;

/// The pause before a request to an unavailable lock is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The elections of a lock.
pub struct Elections {
    lock: OpenLock,
    facts: LockFacts,
}

/// A lock, open for an operator.
struct OpenLock {
    access: Access,
    /// How long a request may take.
    timeout: Duration,
    /// For how long a request is repeated while the lock is unavailable, as during the connection.
    patience: Duration,
    label: LockLabel,
    /// Refuses a name that no election of the lock can have.
    name_rule: NameRule,
    /// The identity of candidates that set none, if it is not the name of the host.
    identity: Option<String>,
    /// Where candidates are asked, or why they cannot be.
    calls: Result<Arc<dyn Lock>, String>,
}

type NameRule = Box<dyn Fn(&str) -> Result<(), CliError> + Send + Sync>;

/// What an open lock is asked by.
enum Access {
    Lock(Arc<dyn Lock>),
    /// Leaders for life hold no lease.
    ForLife(Arc<dyn LockAdmin>),
}

/// How people and programs call a lock.
struct LockLabel {
    /// What it is, as in `Bucket`; in lower case, the field of JSON with the name.
    noun: &'static str,
    name: String,
    /// What follows the name in a heading.
    detail: String,
    /// Other fields of JSON.
    fields: Vec<(&'static str, &'static str)>,
}

impl OpenLock {
    fn lock(&self) -> Option<&dyn Lock> {
        match &self.access {
            Access::Lock(lock) => Some(&**lock),
            Access::ForLife(_) => None,
        }
    }

    fn admin(&self) -> Result<&dyn LockAdmin, CliError> {
        let admin = match &self.access {
            Access::Lock(lock) => lock.admin(),
            Access::ForLife(admin) => Some(&**admin),
        };
        let message = "this lock does not support requests of operators";
        admin.ok_or_else(|| CliError::new(Code::Usage, message))
    }

    /// Sends a request, and repeats it for a while where the lock is unavailable.
    async fn request<'a, T>(
        &'a self,
        request: impl Fn() -> BoxFuture<'a, Result<T, LockError>>,
    ) -> Result<T, CliError> {
        let times = self.patience.div_duration_f32(RETRY_PAUSE) as usize;
        let retried = request
            .retry(ConstantBuilder::new().with_delay(RETRY_PAUSE).with_max_times(times))
            .when(|error: &LockError| error.kind() == LockErrorKind::Unavailable);
        Ok(retried.await?)
    }

    /// Refuses a lock that does not exist, which an empty answer does not show.
    async fn check_exists(&self) -> Result<(), CliError> {
        Ok(self.admin()?.check_exists(self.timeout).await?)
    }
}

impl Elections {
    async fn of(lock: OpenLock) -> Result<Self, CliError> {
        let admin = lock.admin()?;
        let facts = lock.request(|| admin.facts(lock.timeout)).await?;
        Ok(Self { lock, facts })
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
        let Some(lock) = self.lock.lock() else {
            let message = "a leader for life keeps no checkpoint, and runs no jobs";
            return Err(CliError::new(Code::Usage, message));
        };
        Ok(lock.checkpoint(name, self.lock.timeout).await?)
    }

    /// Whether elections of the lock can have checkpoints.
    pub fn store_checkpoints(&self) -> bool {
        self.lock.lock().is_some_and(|lock| lock.checkpoints().is_some())
    }

    pub fn facts(&self) -> &LockFacts {
        &self.facts
    }

    /// Refuses a name that no election of the lock can have.
    pub fn check_name(&self, name: &str) -> Result<(), CliError> {
        check_name(name)?;
        (self.lock.name_rule)(name)
    }

    /// The last write to an election; `None` if there is none.
    pub async fn read(&self, name: &str) -> Result<Option<ElectionRecord>, CliError> {
        let admin = self.lock.admin()?;
        let record = self.lock.request(|| admin.record(name, self.lock.timeout)).await?;
        if record.is_none() {
            self.lock.check_exists().await?;
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
        let admin = self.lock.admin()?;
        let all = self.lock.request(|| admin.list(self.lock.timeout)).await?;
        if all.is_empty() {
            self.lock.check_exists().await?;
        }
        Ok(all)
    }

    /// How far the lock has been written, if one request shows it.
    pub async fn position(&self) -> Result<Option<Position>, CliError> {
        Ok(self.lock.admin()?.position(self.lock.timeout).await?)
    }

    /// All writes to an election that the lock still stores; `None` if that is only the last one.
    pub async fn stored(&self, name: &str) -> Result<Option<Vec<ElectionRecord>>, CliError> {
        Ok(self.lock.admin()?.stored(name, self.lock.timeout).await?)
    }

    /// Watches the named elections, or all if none is named. Others may be reported too.
    pub async fn watch<'a>(&'a self, names: &'a [String]) -> Result<Watcher<'a>, CliError> {
        Watcher::begin(self.lock.admin()?, names, self.lock.timeout).await
    }

    /// Sends a request to the candidates, and returns what they answer.
    pub async fn call_roll(
        &self,
        name: &str,
        request: CandidateRequest,
        within: Duration,
    ) -> Result<Vec<CandidateInfo>, CliError> {
        let lock = self.lock.calls.as_ref().map_err(|why| CliError::new(Code::Usage, why))?;
        let found = self.lock.request(|| lock.call_roll(name, request.clone(), within)).await?;
        if found.is_empty() {
            self.lock.check_exists().await?;
        }
        Ok(found)
    }

    /// Ends the holder's term. Returns whether it was evicted: not if the entry was written
    /// meanwhile. Later terms have higher revisions than the record.
    pub async fn evict(&self, record: &ElectionRecord) -> Result<bool, CliError> {
        let (name, admin) = (&record.election, self.lock.admin()?);
        match admin.evict(name, record.revision, self.lock.timeout).await {
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
        let of_host = || gethostname::gethostname().to_string_lossy().into_owned();
        self.lock.identity.clone().unwrap_or_else(of_host)
    }

    /// The longest wait of a successor of this holder; `None` if it is unknown.
    pub fn max_wait(&self, holder: &Holder) -> Option<Duration> {
        holder.lease.or(self.facts.max_lease)
    }

    /// Whether the leaders are pods that lead for life.
    pub fn are_for_life(&self) -> bool {
        self.lock.lock().is_none()
    }

    /// The problems of the lock; `None` if it has no check.
    pub async fn findings(&self) -> Result<Option<Vec<Finding>>, CliError> {
        Ok(self.lock.admin()?.diagnose(None, self.lock.timeout).await?)
    }

    /// The name of the bucket, the namespace or the lock.
    pub fn name(&self) -> &str {
        &self.lock.label.name
    }

    /// The lock, as a heading.
    pub fn title(&self) -> String {
        let LockLabel { noun, name, detail, .. } = &self.lock.label;
        format!("{noun} {}{detail}", output::bold(text::printable(name)))
    }

    /// The heading without the codes of a terminal.
    pub fn plain_title(&self) -> String {
        anstream::adapter::strip_str(&self.title()).to_string()
    }

    /// The lock, as JSON fields.
    pub fn json(&self) -> Map<String, Value> {
        let LockLabel { noun, name, fields, .. } = &self.lock.label;
        let named = (noun.to_lowercase(), name.as_str().into());
        let others = fields.iter().map(|(field, value)| ((*field).to_owned(), (*value).into()));
        others.chain([named]).collect()
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
