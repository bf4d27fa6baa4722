//! Locks named by URLs, for programs that leave the choice to their configuration.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use incumbent::{LockUrl, new_election};
//!
//! let url: LockUrl = "memory:my_fleet?ttl=10s".parse()?; // or from a variable: nats://nats.example.net/MY_BUCKET
//! let election = new_election("my_app", url.open().await?).start()?;
//! # let leadership = election.won().await?;
//! # drop(leadership);
//! # election.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! # The URLs
//! | URL | lock | feature | options |
//! |---|---|---|---|
//! | `nats://[USER[:PASSWORD]@]HOST[:PORT][,HOST…][/BUCKET]`, also `tls://` | [`nats`](crate::nats) | `nats` | `ttl`, `create=no`, `with-choria`, `queue-groups`, `domain`, `inbox-prefix`, `creds=FILE`, `ca=FILE` |
//! | `kubernetes:[NAMESPACE]` | [`kubernetes`](crate::kubernetes) | `kubernetes` | `kind=lease`, `configmap` or `endpoints`; `object`, `lease`, `kubeconfig=FILE`, `context` |
//! | `postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE` | `sql` | `postgres` | `create=no`, `max-lease`, `polling`, and those of the connection, as `sslmode` and `sslrootcert` |
//! | `sqlite:PATH` | `sql` | `sqlite` | `create=no`, `max-lease` |
//! | `gs://BUCKET[/PREFIX]`, `s3://…`, `az://…` | `objects` | `gcs`, `s3`, `azure` | `max-lease`, `max-clock-skew`, `allow-http`; credentials and the rest from the environment |
//! | `etcd://[USER[:PASSWORD]@]HOST[:PORT][,HOST…][/PREFIX]`, with TLS `etcds://` | [`etcd`](crate::etcd) | `etcd` | `max-lease`; with TLS `ca=FILE`, `cert=FILE` and `cert-key=FILE`; the password may be in the variable `ETCDCTL_PASSWORD` |
//! | `peer:[ADDRESS:]PORT` | `peer` | `peer` | `quorum`, which is required; `peers=ADDRESS:PORT,…`, `dns=HOST:PORT`, `id`, `voters=ID,…`, `lease`, `key-file=FILE` (else the variable `INCUMBENT_PEER_KEY_FILE`) |
//! | `memory:[NAME]` | [`memory`](crate::memory): one per name in the whole process | | `ttl` |
//!
//! Options follow a `?`, separated by `&`: `kubernetes:prod?kind=configmap&object=my-app`.
//! Durations are written as `10s` or `500ms`. Any character other than a letter, a digit or one of
//! `-._~/:,` is percent-encoded, in passwords too.
//!
//! **Several URLs separated by blanks** are [`all_of`] their locks, in this order:
//! `kubernetes:prod?object=my-app nats://nats.example.net/MY_BUCKET?need=best-effort`. `need` is
//! `required`, the default, or `best-effort`.

mod error;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod memory;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "_objects")]
mod objects;
#[allow(dead_code, reason = "each store takes some of it")]
mod parts;
#[cfg(feature = "peer")]
mod peer;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod sql;
#[allow(dead_code, reason = "each store uses some of it")]
mod target;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::lock::multi::all_of;
use crate::lock::{Lock, LockMember, Need};

pub use error::{LockUrlError, LockUrlErrorKind};
#[cfg(feature = "kubernetes")]
pub use kubernetes::{KubernetesObjects, ObjectKind};
#[cfg(feature = "nats")]
pub use nats::NatsBucket;
use parts::Parts;
#[cfg(feature = "peer")]
pub use peer::PeerGroup;
use target::{OpenOptions, StoreTarget};

/// The name of a lock, or of several locks that act as one: see the [module](mod@crate::lock_url).
///
/// The URL is parsed and checked as a whole; no request is sent before [`open`](Self::open).
/// `Display` and `Debug` hide secrets.
///
/// ```
/// # fn main() -> Result<(), incumbent::lock_url::LockUrlError> {
/// let both: incumbent::LockUrl = "memory:old memory:new?need=best-effort".parse()?;
/// assert!("memory:old?tll=10s".parse::<incumbent::LockUrl>().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LockUrl {
    members: Vec<Member>,
    options: OpenOptions,
}

/// Member URL of a [`LockUrl`].
#[derive(Debug, Clone)]
struct Member {
    target: Target,
    need: Need,
    /// Without secrets.
    shown: String,
}

impl LockUrl {
    /// Sets the lease for which [`open`](Self::open) creates a missing bucket or missing tables, a
    /// second or more, and the timing of a Kubernetes Lease. Existing buckets and tables stay as
    /// they are. The election's [`lease`](crate::ElectionBuilder::lease) is a separate setting.
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.options.lease = Some(lease);
        self
    }

    /// Behaves as if each URL had `create=no`: [`open`](Self::open) creates neither a bucket nor
    /// tables, and fails if they are missing; a peer has no vote, and does not use the port and the
    /// identifier of its URL. For read-only use.
    pub fn without_create(mut self) -> Self {
        self.options.create = false;
        self
    }

    fn of(members: Vec<Member>) -> Self {
        Self { members, options: OpenOptions { lease: None, create: true, may_wait: false } }
    }

    /// Returns what each URL names, in order, for inspection. Sends no request.
    pub fn targets(&self) -> Vec<UrlTarget> {
        let targets = self.members.iter().map(|one| UrlTarget {
            shown: one.shown.clone(),
            need: one.need,
            named: one.target.named(self.options),
        });
        targets.collect()
    }

    /// Returns the environment variables with credentials that [`open`](Self::open) reads, or that
    /// name files with them. A program that starts others withholds them.
    pub fn credential_variables(&self) -> impl Iterator<Item = &'static str> {
        self.members.iter().flat_map(|one| one.target.credential_variables()).copied()
    }

    /// Opens the lock.
    ///
    /// For NATS, `open` requests the bucket from a server, and creates it if it does not exist,
    /// unless the URL sets the `ttl`: then no request is sent, the server may be unreachable, and
    /// that TTL times the elections. A bucket on best effort that cannot be opened is opened later,
    /// with the TTL of the [lease](Self::with_lease), or a minute. For a database, `open` queries
    /// the tables, and creates them if they do not exist. For a Kubernetes API server, an object
    /// store and etcd, `open` sends no request. A peer starts to listen, and leaves its group with
    /// the last clone of the returned lock.
    ///
    /// # Errors
    /// [`LockUrlErrorKind::Unavailable`], if retrying may help;
    /// [`Denied`](LockUrlErrorKind::Denied), [`Missing`](LockUrlErrorKind::Missing) and
    /// [`Unusable`](LockUrlErrorKind::Unusable), if it does not.
    ///
    /// # Cancel safety
    /// A bucket may be left behind.
    pub async fn open(&self) -> Result<Arc<dyn Lock>, LockUrlError> {
        if let [Member { target, need: Need::Required, .. }] = &self.members[..] {
            return target.open(self.options).await;
        }
        let mut members = Vec::with_capacity(self.members.len());
        for Member { target, need, .. } in &self.members {
            // What only reads and releases states no lease: it waits for that of the bucket.
            let times = self.options.create || self.options.lease.is_some();
            let may_wait = *need == Need::BestEffort && times;
            let options = OpenOptions { may_wait, ..self.options };
            members.push(LockMember::new(target.open(options).await?, *need));
        }
        Ok(Arc::new(all_of(members)))
    }
}

#[cfg(feature = "nats")]
impl From<NatsBucket> for LockUrl {
    fn from(bucket: NatsBucket) -> Self {
        let (need, shown) = (Need::Required, bucket.shown.clone());
        Self::of(vec![Member { target: Target::Nats(Box::new(bucket)), need, shown }])
    }
}

#[cfg(feature = "kubernetes")]
impl From<KubernetesObjects> for LockUrl {
    fn from(objects: KubernetesObjects) -> Self {
        let (need, shown) = (Need::Required, objects.shown.clone());
        Self::of(vec![Member { target: Target::Kubernetes(Box::new(objects)), need, shown }])
    }
}

impl FromStr for LockUrl {
    type Err = LockUrlError;

    fn from_str(text: &str) -> Result<Self, LockUrlError> {
        let mut url = Self::of(Vec::new());
        for word in text.split_ascii_whitespace() {
            let mut parts = Parts::of(word)?;
            let need = match parts.take("need").as_deref() {
                None | Some("required") => Need::Required,
                Some("best-effort") => Need::BestEffort,
                Some(_) => return Err(parts.malformed("need is required or best-effort")),
            };
            let target = Target::parse(&mut parts)?;
            parts.check_all_taken()?;
            url.members.push(Member { target, need, shown: parts.shown().to_owned() });
        }
        if url.members.iter().any(|one| one.need == Need::Required) {
            return Ok(url);
        }
        Err(LockUrlError::malformed(match url.members.is_empty() {
            true => "no lock is named: give a URL, as in nats://localhost/MY_BUCKET".to_owned(),
            false => {
                format!("{url}: no lock is required, and nothing would keep two leaders apart")
            }
        }))
    }
}

impl fmt::Display for LockUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, one) in self.members.iter().enumerate() {
            let blank = if number == 0 { "" } else { " " };
            write!(f, "{blank}{}", one.shown)?;
        }
        Ok(())
    }
}

impl fmt::Debug for LockUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockUrl({self})")
    }
}

/// Member of the URLs of a [`LockUrl`].
#[derive(Debug)]
#[non_exhaustive]
pub struct UrlTarget {
    /// The URL, without secrets.
    pub shown: String,
    /// Whether a term requires this lock.
    pub need: Need,
    /// The target of the URL; an error if its settings, or those of the environment, are unusable.
    pub named: Result<LockTarget, LockUrlError>,
}

/// The target of one URL, not opened: nothing was created, and no request was sent.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockTarget {
    /// A lock of this process.
    Memory,
    /// A bucket of NATS.
    #[cfg(feature = "nats")]
    Nats(Box<NatsBucket>),
    /// The objects of a Kubernetes namespace.
    #[cfg(feature = "kubernetes")]
    Kubernetes(KubernetesObjects),
    /// A PostgreSQL database.
    #[cfg(feature = "postgres")]
    Postgres {
        /// A connection for inspection.
        probe: crate::backends::sql::PostgresProbe,
        /// Whether to create tables, and for which lease.
        tables: crate::backends::sql::TableSetup,
    },
    /// A SQLite file.
    #[cfg(feature = "sqlite")]
    Sqlite {
        /// The path of the file.
        path: std::path::PathBuf,
        /// Whether to create the file and its tables, and for which lease.
        tables: crate::backends::sql::TableSetup,
    },
    /// Objects of a bucket.
    #[cfg(feature = "_objects")]
    Objects(crate::backends::object_storage::Bucket),
    /// Keys of etcd.
    #[cfg(feature = "etcd")]
    Etcd(crate::backends::etcd::Etcd),
    /// A quorum of peers.
    #[cfg(feature = "peer")]
    Peers(PeerGroup),
}

/// Defines [`Target`], the target of one URL on any store, by a table: what a URL of the store
/// names, the feature, the scheme and its other names, and how to make the [`LockTarget`].
macro_rules! stores {
    ($(
        $variant:ident($target:ty), $feature:tt,
        $scheme:literal $(| $alias:literal)* => $named:expr;
    )*) => {
        #[derive(Debug, Clone)]
        enum Target {
            $(
                #[cfg(feature = $feature)]
                $variant(Box<$target>),
            )*
        }

        /// The scheme of each store.
        const SCHEMES: &[&str] = &[$($scheme),*];

        impl Target {
            fn parse(parts: &mut Parts) -> Result<Self, LockUrlError> {
                match parts.scheme() {
                    $(
                        #[cfg(feature = $feature)]
                        $scheme $(| $alias)* => {
                            let target = <$target as StoreTarget>::parse(parts)?;
                            Ok(Self::$variant(Box::new(target)))
                        }
                        #[cfg(not(feature = $feature))]
                        $scheme $(| $alias)* => Err(parts.not_built($feature)),
                    )*
                    _ => Err(parts.unknown(SCHEMES)),
                }
            }

            fn credential_variables(&self) -> &'static [&'static str] {
                match self {
                    $(
                        #[cfg(feature = $feature)]
                        Self::$variant(target) => target.credential_variables(),
                    )*
                }
            }

            fn named(&self, options: OpenOptions) -> Result<LockTarget, LockUrlError> {
                match self {
                    $(
                        #[cfg(feature = $feature)]
                        Self::$variant(target) => target.named(options).map($named),
                    )*
                }
            }

            async fn open(&self, options: OpenOptions) -> Result<Arc<dyn Lock>, LockUrlError> {
                match self {
                    $(
                        #[cfg(feature = $feature)]
                        Self::$variant(target) => target.open(options).await,
                    )*
                }
            }
        }
    };
}

stores! {
    Nats(NatsBucket), "nats", "nats" | "tls" => |bucket| LockTarget::Nats(Box::new(bucket));
    Kubernetes(KubernetesObjects), "kubernetes", "kubernetes" => LockTarget::Kubernetes;
    Postgres(sql::PostgresTarget), "postgres", "postgres" | "postgresql" => |(probe, tables)| {
        LockTarget::Postgres { probe, tables }
    };
    Sqlite(sql::SqliteTarget), "sqlite", "sqlite" => |(path, tables)| {
        LockTarget::Sqlite { path, tables }
    };
    Gcs(objects::ObjectStorageTarget), "gcs", "gs" => LockTarget::Objects;
    S3(objects::ObjectStorageTarget), "s3", "s3" => LockTarget::Objects;
    Azure(objects::ObjectStorageTarget), "azure", "az" => LockTarget::Objects;
    Etcd(etcd::EtcdTarget), "etcd", "etcd" | "etcds" => LockTarget::Etcd;
    Peer(peer::PeerTarget), "peer", "peer" => LockTarget::Peers;
    // In every build that has URLs.
    Memory(memory::MemoryTarget), "url", "memory" => |()| LockTarget::Memory;
}

#[cfg(test)]
mod tests;
