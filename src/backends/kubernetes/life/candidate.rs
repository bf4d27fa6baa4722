//! A candidate for life: reads the lock, waits for changes, deletes a stale lock, and takes the
//! lock.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::error::{LifeError, LifeErrorKind, Stop, final_error};
use super::leadership::LifeLeadership;
use super::object::{self, Content, MARK, Owner};
use super::pod::{self, Health};
use super::resource::LifeResource;
use super::status::Reporter;
use super::watches::{Role, Target, Watches};
use crate::backends::kubernetes::api::{ApiFailure, Objects, REQUEST_TIMEOUT};
use crate::backends::kubernetes::events::Recorder;
use crate::backends::kubernetes::record::{self, resource_version};
use crate::backends::kubernetes::resource::check_object_name;
use crate::lock::{LockError, LockErrorKind, Token};
use crate::util::retry::BackendRetries;
use crate::util::text::error_chain;

/// How long a denial is retried: a server that has just started denies requests that it will allow.
const DENIES_FOR: Duration = Duration::from_secs(5);
/// The steps from a stale lock to leading: delete, create, read. A candidate that needs more is in
/// a race, and pauses.
const MAX_STEPS: u32 = 3;

pub(super) struct LifeCandidate {
    pub(super) locks: Objects,
    pub(super) pods: Objects,
    pub(super) nodes: Objects,
    pub(super) recorder: Option<Recorder>,
    pub(super) resource: LifeResource,
    pub(super) name: String,
    /// The pod of this process; `uid` once it is known.
    pub(super) pod: String,
    pub(super) uid: Option<String>,
    /// Distinguishes this candidate from an earlier one of the same pod.
    pub(super) mark: String,
    pub(super) poll: Duration,
    pub(super) node_gone_after: Duration,
    pub(super) presume_dead_after: Option<Duration>,
    pub(super) report: Reporter,
    /// Since when the lock has been seen without a living owner.
    pub(super) free_since: Option<Instant>,
    pub(super) suspicions: Vec<Suspicion>,
    /// The reason for waiting that was last logged.
    pub(super) last_reason: Option<String>,
    pub(super) cannot_read_nodes: bool,
}

/// Since when a pod's node has been seen missing or unreachable.
pub(super) struct Suspicion {
    /// The UID of the pod.
    uid: String,
    unreachable: bool,
    since: Instant,
}

/// The outcome of one check of the lock.
enum CheckOutcome {
    /// This pod owns the lock.
    Ours(Value),
    /// The state is changing: check again.
    Again,
    /// Another pod owns the lock. Nothing happens before one of these objects changes, or the time
    /// has passed.
    Wait { targets: Vec<Target>, within: Duration },
}

/// Whether an owner still keeps the lock.
enum OwnerState {
    Ended(String),
    Lives { targets: Vec<Target>, within: Duration },
}

impl LifeCandidate {
    pub(super) async fn campaign(mut self) -> Result<LifeLeadership, LifeError> {
        let mut watches = Watches::new(self.poll);
        let (mut pauses, mut at_once) = (BackendRetries::unseeded(), MAX_STEPS);
        let mut denied_since = None;
        let mut failing = false;
        loop {
            let checked = self.check().await;
            if checked.is_ok() {
                (denied_since, failing) = (None, false);
            }
            self.report.checked(checked.is_ok());
            match checked {
                Ok(CheckOutcome::Ours(lock)) => return self.leads(&lock),
                Ok(CheckOutcome::Again) => match at_once.checked_sub(1) {
                    Some(left) => at_once = left,
                    None => sleep(pauses.delay()).await,
                },
                Ok(CheckOutcome::Wait { targets, within }) => {
                    self.free_since = None;
                    let objects = |role| match role {
                        Role::Lock => &self.locks,
                        Role::Pod => &self.pods,
                        Role::Node => &self.nodes,
                    };
                    (pauses, at_once) = (BackendRetries::unseeded(), MAX_STEPS);
                    if watches.follow(targets, objects).await {
                        watches.changed(within).await;
                    }
                }
                Err(Stop::Fatal(error)) => return Err(error),
                Err(Stop::Retry(error)) => {
                    if error.kind() == LockErrorKind::Denied {
                        let since = *denied_since.get_or_insert_with(Instant::now);
                        if since.elapsed() >= DENIES_FOR {
                            return Err(final_error(error));
                        }
                    } else {
                        denied_since = None;
                    }
                    self.report.waits(&error_chain(&error));
                    if !std::mem::replace(&mut failing, true) {
                        warn!(election = %self.name, %error, "checks of the lock fail");
                    }
                    sleep(pauses.delay()).await;
                }
            }
        }
    }

    async fn check(&mut self) -> Result<CheckOutcome, Stop> {
        let ours = match &self.uid {
            Some(uid) => uid.clone(),
            None => self.own_pod().await?,
        };
        let lock = self.locks.get(&self.name, deadline()).await;
        let lock = lock.map_err(|f| self.locks.lock_error(f, &self.name, "read", "get", false))?;
        let Some(lock) = lock else {
            self.free_since.get_or_insert_with(Instant::now);
            return self.take(ours).await;
        };
        let owners = match object::read(&lock) {
            Content::Of(owners) => owners,
            Content::Leaving => {
                return Ok(self.wait("the lock is being deleted", &lock));
            }
            Content::NoLock(why) => {
                let what = self.locks.describe(&self.name);
                return Err(self
                    .misconfigured(format!("the {what} cannot be used: {why}; use another name")));
            }
        };
        if matches!(&*owners, [owner] if owner.uid == ours) {
            let lives = self.own_pod().await;
            if let Err(Stop::Fatal(_)) = &lives
                && record::annotation(&lock, MARK) == Some(&self.mark)
            {
                // The lock was created too late. If the delete fails, the garbage collector frees
                // the lock.
                let _ = self.locks.delete(&self.name, pod::uid(&lock), None, deadline()).await;
            }
            lives?;
            return Ok(CheckOutcome::Ours(lock));
        }
        let (mut targets, mut within) = (vec![self.target(&lock)], Duration::MAX);
        let (mut ends, mut lives) = (Vec::new(), Vec::new());
        for owner in owners.iter().filter(|owner| owner.uid != ours) {
            match self.owner_state(owner).await? {
                OwnerState::Ended(how) => ends.push(how),
                OwnerState::Lives { targets: more, within: sooner } => {
                    targets.extend(more);
                    within = within.min(sooner);
                    lives.push(owner.name.as_str());
                }
            }
        }
        self.suspicions.retain(|suspicion| owners.iter().any(|owner| owner.uid == suspicion.uid));
        if lives.is_empty() {
            self.free_since.get_or_insert_with(Instant::now);
            let why = if ends.is_empty() { "it has no owner".to_owned() } else { ends.join(", ") };
            return self.delete_stale_lock(&lock, &why).await;
        }
        self.report_once(format!("pod {} leads", lives.join(", ")));
        Ok(CheckOutcome::Wait { targets, within })
    }

    /// Reads this process's pod, which must exist and be alive, and returns its UID.
    async fn own_pod(&mut self) -> Result<String, Stop> {
        let what = self.pods.describe(&self.pod);
        let pod = self.pods.get(&self.pod, deadline()).await;
        let pod = pod.map_err(|f| self.pods.lock_error(f, &self.pod, "read", "get", false))?;
        let ended = |how: &str| {
            let message =
                format!("the {what}, in which this process runs, {how}, so it cannot lead");
            Stop::from(LifeError::new(LifeErrorKind::PodEnded, message))
        };
        match (pod, &self.uid) {
            (None, None) => Err(self.misconfigured(format!(
                "there is no {what}: run in a pod, and set POD_NAME from the field metadata.name and POD_NAMESPACE from metadata.namespace"
            ))),
            (None, Some(_)) => Err(ended("is gone")),
            (Some(pod), Some(uid)) if pod::uid(&pod) != uid => Err(ended("is gone")),
            (Some(pod), _) if pod::is_being_deleted(&pod) => Err(ended("is being deleted")),
            (Some(pod), _) if pod::ended(&pod).is_some() => Err(ended("has ended")),
            (Some(pod), _) => {
                let uid = pod::uid(&pod).to_owned();
                self.uid = Some(uid.clone());
                Ok(uid)
            }
        }
    }

    /// Creates the lock. The next check, which finds that this pod owns the lock, also shows
    /// whether the pod was alive after the create: the garbage collector would delete the lock of
    /// an owner that is gone.
    async fn take(&mut self, uid: String) -> Result<CheckOutcome, Stop> {
        self.own_pod().await?;
        let owner = Owner { name: self.pod.clone(), uid };
        let resource = &self.resource.api;
        let fields = &self.resource.fields;
        let (api_version, kind) = (&resource.api_version, &resource.kind);
        let lock = object::new_lock(api_version, kind, &self.name, &self.mark, &owner, fields);
        self.report.campaigns();
        match self.locks.create(&lock, deadline()).await {
            Ok(_) => Ok(CheckOutcome::Again),
            Err(failure) if failure.code() == 409 => {
                debug!(election = %self.name, "another candidate was faster");
                Ok(CheckOutcome::Again)
            }
            Err(failure) => {
                Err(self.locks.lock_error(failure, &self.name, "create", "create", true).into())
            }
        }
    }

    /// Returns whether an owner still keeps the lock. Every response comes from the server's store,
    /// and after the lock was read.
    async fn owner_state(&mut self, owner: &Owner) -> Result<OwnerState, Stop> {
        let pod = match check_object_name(&owner.name) {
            Ok(()) => self.pods.get(&owner.name, deadline()).await,
            Err(_) => Ok(None), // no pod can have this name
        };
        let pod = pod.map_err(|f| self.pods.lock_error(f, &owner.name, "read", "get", false))?;
        let Some(pod) = pod.filter(|pod| pod::uid(pod) == owner.uid) else {
            return Ok(OwnerState::Ended(format!("its pod {} is gone", owner.name)));
        };
        if let Some(how) = pod::ended(&pod) {
            return Ok(OwnerState::Ended(format!("its pod {} has ended ({how})", owner.name)));
        }
        let mut targets = vec![Target::new(Role::Pod, &owner.name, pod::version(&pod))];
        let Some(name) = pod::node(&pod) else {
            return Ok(OwnerState::Lives { targets, within: Duration::MAX });
        };
        let node = match self.nodes.get(name, deadline()).await {
            Ok(node) => node,
            Err(failure) if failure.code() == 403 => {
                if !std::mem::replace(&mut self.cannot_read_nodes, true) {
                    info!(election = %self.name, "no permission to get nodes: waiting for pods of lost nodes");
                }
                return Ok(OwnerState::Lives { targets, within: Duration::MAX });
            }
            Err(failure) => {
                return Err(self.nodes.lock_error(failure, name, "read", "get", false).into());
            }
        };
        let suspected = match &node {
            None => Some((false, self.node_gone_after, "is gone")),
            Some(node) => {
                targets.push(Target::new(Role::Node, name, pod::version(node)));
                match pod::health(node) {
                    Health::OutOfService => {
                        return Ok(OwnerState::Ended(format!("its node {name} is out of service")));
                    }
                    Health::Unreachable => {
                        self.presume_dead_after.map(|span| (true, span, "was unreachable"))
                    }
                    Health::Serves => None,
                }
            }
        };
        let Some((unreachable, span, how)) = suspected else {
            self.suspicions.retain(|suspicion| suspicion.uid != owner.uid);
            return Ok(OwnerState::Lives { targets, within: Duration::MAX });
        };
        let left = span.saturating_sub(self.suspect(&owner.uid, unreachable));
        if left.is_zero() {
            return Ok(OwnerState::Ended(format!("its node {name} {how} for {span:?}")));
        }
        Ok(OwnerState::Lives { targets, within: self.poll.min(left) })
    }

    /// Returns for how long a pod's node has been seen in this state without interruption.
    fn suspect(&mut self, uid: &str, unreachable: bool) -> Duration {
        let same = |s: &&Suspicion| s.uid == uid && s.unreachable == unreachable;
        if let Some(suspicion) = self.suspicions.iter().find(same) {
            return suspicion.since.elapsed();
        }
        self.suspicions.retain(|suspicion| suspicion.uid != uid);
        let since = Instant::now();
        self.suspicions.push(Suspicion { uid: uid.to_owned(), unreachable, since });
        Duration::ZERO
    }

    /// Deletes a lock without a living owner if it is unchanged since it was read. The lock is not
    /// taken over in place: a garbage collector that is about to delete it deletes by its UID,
    /// regardless of the owner at that time.
    async fn delete_stale_lock(&mut self, lock: &Value, why: &str) -> Result<CheckOutcome, Stop> {
        if let Some(field) = self.resource.known_fields().and_then(|own| object::carried(lock, own))
        {
            let what = self.locks.describe(&self.name);
            return Err(self.misconfigured(format!(
                "the {what} has {field}, which no lock has, so it is not deleted though {why}: remove {field}, or use another name"
            )));
        }
        let (uid, version) = (pod::uid(lock), pod::version(lock));
        match self.locks.delete(&self.name, uid, Some(version), deadline()).await {
            Ok(()) => {
                info!(election = %self.name, why, "deleted a stale lock");
                Ok(CheckOutcome::Again)
            }
            Err(failure) if failure.is_change_of(&self.name) => {
                debug!(election = %self.name, "another candidate was faster");
                Ok(CheckOutcome::Again)
            }
            Err(failure @ ApiFailure::Refused(_)) if failure.code() == 403 => {
                let error = self.locks.lock_error(failure, &self.name, "delete", "delete", true);
                if self.last_reason.as_deref() != Some(why) {
                    warn!(election = %self.name, why, %error, "cannot delete a stale lock");
                    self.last_reason = Some(why.to_owned());
                }
                Ok(CheckOutcome::Wait { targets: vec![self.target(lock)], within: self.poll })
            }
            Err(failure) => {
                Err(self.locks.lock_error(failure, &self.name, "delete", "delete", true).into())
            }
        }
    }

    fn leads(self, lock: &Value) -> Result<LifeLeadership, LifeError> {
        let Some(version) = resource_version(lock) else {
            let what = self.locks.describe(&self.name);
            let message = format!("the {what} cannot be used: its resourceVersion is not a number");
            return Err(LifeError::new(LifeErrorKind::Misconfigured, message));
        };
        let resumed = record::annotation(lock, MARK) != Some(&self.mark);
        info!(election = %self.name, pod = %self.pod, token = version, resumed, "became leader for life");
        if let Some(recorder) = &self.recorder
            && !resumed
        {
            let api_version = &self.resource.api.api_version;
            let reference = self.locks.reference(api_version, &self.name, lock);
            recorder.record_event(reference, &format!("{} became leader", self.pod));
        }
        let takeover = self.free_since.map(|since| since.elapsed());
        self.report.leads(Token(version), takeover, resumed);
        Ok(LifeLeadership {
            uid: pod::uid(lock).to_owned(),
            pod_uid: self.uid.unwrap_or_default(),
            locks: self.locks,
            name: self.name,
            pod: self.pod,
            token: Token(version),
            resumed,
            poll: self.poll,
            api_version: self.resource.api.api_version,
            recorder: self.recorder,
            report: self.report,
        })
    }

    fn wait(&mut self, what: &str, lock: &Value) -> CheckOutcome {
        self.report_once(what.to_owned());
        CheckOutcome::Wait { targets: vec![self.target(lock)], within: Duration::MAX }
    }

    fn target(&self, lock: &Value) -> Target {
        Target::new(Role::Lock, &self.name, pod::version(lock))
    }

    fn report_once(&mut self, what: String) {
        self.report.waits(&what);
        if self.last_reason.as_ref() != Some(&what) {
            info!(election = %self.name, pod = %self.pod, "stands by: {what}");
            self.last_reason = Some(what);
        }
    }

    fn misconfigured(&self, message: String) -> Stop {
        LockError::new(LockErrorKind::Misconfigured, message).into()
    }
}

fn deadline() -> Instant {
    Instant::now() + REQUEST_TIMEOUT
}
