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
//! | `postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE` | `sql` | `postgres` | `create=no`, `max-lease`, and those of `libpq` |
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
mod parts;
#[cfg(feature = "peer")]
mod peer;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod sql;
mod target;
mod targets;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::lock::multi::all_of;
use crate::lock::{Lock, LockMember, Need};

pub use error::{LockUrlError, LockUrlErrorKind};
use parts::Parts;
use target::Target;
pub use targets::*;

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
        self.members.iter_mut().for_each(|one| one.target.with_lease(lease));
        self
    }

    /// Behaves as if each URL had `create=no`: [`open`](Self::open) creates neither a bucket nor
    /// tables, and fails if they are missing; a peer has no vote, and does not use the port and the
    /// identifier of its URL. For read-only use.
    pub fn without_create(mut self) -> Self {
        self.members.iter_mut().for_each(|one| one.target.without_create());
        self
    }

    #[cfg(any(feature = "nats", feature = "kubernetes"))]
    fn required(target: Target, shown: String) -> Self {
        Self { members: vec![Member { target, need: Need::Required, shown }] }
    }

    /// Returns what each URL names, in order, for inspection. Sends no request.
    pub fn targets(&self) -> Vec<UrlTarget> {
        let targets = self.members.iter().map(|one| UrlTarget {
            shown: one.shown.clone(),
            need: one.need,
            named: one.target.named(),
        });
        targets.collect()
    }

    /// Opens the lock.
    ///
    /// For NATS, `open` requests the bucket from a server, and creates it if it does not exist,
    /// unless the URL sets the `ttl`: then no request is sent, the server may be unreachable, and
    /// that TTL times the elections. For a database, `open` queries the tables, and creates them if
    /// they do not exist. For a Kubernetes API server and an object store, `open` sends no request.
    /// A peer starts to listen, and leaves its group with the last clone of the returned lock.
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
            return target.open().await;
        }
        let mut members = Vec::with_capacity(self.members.len());
        for Member { target, need, .. } in &self.members {
            members.push(LockMember::new(target.open().await?, *need));
        }
        Ok(Arc::new(all_of(members)))
    }
}

#[cfg(feature = "nats")]
impl From<NatsBucket> for LockUrl {
    fn from(bucket: NatsBucket) -> Self {
        let shown = bucket.shown.clone();
        Self::required(Target::Nats(Box::new(bucket)), shown)
    }
}

#[cfg(feature = "kubernetes")]
impl From<KubernetesObjects> for LockUrl {
    fn from(objects: KubernetesObjects) -> Self {
        let shown = objects.shown.clone();
        Self::required(Target::Kubernetes(objects), shown)
    }
}

impl FromStr for LockUrl {
    type Err = LockUrlError;

    fn from_str(text: &str) -> Result<Self, LockUrlError> {
        let mut url = Self { members: Vec::new() };
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

#[cfg(test)]
mod tests;
