//! The flags that select a lock: a bucket of NATS, objects of Kubernetes, or a URL.

mod kind;
mod kubernetes;
mod secrets;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use clap::Args;
use incumbent::LockUrl;
use incumbent::kubernetes::Cluster;
use incumbent::lock::Lock;
use incumbent::lock_url::{LockTarget, NatsBucket};

use crate::error::{CliError, Code};
use crate::nats::{BucketArgs, DEFAULT_TIMEOUT};

pub use kind::{Kind, LifeKind};
pub use kubernetes::{
    ElectionObjects, KubernetesLock, LifeObjects, NamespaceArgs, OpenedLock, Records,
    check_life_name, namespace_is_there, timing,
};

/// Backoff while a server is unreachable.
const ATTEMPTS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(250))
    .with_max_delay(Duration::from_secs(5))
    .without_max_times()
    .with_jitter();

/// The lock of the elections. A flag of another kind of lock is refused, not ignored.
#[derive(Debug, Clone, Args)]
pub struct LockArgs {
    /// The lock of the elections: `nats`, `kubernetes`, or a URL.
    ///
    /// `nats`: entries of a NATS key-value bucket, which the flags below select. `kubernetes`:
    /// objects of a namespace, as client-go uses them. `sqlite:PATH`: a file, for the processes of
    /// this machine; no server is needed. `postgres://USER@HOST:PORT/DATABASE`: a database; put
    /// its password into PGPASSWORD or ~/.pgpass, not on the command line.
    /// `nats://HOST/BUCKET` and `kubernetes:NAMESPACE` replace the flags. Separate several
    /// URLs by blanks: the leader holds all of them, in this order; with `?need=best-effort`
    /// behind a URL, a term continues without that lock. Other URL options: docs.rs/incumbent,
    /// lock_url.
    #[arg(
        long,
        env = "INCUMBENT_LOCK",
        global = true,
        default_value = "nats",
        value_name = "LOCK",
        hide_env_values = true,
        help_heading = "Lock"
    )]
    lock: Redacted,
    #[command(flatten)]
    objects: kubernetes::KubernetesArgs,
    #[command(flatten)]
    bucket: BucketArgs,
}

/// The value of `--lock`, which may contain a password.
#[derive(Clone)]
struct Redacted(String);

impl From<&str> for Redacted {
    fn from(value: &str) -> Self {
        Self(value.to_owned())
    }
}

impl fmt::Debug for Redacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[derive(Debug)]
enum LockKind {
    Nats,
    Kubernetes,
    Url(LockUrl),
}

impl LockKind {
    fn parse(Redacted(text): &Redacted) -> Result<Self, CliError> {
        match &**text {
            "nats" => Ok(Self::Nats),
            "kubernetes" => Ok(Self::Kubernetes),
            other if !other.contains(':') => {
                let message = format!(
                    "unknown --lock {other:?}: use nats, kubernetes, or a URL such as sqlite:PATH"
                );
                Err(CliError::new(Code::Usage, message))
            }
            url => Ok(Self::Url(url.parse()?)),
        }
    }
}

/// How often a server that is unreachable is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempts {
    /// Until it is reached; once, if the timeout of requests is given.
    UnlessTimeout,
    One,
    /// Until it is reached.
    Many,
}

/// How candidates use the lock.
#[derive(Debug, Args)]
pub struct LeaseArgs {
    /// How long each write entitles the leader to lead, as in 5s or 1500ms: 1s to 1h. With NATS,
    /// also the TTL of a bucket that is created [default: the bucket's TTL, 60s for a new one].
    /// With Kubernetes, whole seconds [default: 15s]. In a database, also the maximum lease of
    /// tables that are created [default: the maximum of the tables, 60s].
    #[arg(long, value_parser = humantime::parse_duration)]
    pub lease: Option<Duration>,
    /// Do not create a missing NATS bucket or missing database tables.
    #[arg(long)]
    no_create: bool,
    /// With Kubernetes: the object of the election [default: NAME, which must then be a valid
    /// object name].
    #[arg(long, value_name = "NAME")]
    pub object: Option<String>,
    /// With NATS: Choria's candidates take part in the election. Set it on every candidate of this
    /// program; in a URL, write `?with-choria` behind the bucket.
    #[arg(long)]
    with_choria: bool,
    /// With NATS, for hundreds of standbys and more: the server delivers each renewal to one
    /// standby of each of so many queue groups, 1 to 15, instead of to every standby. Eight is a
    /// good number. In a URL, write `?queue-groups=8` behind the bucket.
    #[arg(long, value_name = "GROUPS", value_parser = clap::value_parser!(u8).range(1..=15))]
    queue_groups: Option<u8>,
    /// Whether the elections of a set are opened: with Kubernetes, each has an object of its own.
    #[arg(skip)]
    pub is_set: bool,
}

/// The selected lock.
pub enum SelectedLock {
    Nats(Box<NatsBucket>),
    Kubernetes(ElectionObjects),
    ForLife(LifeObjects),
    /// With the timeout of requests, if one is given.
    Url(LockUrl, Option<Duration>),
}

impl LockArgs {
    /// The selected lock, without a request to it.
    pub async fn at(&self) -> Result<SelectedLock, CliError> {
        match LockKind::parse(&self.lock)? {
            LockKind::Nats => match self.objects.given() {
                Some(flag) => Err(misplaced(flag, "kubernetes")),
                None => Ok(SelectedLock::Nats(Box::new(self.bucket.target()?))),
            },
            LockKind::Kubernetes => match self.bucket.given() {
                Some(flag) => Err(misplaced(flag, "nats")),
                None => {
                    let (context, timeout) =
                        (self.bucket.context_flag(), self.bucket.timeout_flag());
                    Ok(match self.objects.open(context, timeout).await? {
                        KubernetesLock::Elections(objects) => SelectedLock::Kubernetes(objects),
                        KubernetesLock::ForLife(locks) => SelectedLock::ForLife(locks),
                    })
                }
            },
            LockKind::Url(url) => match (self.objects.given(), self.bucket.given()) {
                (Some(flag), _) => Err(misplaced(flag, "kubernetes")),
                (_, Some(flag)) => Err(misplaced(flag, "nats")),
                (None, None) => Ok(SelectedLock::Url(url, self.bucket.timeout_flag())),
            },
        }
    }

    /// Opens the lock for a candidate of the election `name`. While the server is unreachable it
    /// is tried again, as `attempts` says, and `on_retry` is called with each reason.
    pub async fn open(
        &self,
        name: &str,
        args: &LeaseArgs,
        attempts: Attempts,
        mut on_retry: impl FnMut(&CliError),
    ) -> Result<OpenedLock, CliError> {
        check_name(name)?;
        let at = self.at().await?;
        let timeout = self.given_timeout();
        let retries = match attempts {
            Attempts::UnlessTimeout => timeout.is_none(),
            Attempts::One => false,
            Attempts::Many => true,
        };
        // A server that is tried once has to answer in time.
        let limit = timeout.or((attempts == Attempts::One).then_some(DEFAULT_TIMEOUT));
        (|| at.open(name, args, limit.unwrap_or(Duration::MAX)))
            .retry(ATTEMPTS)
            .when(|failure| retries && failure.code() == Some(Code::Unreachable))
            .notify(|failure, _| on_retry(failure))
            .await
    }

    /// The same for an election that others have created: nothing is created. `object`: as with
    /// `--object`.
    pub async fn open_existing(
        &self,
        name: &str,
        object: Option<String>,
        on_retry: impl FnMut(&CliError),
    ) -> Result<Arc<dyn Lock>, CliError> {
        let no_create = !self.is_per_election();
        let args = LeaseArgs {
            lease: None,
            no_create,
            object,
            with_choria: false,
            queue_groups: None,
            is_set: false,
        };
        Ok(self.open(name, &args, Attempts::UnlessTimeout, on_retry).await?.lock)
    }

    /// The API server and the namespace of what follows the leader: those of a lock on Kubernetes,
    /// else those of this pod or of the kubeconfig.
    pub async fn cluster(&self) -> Result<Cluster, CliError> {
        let kind = LockKind::parse(&self.lock)?;
        if let LockKind::Url(url) = &kind {
            for lock in url.targets() {
                if let Ok(LockTarget::Kubernetes(objects)) = lock.named {
                    return Ok(objects.cluster().await?);
                }
            }
        }
        let context = self.bucket.context_flag().filter(|_| matches!(kind, LockKind::Kubernetes));
        self.objects.namespace.open(context).await
    }

    /// How long a request may take.
    pub fn request_timeout(&self) -> Duration {
        self.given_timeout().unwrap_or(DEFAULT_TIMEOUT)
    }

    /// The timeout of requests, if one is given. The variable is specific to NATS.
    fn given_timeout(&self) -> Option<Duration> {
        match LockKind::parse(&self.lock) {
            Ok(LockKind::Nats) => self.bucket.explicit_timeout(),
            _ => self.bucket.timeout_flag(),
        }
    }

    /// Whether each election has a lock object of its own.
    pub fn is_per_election(&self) -> bool {
        matches!(LockKind::parse(&self.lock), Ok(LockKind::Kubernetes))
    }
}

impl SelectedLock {
    /// `limit`: how long the lock of a URL may take to open.
    async fn open(
        &self,
        name: &str,
        args: &LeaseArgs,
        limit: Duration,
    ) -> Result<OpenedLock, CliError> {
        match self {
            Self::Nats(_) | Self::Url(..) if args.object.is_some() => {
                Err(misplaced("--object", "kubernetes"))
            }
            Self::Url(..) if args.with_choria => {
                let message = "--with-choria has no effect with a URL: write ?with-choria behind the bucket's URL";
                Err(CliError::new(Code::Usage, message))
            }
            Self::Url(..) if args.queue_groups.is_some() => {
                let message = "--queue-groups has no effect with a URL: write ?queue-groups=8 behind the bucket's URL";
                Err(CliError::new(Code::Usage, message))
            }
            Self::Kubernetes(_) if args.with_choria => Err(misplaced("--with-choria", "nats")),
            Self::Kubernetes(_) if args.queue_groups.is_some() => {
                Err(misplaced("--queue-groups", "nats"))
            }
            Self::Kubernetes(_) if args.no_create => Err(misplaced("--no-create", "nats")),
            Self::Nats(bucket) => {
                let mut bucket = NatsBucket::clone(bucket);
                bucket.with_choria = args.with_choria;
                bucket.queue_groups = args.queue_groups.unwrap_or(0);
                // Its connection has the timeout of requests.
                open_url(bucket.into(), args, Duration::MAX).await
            }
            Self::Kubernetes(objects) => {
                objects.open_lock(name, args.object.as_deref(), args.lease, args.is_set).await
            }
            Self::Url(url, _) => open_url(url.clone(), args, limit).await,
            Self::ForLife(_) => Err(CliError::new(
                Code::Usage,
                "a leader for life has no lease: use `incumbent life`, or another --kind",
            )),
        }
    }
}

async fn open_url(
    mut url: LockUrl,
    args: &LeaseArgs,
    limit: Duration,
) -> Result<OpenedLock, CliError> {
    if let Some(lease) = args.lease {
        url = url.with_lease(lease);
    }
    if args.no_create {
        url = url.without_create();
    }
    let lock = open_within(&url, limit).await?;
    let known = lock.timing().lease;
    let lease = args.lease.or(known).unwrap_or(lock.capabilities().max_lease);
    let lease_override = args.lease.filter(|lease| known != Some(*lease));
    Ok(OpenedLock { lock, lease, lease_override })
}

impl LeaseArgs {
    /// The same for the elections of a set. Flags that do not apply to them are refused.
    pub fn of_set(mut self) -> Result<Self, CliError> {
        let flags = [
            ("--object", self.object.is_some()),
            ("--with-choria", self.with_choria),
            ("--queue-groups", self.queue_groups.is_some()),
        ];
        if let Some((flag, _)) = flags.into_iter().find(|(_, given)| *given) {
            let message = format!("{flag} cannot be used with several leaders");
            return Err(CliError::new(Code::Usage, message));
        }
        self.is_set = true;
        Ok(self)
    }
}

/// Opens the lock of a URL within `timeout`.
pub async fn open_within(url: &LockUrl, timeout: Duration) -> Result<Arc<dyn Lock>, CliError> {
    match tokio::time::timeout(timeout, url.open()).await {
        Ok(opened) => Ok(opened?),
        Err(_) => {
            let waited = crate::time_format::span(timeout);
            let message = format!(
                "{url}: no response within {waited}: the server is slow or unreachable; see --timeout"
            );
            Err(CliError::new(Code::Unreachable, message))
        }
    }
}

/// The error for a flag that leaders for life do not have.
pub fn not_for_life(flag: &str) -> CliError {
    CliError::new(Code::Usage, format!("{flag} cannot be used with --kind for-life"))
}

/// The error for a flag of another lock.
pub fn misplaced(flag: &str, lock: &str) -> CliError {
    CliError::new(Code::Usage, format!("{flag} requires --lock {lock}"))
}

/// Whether the text is a valid key of a NATS bucket.
pub fn is_key(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-/_=.".contains(&b);
    let dots = text.starts_with('.') || text.ends_with('.') || text.contains("..");
    !text.is_empty() && !dots && text.bytes().all(fits)
}

/// Refuses an invalid election name. With NATS it is a key of the bucket, and all locks have this
/// rule.
pub fn check_name(name: &str) -> Result<(), CliError> {
    if is_key(name) {
        return Ok(());
    }
    let message = format!("{name:?} is not a valid election name: use no blanks and no wildcards");
    Err(CliError::new(Code::Usage, message))
}
