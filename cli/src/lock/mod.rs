//! The flags that select a lock: a bucket of NATS, objects of Kubernetes, or a URL.

pub mod elections;
mod given;
mod kind;
mod kubernetes;
pub mod nats;
mod secrets;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use clap::Args;
use incumbent::LockUrl;
use incumbent::kubernetes::Cluster;
use incumbent::lock::Lock;
use incumbent::lock_url::{KubernetesObjects, LockTarget};

use crate::error::{CliError, Code};
use crate::lock::nats::{BucketArgs, DEFAULT_TIMEOUT};
use given::{LockFlags, identifiers};

pub use kind::{Kind, LifeKind};
pub use kubernetes::{
    ElectionObjects, LifeObjects, NamespaceArgs, OpenedLock, check_life_name, timing,
};
pub use secrets::{withheld, withhold};

/// The name of an election that nobody uses, for checks of a lock.
pub const UNUSED_NAME: &str = "incumbent-doctor";

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
    #[arg(long, global = true, default_value = "nats", value_name = "LOCK", help_heading = "Lock")]
    lock: Redacted,
    #[command(flatten)]
    objects: LockFlags<kubernetes::KubernetesArgs>,
    #[command(flatten)]
    bucket: LockFlags<BucketArgs>,
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
#[derive(Debug, Default, Args)]
pub struct LeaseArgs {
    /// How long each write entitles the leader to lead, as in 5s or 1500ms: 1s to 1h, on a fast
    /// network from 200ms with NATS, a database or a quorum. With NATS, also the TTL of a bucket
    /// that is created, which is 1s or more [default: the bucket's TTL, 60s for a new one]. With
    /// Kubernetes, whole seconds [default: 15s]. In a database, also the maximum lease of tables
    /// that are created, likewise [default: the maximum of the tables, 60s].
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
    /// standby of each of this many queue groups, 1 to 15, instead of to every standby. Eight is a
    /// good number; 0: to every standby. A bucket that is created states the number, and candidates
    /// without this flag adopt it. In a URL, write `?queue-groups=8` behind the bucket.
    #[arg(long, value_name = "GROUPS", value_parser = clap::value_parser!(u8).range(..=15))]
    queue_groups: Option<u8>,
    /// Whether the elections of a set are opened: with Kubernetes, each has an object of its own.
    #[arg(skip)]
    pub is_set: bool,
}

/// The selected lock.
pub enum SelectedLock {
    /// Of elections with leases.
    Elections(ElectionLock),
    ForLife(LifeObjects),
}

/// The selected lock of elections with leases.
pub struct ElectionLock {
    pub url: LockUrl,
    /// Whether it was built from the flags of one kind of lock.
    pub is_of_flags: bool,
    /// The timeout of requests, if one is given.
    pub given_timeout: Option<Duration>,
    /// The API server of flags, whose configuration was usable when it was selected.
    cluster: Option<Cluster>,
}

impl LockArgs {
    /// The identifiers of its options, and the kind of lock that alone has each.
    pub fn options() -> Vec<(String, Option<&'static str>)> {
        let of = |kind| move |(id, is_shared): (String, bool)| (id, (!is_shared).then_some(kind));
        let objects = identifiers::<kubernetes::KubernetesArgs>().map(of("kubernetes"));
        let bucket = identifiers::<BucketArgs>().map(of("nats"));
        [("lock".to_owned(), None)].into_iter().chain(objects).chain(bucket).collect()
    }

    /// The selected lock, without a request to it.
    pub async fn at(&self) -> Result<SelectedLock, CliError> {
        self.select(&LeaseArgs::default()).await
    }

    async fn select(&self, args: &LeaseArgs) -> Result<SelectedLock, CliError> {
        let kind = LockKind::parse(&self.lock)?;
        self.check_flags(&kind, args)?;
        let given_timeout = self.given_timeout();
        let context = self.context_flag();
        let mut cluster = None;
        let (url, is_of_flags) = match kind {
            LockKind::Nats => {
                let mut bucket = self.bucket.flags.target()?;
                bucket.with_choria = args.with_choria;
                bucket.queue_groups = args.queue_groups;
                (bucket.into(), true)
            }
            LockKind::Kubernetes => match self.objects.flags.objects(context)? {
                Some(objects) => {
                    cluster = Some(self.objects.flags.namespace.open(context).await?);
                    (objects.into(), true)
                }
                None => {
                    let timeout = given_timeout.unwrap_or(DEFAULT_TIMEOUT);
                    let locks = self.objects.flags.for_life(context, timeout).await?;
                    return Ok(SelectedLock::ForLife(locks));
                }
            },
            LockKind::Url(url) => (url, false),
        };
        Ok(SelectedLock::Elections(ElectionLock { url, is_of_flags, given_timeout, cluster }))
    }

    /// Refuses flags of another kind of lock.
    fn check_flags(&self, kind: &LockKind, args: &LeaseArgs) -> Result<(), CliError> {
        let (nats, kubernetes) = (self.bucket.given.as_deref(), self.objects.given.as_deref());
        let object = args.object.as_ref().map(|_| "--object");
        let choria = args.with_choria.then_some("--with-choria");
        let groups = args.queue_groups.map(|_| "--queue-groups");
        let no_create = args.no_create.then_some("--no-create");
        let (of_nats, of_kubernetes) = match kind {
            LockKind::Nats => (None, kubernetes.or(object)),
            LockKind::Kubernetes => (nats.or(choria).or(groups).or(no_create), None),
            LockKind::Url(_) => (nats, kubernetes.or(object)),
        };
        let no_effect = |flag: &str, option: &str| {
            let message =
                format!("{flag} has no effect with a URL: write ?{option} behind the bucket's URL");
            Err(CliError::new(Code::Usage, message))
        };
        match (kind, of_kubernetes, of_nats, choria, groups) {
            (_, Some(flag), ..) => Err(misplaced(flag, "kubernetes")),
            (_, _, Some(flag), ..) => Err(misplaced(flag, "nats")),
            (LockKind::Url(_), _, _, Some(flag), _) => no_effect(flag, "with-choria"),
            (LockKind::Url(_), _, _, _, Some(flag)) => no_effect(flag, "queue-groups=8"),
            _ => Ok(()),
        }
    }

    /// Opens the lock for a candidate of the election `name`. While the server is unreachable it
    /// is tried again, as `attempts` says, and `on_retry` is called with each new reason.
    pub async fn open(
        &self,
        name: &str,
        args: &LeaseArgs,
        attempts: Attempts,
        mut on_retry: impl FnMut(&CliError),
    ) -> Result<OpenedLock, CliError> {
        check_name(name)?;
        let lock = match self.select(args).await? {
            SelectedLock::Elections(lock) => lock,
            SelectedLock::ForLife(_) => {
                let message =
                    "a leader for life has no lease: use `incumbent life`, or another --kind";
                return Err(CliError::new(Code::Usage, message));
            }
        };
        let timeout = lock.given_timeout;
        let retries = match attempts {
            Attempts::UnlessTimeout => timeout.is_none(),
            Attempts::One => false,
            Attempts::Many => true,
        };
        // A server that is tried once has to answer in time.
        let limit = timeout.or((attempts == Attempts::One).then_some(DEFAULT_TIMEOUT));
        let mut last = None;
        (|| lock.open(name, args, limit.unwrap_or(Duration::MAX)))
            .retry(ATTEMPTS)
            .when(|failure| retries && failure.code() == Some(Code::Unreachable))
            .notify(|failure, _| {
                let why = failure.to_string();
                if last.as_ref() != Some(&why) {
                    on_retry(failure);
                }
                last = Some(why);
            })
            .await
    }

    /// Opens the lock of an election that others have created: nothing is created. `object`: as
    /// with `--object`.
    pub async fn open_existing(
        &self,
        name: &str,
        object: Option<String>,
        attempts: Attempts,
        on_retry: impl FnMut(&CliError),
    ) -> Result<Arc<dyn Lock>, CliError> {
        let no_create = !self.is_per_election();
        let args = LeaseArgs { no_create, object, ..LeaseArgs::default() };
        Ok(self.open(name, &args, attempts, on_retry).await?.lock)
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
        let context = self.context_flag().filter(|_| matches!(kind, LockKind::Kubernetes));
        self.objects.flags.namespace.open(context).await
    }

    /// Whether a program runs for the credentials of the lock, as by `exec` of a kubeconfig.
    pub async fn runs_a_program(&self) -> bool {
        let context = self.context_flag();
        let all: Vec<KubernetesObjects> = match LockKind::parse(&self.lock) {
            Ok(LockKind::Kubernetes) => {
                self.objects.flags.objects(context).ok().flatten().into_iter().collect()
            }
            Ok(LockKind::Url(url)) => {
                let named = url.targets().into_iter().filter_map(|lock| lock.named.ok());
                let objects = named.filter_map(|target| match target {
                    LockTarget::Kubernetes(objects) => Some(objects),
                    _ => None,
                });
                objects.collect()
            }
            Ok(LockKind::Nats) | Err(_) => return false,
        };
        for objects in all {
            if objects.runs_a_program().await {
                return true;
            }
        }
        false
    }

    /// How long a request may take.
    pub fn request_timeout(&self) -> Duration {
        self.given_timeout().unwrap_or(DEFAULT_TIMEOUT)
    }

    /// The timeout of requests, if one is given. The flag is one of every lock, the variable of
    /// NATS alone.
    fn given_timeout(&self) -> Option<Duration> {
        let connection = &self.bucket.flags.connection;
        match LockKind::parse(&self.lock) {
            Ok(LockKind::Nats) => connection.explicit_timeout(),
            _ => connection.timeout,
        }
    }

    /// The context of the flag, which is not specific to NATS.
    fn context_flag(&self) -> Option<&str> {
        self.bucket.flags.connection.context.as_deref()
    }

    /// Whether each election has a lock object of its own.
    pub fn is_per_election(&self) -> bool {
        matches!(LockKind::parse(&self.lock), Ok(LockKind::Kubernetes))
    }
}

impl ElectionLock {
    /// What the flags of one kind of lock select.
    pub fn of_flags(&self) -> Option<LockTarget> {
        self.url.targets().pop().filter(|_| self.is_of_flags)?.named.ok()
    }

    /// How long a request may take.
    pub fn timeout(&self) -> Duration {
        self.given_timeout.unwrap_or(DEFAULT_TIMEOUT)
    }

    /// The objects of one of its targets, without a request.
    pub async fn objects(&self, named: KubernetesObjects) -> Result<ElectionObjects, CliError> {
        let cluster = match &self.cluster {
            Some(cluster) => cluster.clone(),
            None => named.cluster().await?,
        };
        Ok(ElectionObjects::new(named, cluster, self.timeout()))
    }

    /// `limit`: how long the lock of a URL may take to open.
    async fn open(
        &self,
        name: &str,
        args: &LeaseArgs,
        limit: Duration,
    ) -> Result<OpenedLock, CliError> {
        if let Some(LockTarget::Kubernetes(objects)) = self.of_flags() {
            let objects = self.objects(objects).await?;
            return objects.open_lock(name, args.object.as_deref(), args.lease, args.is_set).await;
        }
        let mut url = self.url.clone();
        if let Some(lease) = args.lease {
            url = url.with_lease(lease);
        }
        if args.no_create {
            url = url.without_create();
        }
        // The connection to a bucket of flags has the timeout of requests.
        let limit = if self.is_of_flags { Duration::MAX } else { limit };
        let lock = open_within(&url, limit).await?;
        // These open without a request: a person learns here that the store does not respond.
        let target = url.targets().pop().and_then(|target| target.named.ok());
        if lock.members().is_none()
            && matches!(target, Some(LockTarget::Etcd(_) | LockTarget::Objects(_)))
        {
            lock.read(name, self.timeout()).await?;
        }
        let known = lock.timing().lease;
        let lease = args.lease.or(known).unwrap_or(lock.capabilities().max_lease);
        let lease_override = args.lease.filter(|lease| known != Some(*lease));
        Ok(OpenedLock { lock, lease, lease_override })
    }
}

impl LeaseArgs {
    /// These arguments for the elections of a set. Flags that do not apply to them are refused.
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
            let waited = crate::output::time_format::span(timeout);
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
    let message = match name {
        "" => "the name of the election is empty: name one, as in my_app".to_owned(),
        _ => format!(
            "{name:?} is not a valid election name: use ASCII letters, digits, - _ / = and dots inside"
        ),
    };
    Err(CliError::new(Code::Usage, message))
}
