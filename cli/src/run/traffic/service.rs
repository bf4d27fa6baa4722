//! On Kubernetes: the Service that follows the leader, and the marks of the leader's pod.

use std::time::Duration;

use clap::Args;
use incumbent::Token;
use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::kubernetes::{Cluster, LeaderPod, ServiceFollowsLeader};
use incumbent::lock::{LockError, LockErrorKind};
use tokio::time::timeout;

use super::messages::WITHDRAWAL;
use crate::error::CliError;
use crate::error::one_line;
use crate::lock::LockArgs;
use crate::output;

/// How long after a failure the API server is asked again.
const RETRY: Duration = Duration::from_millis(100);
/// How long a renewal may wait for a look at the slices, which takes some requests.
const LOOK: Duration = Duration::from_secs(1);

const UNANSWERED: &str = "the API server does not answer";

/// The flags of what follows the leader on Kubernetes. They work with every lock.
#[derive(Debug, Clone, Default, Args)]
pub struct ServiceArgs {
    /// On Kubernetes, with any lock: a Service without selector, whose requests go to the leader's
    /// pod. Its namespace is that of a lock on Kubernetes, else POD_NAMESPACE or the pod's.
    #[arg(long, value_name = "NAME", help_heading = "Traffic")]
    service: Option<String>,
    /// On Kubernetes: a label of the leader's pod, as in role=leader. It stays after a crash until
    /// the container starts again or the next leader removes it.
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Traffic")]
    leader_label: Option<String>,
    /// On Kubernetes: the deletion cost of the leader's pod, as in 100: a Deployment that becomes
    /// smaller deletes pods with a lower one first, and those that have none count as 0 [default:
    /// none is written].
    #[arg(long, value_name = "COST", allow_negative_numbers = true, help_heading = "Traffic")]
    pod_deletion_cost: Option<i32>,
    /// The pod of this process, for --service, --leader-label and --pod-deletion-cost [env:
    /// POD_NAME] [default: the host's name].
    #[arg(long, value_name = "NAME", help_heading = "Traffic")]
    pod: Option<String>,
}

impl ServiceArgs {
    /// Whether nothing is to follow the leader.
    pub fn is_empty(&self) -> bool {
        self.service.is_none() && !self.marks()
    }

    fn marks(&self) -> bool {
        self.leader_label.is_some() || self.pod_deletion_cost.is_some()
    }

    /// Reads the configuration of the API server, without a request to it. `None` if nothing is to
    /// follow the leader.
    pub async fn open(&self, lock: &LockArgs) -> Result<Option<ServiceTarget>, CliError> {
        if self.is_empty() {
            return Ok(None);
        }
        let cluster = lock.cluster().await?;
        let service = match &self.service {
            Some(name) => Some(self.follower(&cluster, name)?),
            None => None,
        };
        let pod = if self.marks() { Some(self.leader_pod(&cluster)?) } else { None };
        Ok(Some(ServiceTarget { service, pod }))
    }

    fn follower(&self, cluster: &Cluster, name: &str) -> Result<ServiceFollowsLeader, CliError> {
        let service = ServiceFollowsLeader::new(cluster, name)?;
        Ok(match &self.pod {
            Some(pod) => service.pod(pod),
            None => service,
        })
    }

    fn leader_pod(&self, cluster: &Cluster) -> Result<LeaderPod, CliError> {
        let mut pod = LeaderPod::new(cluster);
        if let Some(name) = &self.pod {
            pod = pod.pod(name);
        }
        if let Some(label) = &self.leader_label {
            let (key, value) = label.split_once('=').unwrap_or((label, ""));
            pod = pod.label(key, value)?;
        }
        if let Some(cost) = self.pod_deletion_cost {
            pod = pod.deletion_cost(cost);
        }
        Ok(pod)
    }
}

/// What follows the leader on Kubernetes.
pub struct ServiceTarget {
    service: Option<ServiceFollowsLeader>,
    pod: Option<LeaderPod>,
}

impl ServiceTarget {
    /// Refuses what cannot work, before the first term.
    pub async fn check(&self) -> Result<(), CliError> {
        if let Some(service) = &self.service {
            service.check().await?;
        }
        if let Some(pod) = &self.pod {
            pod.check().await?;
        }
        Ok(())
    }

    /// Removes what an earlier process of this pod has left.
    pub async fn clean(&mut self) -> Result<(), String> {
        let Self { service, pod } = self;
        let service = each(service, None, async |service| service.clean().await);
        both(service, each(pod, None, async |pod| pod.clean().await)).await
    }

    /// Directs requests here, at most until `until`. An API server that does not answer is asked
    /// again.
    pub async fn direct(&mut self, token: u64, until: Instant) -> Result<(), String> {
        let (token, Self { service, pod }) = (Token(token), self);
        let service =
            each(service, Some(until), async |service| service.direct(token, until).await);
        both(service, each(pod, Some(until), async |pod| pod.direct(token, until).await)).await
    }

    /// After a renewal: now and then it looks whether the slices are as they are to be. An API
    /// server that does not answer ends no term of another lock.
    pub async fn extend(&mut self, until: Instant) -> Result<(), String> {
        let Some(service) = &mut self.service else { return Ok(()) };
        let why = match timeout(LOOK, service.extend(until)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) if error.kind() == LockErrorKind::Conflict => {
                return Err(one_line(&error));
            }
            Ok(Err(error)) => one_line(&error),
            Err(_) => UNANSWERED.to_owned(),
        };
        output::note(format!("incumbent: the slices of the Service were not looked at: {why}"));
        Ok(())
    }

    /// Whether a withdrawal is still owed.
    pub fn is_left(&self) -> bool {
        self.service.as_ref().is_some_and(|service| !service.is_withdrawn())
            || self.pod.as_ref().is_some_and(|pod| !pod.is_withdrawn())
    }

    /// Stops directing requests here. An API server that does not answer is asked again, for a
    /// second.
    pub async fn withdraw(&mut self) -> Result<(), String> {
        let (until, Self { service, pod }) = (Some(BootClock.now() + WITHDRAWAL), self);
        let service = each(service, until, async |service| service.withdraw().await);
        let pod = each(pod, until, async |pod| pod.withdraw().await);
        match timeout(WITHDRAWAL, both(service, pod)).await {
            Ok(done) => done,
            Err(_) => Err(UNANSWERED.to_owned()),
        }
    }
}

/// Sends a request, if there is a target, and until `until` again if it may succeed later.
async fn each<T>(
    target: &mut Option<T>,
    until: Option<Instant>,
    mut request: impl AsyncFnMut(&mut T) -> Result<(), LockError>,
) -> Result<(), LockError> {
    let Some(target) = target else { return Ok(()) };
    loop {
        match request(target).await {
            Err(error)
                if may_pass(&error) && until.is_some_and(|until| BootClock.now() < until) =>
            {
                tokio::time::sleep(RETRY).await;
            }
            done => return done,
        }
    }
}

/// Does both, also if one of them fails.
async fn both(
    one: impl Future<Output = Result<(), LockError>>,
    other: impl Future<Output = Result<(), LockError>>,
) -> Result<(), String> {
    let (one, other) = tokio::join!(one, other);
    one.and(other).map_err(|error| one_line(&error))
}

/// Whether a request may succeed later.
fn may_pass(error: &LockError) -> bool {
    matches!(error.kind(), LockErrorKind::Unavailable | LockErrorKind::OutcomeUnknown)
}
