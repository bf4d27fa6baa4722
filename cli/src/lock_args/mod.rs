//! Where elections are held: in a bucket of NATS, in objects of Kubernetes, or where a URL says.

mod kind;
mod kubernetes;
mod name;
mod opened;
#[cfg(target_os = "linux")]
mod secrets;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use clap::Args;
use incumbent::LockUrl;
use incumbent::lock::Lock;

use crate::error::{CliError, Code};
use crate::nats::BucketArgs;

pub use kind::{Kind, LifeKind};
pub use kubernetes::{
    ElectionObjects, KubernetesLock, LifeObjects, NamespaceArgs, Records, check_life_name,
    namespace_is_there, timing,
};
pub use name::{check_name, is_key};
pub use opened::OpenedLock;

/// When to look again for a server that is out of reach.
const ATTEMPTS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(250))
    .with_max_delay(Duration::from_secs(5))
    .without_max_times()
    .with_jitter();

/// Where the elections are held. What only the other lock understands is refused, not ignored.
#[derive(Debug, Args)]
pub struct LockArgs {
    /// What the elections are held with: `nats`, `kubernetes`, or a URL.
    ///
    /// `nats`: entries of a NATS key-value bucket, which the flags below name. `kubernetes`: objects of a namespace, as
    /// client-go's campaigners use them. `sqlite:PATH`: a file, for the processes of this machine; it needs no server.
    /// `postgres://USER@HOST:PORT/DATABASE`: a database; tell its password in PGPASSWORD or ~/.pgpass, for a command line is
    /// no place for it. `nats://HOST/BUCKET` and `kubernetes:NAMESPACE` say in one word what the flags say. Several
    /// URLs with blanks between them are all held by whoever leads, in this order; a `?need=best-effort` behind one lets a term go on
    /// without it. What else may stand behind a question mark: docs.rs/incumbent, lock_url.
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

/// What was told, which may have a password.
#[derive(Clone)]
struct Redacted(String);

impl From<&str> for Redacted {
    fn from(told: &str) -> Self {
        Self(told.to_owned())
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
                    "--lock {other:?}: it is nats, kubernetes, or a URL as sqlite:PATH is one"
                );
                Err(CliError::new(Code::Usage, message))
            }
            url => Ok(Self::Url(url.parse()?)),
        }
    }
}

/// How a lock is used by those who stand.
#[derive(Debug, Args)]
pub struct LeaseArgs {
    /// How long one write entitles to lead, as in 5s or 500ms. With NATS it is the TTL of a bucket that is made, too
    /// [default: the bucket's TTL, 60s for one that is made]. With Kubernetes it is whole seconds [default: 15s]. In a
    /// database it is the longest lease of tables that are made, too [default: the longest of the tables, 60s].
    #[arg(long, value_parser = humantime::parse_duration)]
    pub lease: Option<Duration>,
    /// Use the bucket of NATS, or the tables of a database, only if they are there; else they are made.
    #[arg(long)]
    no_create: bool,
    /// With Kubernetes: the object of the election [default: NAME, which must then be the name of an object].
    #[arg(long, value_name = "NAME")]
    object: Option<String>,
    /// With NATS: Choria's candidates take part in the election. Give it to every candidate of this program; in a URL write
    /// `?with-choria` behind the bucket.
    #[arg(long)]
    with_choria: bool,
}

/// The lock that was chosen.
pub enum SelectedLock<'a> {
    Nats(&'a BucketArgs),
    Kubernetes(ElectionObjects),
    ForLife(LifeObjects),
    /// With how long to wait for an answer, where that is told.
    Url(LockUrl, Option<Duration>),
}

impl LockArgs {
    /// The lock that was chosen; asks nobody.
    pub async fn at(&self) -> Result<SelectedLock<'_>, CliError> {
        match LockKind::parse(&self.lock)? {
            LockKind::Nats => match self.objects.given() {
                Some(flag) => Err(misplaced(flag, "kubernetes")),
                None => Ok(SelectedLock::Nats(&self.bucket)),
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

    /// Opens the lock to stand in the election `name`. Unless `--timeout` is told, a server that is out of reach is
    /// waited for, and `waits` hears why.
    pub async fn open(
        &self,
        name: &str,
        how: &LeaseArgs,
        mut waits: impl FnMut(&CliError),
    ) -> Result<OpenedLock, CliError> {
        check_name(name)?;
        let at = self.at().await?;
        let patient = match &at {
            SelectedLock::Nats(args) => args.told_timeout().is_none(),
            SelectedLock::Kubernetes(_) | SelectedLock::ForLife(_) | SelectedLock::Url(..) => {
                self.bucket.timeout_flag().is_none()
            }
        };
        (|| at.open(name, how))
            .retry(ATTEMPTS)
            .when(|failure| patient && failure.code() == Some(Code::Unreachable))
            .notify(|failure, _| waits(failure))
            .await
    }
}

impl SelectedLock<'_> {
    async fn open(&self, name: &str, how: &LeaseArgs) -> Result<OpenedLock, CliError> {
        match self {
            Self::Nats(_) | Self::Url(..) if how.object.is_some() => {
                Err(misplaced("--object", "kubernetes"))
            }
            Self::Url(..) if how.with_choria => {
                let message = "--with-choria says nothing with a URL: write ?with-choria behind that of the bucket";
                Err(CliError::new(Code::Usage, message))
            }
            Self::Kubernetes(_) if how.with_choria => Err(misplaced("--with-choria", "nats")),
            Self::Kubernetes(_) if how.no_create => Err(misplaced("--no-create", "nats")),
            Self::Nats(args) => {
                let bucket = args.open(how.lease, how.no_create).await?;
                let lease = how.lease.unwrap_or(bucket.ttl());
                let lock = Arc::new(bucket.lock());
                Ok(OpenedLock { lock, lease, told: how.lease, with_choria: how.with_choria })
            }
            Self::Kubernetes(objects) => {
                objects.stand(name, how.object.as_deref(), how.lease).await
            }
            Self::Url(url, timeout) => {
                let mut url = url.clone();
                if let Some(lease) = how.lease {
                    url = url.for_lease(lease);
                }
                if how.no_create {
                    url = url.make_nothing();
                }
                let lock = open_within(&url, timeout.unwrap_or(Duration::MAX)).await?;
                let known = lock.timing().lease;
                let lease = how.lease.or(known).unwrap_or(lock.capabilities().longest_lease);
                let told = how.lease.filter(|told| known != Some(*told));
                Ok(OpenedLock { lock, lease, told, with_choria: false })
            }
            // Whoever stands for life does not come here.
            Self::ForLife(_) => {
                Err(CliError::new(Code::Usage, "a leader for life has no lease to stand with"))
            }
        }
    }
}

impl LeaseArgs {
    /// A flag that says something of leases.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [
            ("--lease", self.lease.is_some()),
            ("--no-create", self.no_create),
            ("--object", self.object.is_some()),
            ("--with-choria", self.with_choria),
        ];
        flags.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
    }
}

/// Opens what a URL names, within that time.
pub async fn open_within(url: &LockUrl, timeout: Duration) -> Result<Arc<dyn Lock>, CliError> {
    match tokio::time::timeout(timeout, url.open()).await {
        Ok(opened) => Ok(opened?),
        Err(_) => {
            let waited = crate::time_format::span(timeout);
            let message = format!(
                "{url}: no answer within {waited}: the server is slow or out of reach; see --timeout"
            );
            Err(CliError::new(Code::Unreachable, message))
        }
    }
}

/// A flag that only another lock understands.
pub fn misplaced(flag: &str, belongs: &str) -> CliError {
    CliError::new(Code::Usage, format!("{flag} says nothing without --lock {belongs}"))
}
