//! Elections on Kubernetes, in a Lease or in the annotation that older clients use.
//!
//! An election is an object, and its record is client-go's, field by field. Candidates of this
//! library and of client-go take part in the same election, each by its own rules, and
//! `kubectl get lease` shows the leader.
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
//! The API server expires nothing. A holder has lost the lease when its record has not changed for
//! the *holder's* `leaseDurationSeconds`, measured on the candidate's own clock from when the
//! candidate first saw the record. No two wall clocks are compared. A change to any other part of
//! the object, by any client, renews nothing.
//!
//! # Tokens
//! A token is the resourceVersion of the write that began the term. The store of a cluster counts
//! all of its writes together, so the token grows from term to term, also when the object is
//! deleted and created again. `leaseTransitions` is maintained as client-go maintains it, but is
//! not a token: it starts again with each new object, and a client-go candidate that returns under
//! its old identity does not raise it. When an operator restores the store from a backup, both are
//! set back.
//!
//! # Deleting the object
//! A deleted object leaves nothing behind. The candidate that creates it again therefore waits out
//! a full lease before it leads, also when there has never been a leader, unless an operator
//! declared the object new ([`ResourceLock::create`]); client-go's candidates do not wait. To move
//! the leadership, evict the leader instead ([`evict`](crate::lock::LockAdmin::evict)): it steps
//! down when it observes this, and its successor waits for its lease. client-go's candidates take
//! an emptied `holderIdentity` at once.
//!
//! # Leader for life
//! [`leader_for_life`] is a different mechanism: an object that the leader's pod owns, without a
//! lease. See [`life`].
//!
//! # Traffic
//! [`ServiceFollowsLeader`] directs the requests of a Service to the leader's pod, of an election
//! on any lock, and [`LeaderPod`] marks that pod by a label.
//!
//! # Permissions
//! `docs/kubernetes.md` in the repository lists the minimal Role. Without `watch`, a candidate
//! polls. Without the permission to create Events, none are written.

mod admin;
mod answers;
mod api;
mod api_client;
mod checkpoints;
mod cluster;
mod codec;
mod connection;
mod events;
mod health;
mod known;
pub mod life;
mod lock;
mod namespace;
mod probe;
mod record;
mod resource;
mod resource_lock;
mod roll_call;
mod store;
mod timing;
mod traffic;
mod watch;

pub use crate::lock::{Finding, Severity};
#[cfg(feature = "url")]
pub(crate) use cluster::runs_a_program;
pub use cluster::{Cluster, ClusterError};
/// The client library that [`Cluster`] takes its types from.
#[doc(no_inline)]
pub use kube;
pub use life::{
    LeaderForLife, LifeError, LifeErrorKind, LifeLeadership, LifeLock, LifeLocks, LifeOwner,
    LifeResource, LifeState, LifeStatus, LifeWatch, PodState, leader_for_life,
};
pub use namespace::check_namespace;
pub use probe::{Permission, ServerFacts};
pub use resource::{ConfigMapKind, EndpointsKind, LeaseKind, ResourceKind};
pub use resource_lock::{ConfigMapLock, EndpointsLock, LeaseLock, ResourceLock};
pub use timing::{LeaseTiming, LeaseTimingError};
pub use traffic::{LeaderPod, ServiceFollowsLeader};
