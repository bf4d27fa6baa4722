//! Leader for life: a pod leads until it is gone.
//!
//! The lock is an object that the leader's pod owns: an owner reference with the pod's UID, as
//! operator-sdk's `leader.Become` creates it, so pods of both take part in the same election. When
//! the pod is gone, the garbage collector deletes the lock, and another pod creates it again. There
//! is no lease, nothing is renewed, and no clock matters.
//!
//! ```no_run
//! use incumbent::kubernetes::{Cluster, leader_for_life};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = Cluster::infer().await?;
//! let leadership = leader_for_life("my-app", &cluster).await?; // waits, for as long as it takes
//! tokio::select! {
//!     () = work() => {}
//!     () = leadership.lost() => {} // an administrator has deleted the lock
//! }
//! # Ok(())
//! # }
//! # async fn work() {}
//! ```
//!
//! # Guarantees
//! No other pod becomes leader before one of these conditions holds:
//! - the leader's pod object is gone, or another pod has its name;
//! - the pod has ended for good: its phase is `Succeeded` or `Failed`, whatever the reason
//!   (evicted, preempted, node shut down), and none of its containers is shown as running;
//! - the pod's node is gone from the cluster for
//!   [`node_gone_after`](LeaderForLife::node_gone_after), after which Kubernetes itself deletes the
//!   pods of such a node;
//! - the pod's node is not ready, and an administrator has put the taint
//!   `node.kubernetes.io/out-of-service` on it, which states that the machine is off, as for a
//!   non-graceful node shutdown;
//! - another client deletes the lock, or removes the owner reference.
//!
//! # Limits
//! There is no deadline. A leader that is cut off from the API server keeps leading, and no other
//! pod takes over, until one of the conditions above holds: a node that is merely unreachable keeps
//! its pods, and with them the lock. Each condition is the state of the cluster's objects, not of
//! the machine: force-deleting a pod, or deleting a node while its machine runs, creates two
//! leaders. [`LifeLeadership::lost`] notifies a leader that can still reach the API server. If
//! neither suffices, use an election with a lease, or fence what is written with the
//! [token](LifeLeadership::token).
//!
//! # Release
//! [`LifeLeadership::release`] deletes the lock, so that another pod leads while this one lives on.
//! Nothing else releases the lock: neither dropping the leadership nor the end of the process.
//!
//! # Restarts
//! A container that is restarted in its pod finds its pod's lock and leads again at once
//! ([`resumed`](LifeLeadership::resumed)): the kubelet runs one container of a name at a time, so
//! the earlier process has ended. A pod that merely has the same name, as a StatefulSet creates
//! them, is treated as a different pod. Two containers of one pod, or two processes in one
//! container, are not distinguished: only one of them may be a candidate for a name.

mod admin;
mod candidate;
mod error;
mod leadership;
mod object;
mod pod;
mod resource;
mod status;
mod watches;

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Resource;

pub use admin::{LifeLock, LifeLocks, LifeOwner, LifeWatch, PodState};
pub use error::{LifeError, LifeErrorKind};
pub use leadership::LifeLeadership;
pub use resource::LifeResource;
pub use status::{LifeState, LifeStatus};

use super::api::Objects;
use super::cluster::Cluster;
use super::events::Recorder;
use super::resource::check_object_name;
use candidate::LifeCandidate;
pub(super) use object::MARK;
pub(super) use pod::{node, uid};
use status::Source;

/// The default interval at which a candidate reads the lock without an event of a watch.
const POLL: Duration = Duration::from_secs(15);
/// How long Kubernetes' own pod garbage collector waits for a node that is gone.
const NODE_GONE_AFTER: Duration = Duration::from_secs(40);

/// Creates a candidate for life in the election `name`; `.await` it to become leader.
///
/// The lock is the ConfigMap `name` in the cluster's namespace, which must also be the pod's
/// namespace. The pod's name is `POD_NAME`, else the host's name, which is the pod's unless the pod
/// uses the host's network.
pub fn leader_for_life(name: impl Into<String>, cluster: &Cluster) -> LeaderForLife {
    LeaderForLife {
        cluster: cluster.clone(),
        name: name.into(),
        pod: cluster.pod_name(),
        resource: LifeResource::config_map(),
        poll: POLL,
        node_gone_after: NODE_GONE_AFTER,
        presume_dead_after: None,
        events: true,
        status: Source::new(),
    }
}

/// A candidate for life, created by [`leader_for_life`].
///
/// It is a future: it resolves once this pod leads.
///
/// # Errors
/// Server failures, outages and lost races are retried without limit. A [`LifeError`] ends the
/// candidate: a permission that is missing (and stays missing for 5 s: a server that has just
/// started has no rules yet), a name or object that cannot be used, or the end of this pod.
///
/// # Cancel safety
/// The future may be dropped at any time, and leaves no task behind. If it is dropped in the
/// instant in which it takes the lock, the pod owns the lock; the next candidate awaited in the
/// same pod then leads at once.
///
/// ```no_run
/// use incumbent::kubernetes::{Cluster, LifeResource, leader_for_life};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let cluster = Cluster::infer().await?;
/// let candidate = leader_for_life("my-app", &cluster).resource(LifeResource::lease());
/// let status = candidate.status(); // for a readiness probe
/// let leadership = candidate.await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "does nothing until it is awaited"]
#[derive(Debug, Clone)]
pub struct LeaderForLife {
    cluster: Cluster,
    name: String,
    pod: String,
    resource: LifeResource,
    poll: Duration,
    node_gone_after: Duration,
    presume_dead_after: Option<Duration>,
    events: bool,
    status: Source,
}

impl LeaderForLife {
    /// Sets the name of this process's pod, if it is neither in `POD_NAME` nor the host's name.
    pub fn pod(mut self, name: impl Into<String>) -> Self {
        self.pod = name.into();
        self
    }

    /// Sets the kind of the lock's object. All candidates of the election must use the same kind;
    /// operator-sdk uses the ConfigMap.
    pub fn resource(mut self, resource: LifeResource) -> Self {
        self.resource = resource;
        self
    }

    /// Sets the interval at which the lock is read where the permission to watch is missing, or a
    /// watch cannot begin. A watch that delivers nothing for six intervals is started anew, after a
    /// read: the API server sends a bookmark once a minute. Default: 15 s; minimum: 100 ms.
    pub fn poll(mut self, every: Duration) -> Self {
        self.poll = every;
        self
    }

    /// Sets for how long the node of the leader's pod must be missing from the cluster, on this
    /// candidate's clock, until the pod counts as gone. Default: 40 s, as for Kubernetes' own pod
    /// garbage collector.
    pub fn node_gone_after(mut self, span: Duration) -> Self {
        self.node_gone_after = span;
        self
    }

    /// Presumes a leader dead if its node has been unreachable (its condition `Ready` is `Unknown`)
    /// for `span`, on this candidate's clock. Default: off.
    ///
    /// **This creates two leaders** if the machine runs and only its network fails: the two cases
    /// cannot be distinguished, and the leader on that machine cannot be notified. operator-sdk
    /// does so at once. If you set it, fence what is written with the
    /// [token](LifeLeadership::token).
    pub fn presume_dead_after(mut self, span: Duration) -> Self {
        self.presume_dead_after = Some(span);
        self
    }

    /// Writes no Event on becoming leader, so the permission to create them is not needed.
    pub fn without_events(mut self) -> Self {
        self.events = false;
        self
    }

    /// Returns the candidate's status, updated continuously: a probe can read it while the
    /// candidate is awaited and afterwards. Clones of a candidate share it.
    pub fn status(&self) -> LifeStatus {
        self.status.status(&self.name)
    }

    fn candidate(self) -> Result<LifeCandidate, LifeError> {
        let misconfigured = |why: String| LifeError::new(LifeErrorKind::Misconfigured, why);
        check_object_name(&self.name).map_err(misconfigured)?;
        check_object_name(&self.pod).map_err(|why| {
            misconfigured(format!("set POD_NAME from the field metadata.name: {why}"))
        })?;
        let minimum = Duration::from_millis(100);
        if self.poll < minimum {
            let poll = self.poll;
            return Err(misconfigured(format!(
                "a poll interval of {poll:?} is too short: the minimum is {minimum:?}"
            )));
        }
        let nonce = getrandom::u64()
            .map_err(|_| misconfigured("the system provides no random numbers".to_owned()))?;
        let (access, namespace) = (self.cluster.access(), self.cluster.namespace());
        let report = self.status.reporter(&self.name, &self.pod);
        Ok(LifeCandidate {
            locks: self.resource.objects(access, namespace),
            pods: Objects::new(
                access.clone(),
                Pod::url_path(&(), Some(namespace)),
                "Pod",
                namespace,
            ),
            nodes: Objects::new(access.clone(), Node::url_path(&(), None), "Node", ""),
            recorder: self.events.then(|| Recorder::new(access.clone(), namespace)),
            resource: self.resource,
            name: self.name,
            pod: self.pod,
            uid: None,
            mark: format!("{nonce:016x}"),
            poll: self.poll,
            node_gone_after: self.node_gone_after,
            presume_dead_after: self.presume_dead_after,
            report,
            free_since: None,
            suspicions: Vec::new(),
            last_reason: None,
            cannot_read_nodes: false,
        })
    }
}

impl IntoFuture for LeaderForLife {
    type Output = Result<LifeLeadership, LifeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let status = self.status.clone();
            let led = async { self.candidate()?.campaign().await }.await;
            led.inspect_err(|error| status.failed(error))
        }
        .boxed()
    }
}
