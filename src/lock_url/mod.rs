//! One way to name a lock, for programs that leave the choice to their configuration.
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
//! | `nats://[USER[:PASSWORD]@]HOST[:PORT][,HOST…][/BUCKET]`, also `tls://`, `ws://`, `wss://` | [`nats`](crate::nats) | `nats` | `ttl`, `create=no`, `with-choria`, `domain`, `creds=FILE`, `ca=FILE` |
//! | `kubernetes:[NAMESPACE]` | [`kubernetes`](crate::kubernetes) | `kubernetes` | `kind=lease`, `configmap` or `endpoints`; `object`, `lease`, `kubeconfig=FILE`, `context` |
//! | `postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE` | `sql` | `postgres` | `create=no`, `longest-lease`, and those of `libpq` |
//! | `sqlite:PATH` | `sql` | `sqlite` | `create=no`, `longest-lease` |
//! | `gs://BUCKET[/PREFIX]`, `s3://…`, `az://…` | `objects` | `gcs`, `s3`, `azure` | `longest-lease`, `max-clock-skew`, `allow-http`; credentials and the rest from the environment |
//! | `peer:[ADDRESS:]PORT` | `peer` | `peer` | `quorum`, which must be told; `peers=ADDRESS:PORT,…`, `dns=HOST:PORT`, `id`, `voters=ID,…`, `lease`, `key-file=FILE` (else the variable `INCUMBENT_PEER_KEY_FILE`) |
//! | `memory:[NAME]` | [`memory`](crate::memory): one a name in the whole process | | `ttl` |
//!
//! Options follow a `?`, with `&` between them: `kubernetes:prod?kind=configmap&object=my-app`. Durations are written as `10s` or
//! `500ms`. What is no letter, digit or one of `-._~/:,` is written as a percent sign and two hexadecimal digits, in passwords too.
//!
//! **Several URLs with blanks between them** are [`all_of`] their locks, in this order:
//! `kubernetes:prod?object=my-app nats://nats.example.net/MY_BUCKET?need=best-effort`. `need` is `required`, the default, or
//! `best-effort`.

mod error;
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

/// The name of a lock, or of several that are one: see the [module](mod@crate::lock_url).
///
/// It is parsed as a whole; nobody is asked before [`open`](Self::open). What is shown of it has no secrets.
#[derive(Clone)]
pub struct LockUrl {
    members: Vec<One>,
}

/// One of its URLs.
#[derive(Debug, Clone)]
struct One {
    place: Target,
    need: Need,
    /// Without secrets.
    shown: String,
}

impl LockUrl {
    /// What [`open`](Self::open) makes where it is missing, a bucket or tables, is made for leases of this length, and a Lease of
    /// Kubernetes is timed by it. What is there stays as it is, and [`lease`](crate::ElectionBuilder::lease) is told apart from this.
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.members.iter_mut().for_each(|one| one.place.with_lease(lease));
        self
    }

    /// As with `create=no` behind each of its URLs: [`open`](Self::open) makes neither a bucket nor tables, and fails where they are
    /// missing; and a peer has no vote, nor the place and the name that its URL tells. For those who only look.
    pub fn without_create(mut self) -> Self {
        self.members.iter_mut().for_each(|one| one.place.without_create());
        self
    }

    /// What each of the URLs names, in their order, to be examined rather than opened. Asks nobody.
    pub fn targets(&self) -> Vec<UrlTarget> {
        let named = self.members.iter().map(|one| UrlTarget {
            shown: one.shown.clone(),
            need: one.need,
            named: one.place.named(),
        });
        named.collect()
    }

    /// Opens the lock.
    ///
    /// A NATS server is asked for the bucket, which is made where there is none, unless the URL tells the `ttl`: then nobody is
    /// asked, the server may be out of reach, and elections are timed by that. A database is asked for its tables, and they are made
    /// where there are none. A Kubernetes API server is not asked, nor is an object store. A peer
    /// begins to listen, and leaves its group with the last clone of what it got.
    ///
    /// # Errors
    /// [`LockUrlErrorKind::Unavailable`], where trying again may help; [`Denied`](LockUrlErrorKind::Denied),
    /// [`Missing`](LockUrlErrorKind::Missing) and [`Unusable`](LockUrlErrorKind::Unusable), where it does not.
    ///
    /// # Cancel safety
    /// A bucket may be left behind.
    pub async fn open(&self) -> Result<Arc<dyn Lock>, LockUrlError> {
        if let [One { place, need: Need::Required, .. }] = &self.members[..] {
            return place.open().await;
        }
        let mut members = Vec::with_capacity(self.members.len());
        for One { place, need, .. } in &self.members {
            members.push(LockMember::new(place.open().await?, *need));
        }
        Ok(Arc::new(all_of(members)))
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
            let place = Target::parse(&mut parts)?;
            parts.nothing_left()?;
            url.members.push(One { place, need, shown: parts.shown().to_owned() });
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

/// One of the URLs of a [`LockUrl`].
#[derive(Debug)]
#[non_exhaustive]
pub struct UrlTarget {
    /// The URL, without secrets.
    pub shown: String,
    /// What a term needs of it.
    pub need: Need,
    /// What it names; an error where its settings, or those of the environment, cannot be used.
    pub named: Result<LockTarget, LockUrlError>,
}

#[cfg(test)]
mod tests;
