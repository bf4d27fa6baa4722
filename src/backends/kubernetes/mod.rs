//! Elections on Kubernetes: a Lease, or an annotation as older campaigners wrote it.
//!
//! An election is an object, and its record is client-go's, field by field: campaigners of this library and of client-go
//! stand in one election, each by its own rules, and `kubectl get lease` shows who leads.
//!
//! ```no_run
//! use incumbent::kubernetes::Cluster;
//! use incumbent::new_election;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = Cluster::infer().await?; // in a pod, or from a kubeconfig
//! let election = new_election("my-app", cluster.lease_lock()).start()?;
//! let leadership = election.won().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Expiry
//! The API server frees nothing. A holder has lost its office when the record has not changed for as long as the *holder's*
//! `leaseDurationSeconds`, on the candidate's own clock, from when the candidate first saw it. No two wall clocks are
//! compared. A change to anything else of the object, by whomever, renews nothing.
//!
//! # Tokens
//! A token is the resourceVersion of the write that began the term. The store of a cluster counts all of its writes
//! together, so it grows from term to term, also when the object is deleted and made again. `leaseTransitions` is kept
//! as client-go keeps it, but is no token: it begins again with each new object, and a client-go campaigner that comes back under
//! its old identity does not raise it. Where an operator sets the store back to a backup, both are set back.
//!
//! # Deleting the object
//! Nothing stays of an object that was deleted. So whoever makes it anew waits out a full lease before it leads, also
//! where there has never been one; client-go's campaigners do not wait. To move a leader, release the office
//! instead, or empty `holderIdentity`: whoever hears of that stands down, and the next one waits out a lease.
//!
//! # Leader for life
//! [`leader_for_life`] is another thing: an object that the leader's pod owns, without a lease. See [`life`].
//!
//! # Rights
//! `docs/kubernetes.md` in the repository has the least Role. Without `watch` a campaigner polls; without the right to
//! create Events none are written.

mod answers;
mod api;
mod api_client;
mod cluster;
mod codec;
mod events;
mod fresh;
mod health;
mod inspect;
mod known;
pub mod life;
mod lock;
mod namespace;
mod probe;
mod record;
mod resource;
mod resource_lock;
mod state;
mod store;
mod timing;
mod watch;
mod witness;

pub use cluster::{Cluster, ClusterError};
pub use health::{Finding, Severity};
pub use inspect::{ElectionEvent, ElectionStatus, ElectionWatch, Holder, HolderStatus};
pub use life::{
    LeaderForLife, LifeError, LifeErrorKind, LifeLeadership, LifeLock, LifeLocks, LifeOwner,
    LifeResource, LifeState, LifeStatus, LifeWatch, PodState, leader_for_life,
};
pub use namespace::check_namespace;
pub use probe::{Right, ServerFacts};
pub use resource::{ConfigMapKind, EndpointsKind, LeaseKind, ResourceKind};
pub use resource_lock::{ConfigMapLock, EndpointsLock, LeaseLock, ResourceLock};
pub use timing::{LeaseTiming, LeaseTimingError};
