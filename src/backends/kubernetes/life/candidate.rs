//! A candidate for life: looks, waits for news, mends what is stuck, and takes the lock.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};
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
use crate::util::retry::Pauses;
use crate::util::text::error_chain;

/// How long a denial is not believed: a server that has just started denies what it will allow.
const DENIES_FOR: Duration = Duration::from_secs(5);
/// From a lock that is stuck to leading: delete, make, look. Whoever needs more is in a race, and pauses.
const MAX_STEPS: u32 = 3;

pub(super) struct LifeCandidate {
    pub(super) locks: Objects,
    pub(super) pods: Objects,
    pub(super) nodes: Objects,
    pub(super) recorder: Option<Recorder>,
    pub(super) carrier: LifeResource,
    pub(super) name: String,
    /// Our pod, and its UID once it is known.
    pub(super) pod: String,
    pub(super) uid: Option<String>,
    /// What tells this candidate from an earlier one of the same pod.
    pub(super) mark: String,
    pub(super) poll: Duration,
    pub(super) node_gone_after: Duration,
    pub(super) presume_dead_after: Option<Duration>,
    pub(super) report: Reporter,
    /// Since when the lock has been seen to be nobody's.
    pub(super) free_since: Option<Instant>,
    pub(super) suspicions: Vec<Suspicion>,
    /// What was last logged of the wait.
    pub(super) told: Option<String>,
    pub(super) cannot_read_nodes: bool,
}

/// Since when a pod's node has been seen to be missing or unheard of.
pub(super) struct Suspicion {
    /// Of the pod.
    uid: String,
    unheard: bool,
    since: Instant,
}

/// What a look has come to.
enum CheckOutcome {
    /// The lock is our pod's.
    Ours(Value),
    /// Things are moving: look again.
    Again,
    /// Somebody else has it. Nothing happens before one of these changes, or the time is up.
    Wait { targets: Vec<Target>, within: Duration },
}

/// Whether an owner still stands in the way.
enum OwnerState {
    Ended(String),
    Lives { targets: Vec<Target>, within: Duration },
}

impl LifeCandidate {
    pub(super) async fn campaign(mut self) -> Result<LifeLeadership, LifeError> {
        let mut watches = Watches::new(self.poll);
        let (mut pauses, mut at_once) = (Pauses::new(), MAX_STEPS);
        let mut denied_since = None;
        let mut in_trouble = false;
        loop {
            let looked = self.look().await;
            if looked.is_ok() {
                (denied_since, in_trouble) = (None, false);
            }
            match looked {
                Ok(CheckOutcome::Ours(lock)) => return self.leads(&lock),
                Ok(CheckOutcome::Again) => match at_once.checked_sub(1) {
                    Some(left) => at_once = left,
                    None => sleep(pauses.next()).await,
                },
                Ok(CheckOutcome::Wait { targets, within }) => {
                    self.free_since = None;
                    let objects = |role| match role {
                        Role::Lock => &self.locks,
                        Role::Pod => &self.pods,
                        Role::Node => &self.nodes,
                    };
                    (pauses, at_once) = (Pauses::new(), MAX_STEPS);
                    if watches.follow(targets, objects).await {
                        let within = within.min(watches.patience());
                        let _ = timeout(within, watches.heard()).await; // silent: look all the same
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
                    if !std::mem::replace(&mut in_trouble, true) {
                        warn!(election = %self.name, %error, "cannot stand for life just now");
                    }
                    sleep(pauses.next()).await;
                }
            }
        }
    }

    async fn look(&mut self) -> Result<CheckOutcome, Stop> {
        let ours = match &self.uid {
            Some(uid) => uid.clone(),
            None => self.own_pod().await?,
        };
        let lock = self.locks.get(&self.name, by()).await;
        let lock = lock.map_err(|f| self.locks.lock_error(f, &self.name, "read", "get", false))?;
        let Some(lock) = lock else {
            self.free_since.get_or_insert_with(Instant::now);
            return self.take(ours).await;
        };
        let owners = match object::read(&lock) {
            Content::Of(owners) => owners,
            Content::Leaving => {
                return Ok(self.wait("the end of a lock that is being deleted", &lock));
            }
            Content::NoLock(why) => {
                let what = self.locks.describe(&self.name);
                return Err(self.misconfigured(format!(
                    "the {what} cannot be used: {why}; take another name"
                )));
            }
        };
        if matches!(&*owners, [owner] if owner.uid == ours) {
            let lives = self.own_pod().await;
            if let Err(Stop::Fatal(_)) = &lives
                && record::annotation(&lock, MARK) == Some(&self.mark)
            {
                // Made too late. At the latest the garbage collector frees it.
                let _ = self.locks.delete(&self.name, pod::uid(&lock), None, by()).await;
            }
            lives?;
            return Ok(CheckOutcome::Ours(lock));
        }
        let (mut targets, mut within) = (vec![self.target(&lock)], self.poll);
        let (mut ends, mut lives) = (Vec::new(), Vec::new());
        for owner in owners.iter().filter(|owner| owner.uid != ours) {
            match self.standing(owner).await? {
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
        self.tell_once(format!("pod {} leads", lives.join(", ")));
        Ok(CheckOutcome::Wait { targets, within })
    }

    /// Reads our pod, which must be there and alive, and answers its UID.
    async fn own_pod(&mut self) -> Result<String, Stop> {
        let what = self.pods.describe(&self.pod);
        let pod = self.pods.get(&self.pod, by()).await;
        let pod = pod.map_err(|f| self.pods.lock_error(f, &self.pod, "read", "get", false))?;
        let ended = |how: &str| {
            let message = format!("the {what}, in which this runs, {how}, so it cannot lead");
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

    /// Makes the lock. Whether our pod outlived that is seen by the next look, which finds the lock to be ours: an owner that is
    /// gone would have it collected.
    async fn take(&mut self, uid: String) -> Result<CheckOutcome, Stop> {
        self.own_pod().await?;
        let owner = Owner { name: self.pod.clone(), uid };
        let resource = &self.carrier.resource;
        let fields = &self.carrier.fields;
        let (api_version, kind) = (&resource.api_version, &resource.kind);
        let lock = object::made(api_version, kind, &self.name, &self.mark, &owner, fields);
        self.report.campaigns();
        match self.locks.create(&lock, by()).await {
            Ok(_) => Ok(CheckOutcome::Again),
            Err(failure) if failure.code() == 409 => {
                debug!(election = %self.name, "somebody else was faster");
                Ok(CheckOutcome::Again)
            }
            Err(failure) => {
                Err(self.locks.lock_error(failure, &self.name, "create", "create", true).into())
            }
        }
    }

    /// Whether an owner still stands in the way. Every answer comes from the server's store, and after the lock was read.
    async fn standing(&mut self, owner: &Owner) -> Result<OwnerState, Stop> {
        let pod = match check_object_name(&owner.name) {
            Ok(()) => self.pods.get(&owner.name, by()).await,
            Err(_) => Ok(None), // nor can there be one
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
            return Ok(OwnerState::Lives { targets, within: self.poll });
        };
        let node = match self.nodes.get(name, by()).await {
            Ok(node) => node,
            Err(failure) if failure.code() == 403 => {
                if !std::mem::replace(&mut self.cannot_read_nodes, true) {
                    info!(election = %self.name, "no right to get nodes: a leader whose node is gone is waited for until its pod is gone");
                }
                return Ok(OwnerState::Lives { targets, within: self.poll });
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
                    Health::Unheard => {
                        self.presume_dead_after.map(|span| (true, span, "was not heard of"))
                    }
                    Health::Serves => None,
                }
            }
        };
        let Some((unheard, span, how)) = suspected else {
            self.suspicions.retain(|suspicion| suspicion.uid != owner.uid);
            return Ok(OwnerState::Lives { targets, within: self.poll });
        };
        let left = span.saturating_sub(self.suspect(&owner.uid, unheard));
        if left.is_zero() {
            return Ok(OwnerState::Ended(format!("its node {name} {how} for {span:?}")));
        }
        Ok(OwnerState::Lives { targets, within: self.poll.min(left) })
    }

    /// For how long a pod's node has been seen like this, without a break.
    fn suspect(&mut self, uid: &str, unheard: bool) -> Duration {
        let same = |s: &&Suspicion| s.uid == uid && s.unheard == unheard;
        if let Some(suspicion) = self.suspicions.iter().find(same) {
            return suspicion.since.elapsed();
        }
        self.suspicions.retain(|suspicion| suspicion.uid != uid);
        let since = Instant::now();
        self.suspicions.push(Suspicion { uid: uid.to_owned(), unheard, since });
        Duration::ZERO
    }

    /// Deletes a lock that nobody holds, if it is still as it was read. It is not taken over in place: a garbage collector that is
    /// about to delete it means its UID, whoever owns it by then.
    async fn delete_stale_lock(&mut self, lock: &Value, why: &str) -> Result<CheckOutcome, Stop> {
        let (uid, version) = (pod::uid(lock), pod::version(lock));
        match self.locks.delete(&self.name, uid, Some(version), by()).await {
            Ok(()) => {
                info!(election = %self.name, why, "deleted the lock of a leader that is no more");
                Ok(CheckOutcome::Again)
            }
            Err(failure) if failure.is_change_of(&self.name) => {
                debug!(election = %self.name, "somebody else was faster");
                Ok(CheckOutcome::Again)
            }
            Err(failure @ ApiFailure::Refused(_)) if failure.code() == 403 => {
                let error = self.locks.lock_error(failure, &self.name, "delete", "delete", true);
                if self.told.as_deref() != Some(why) {
                    warn!(election = %self.name, why, %error, "cannot delete the lock of a leader that is no more");
                    self.told = Some(why.to_owned());
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
            let message = format!("the {what} cannot be used: its resourceVersion is no number");
            return Err(LifeError::new(LifeErrorKind::Misconfigured, message));
        };
        let resumed = record::annotation(lock, MARK) != Some(&self.mark);
        info!(election = %self.name, pod = %self.pod, token = version, resumed, "leads for life");
        if let Some(recorder) = &self.recorder
            && !resumed
        {
            let api_version = &self.carrier.resource.api_version;
            let reference = self.locks.reference(api_version, &self.name, lock);
            recorder.tell(reference, &format!("{} became leader", self.pod));
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
            api_version: self.carrier.resource.api_version,
            recorder: self.recorder,
            report: self.report,
        })
    }

    fn wait(&mut self, what: &str, lock: &Value) -> CheckOutcome {
        self.tell_once(what.to_owned());
        CheckOutcome::Wait { targets: vec![self.target(lock)], within: self.poll }
    }

    fn target(&self, lock: &Value) -> Target {
        Target::new(Role::Lock, &self.name, pod::version(lock))
    }

    fn tell_once(&mut self, what: String) {
        self.report.waits(&what);
        if self.told.as_ref() != Some(&what) {
            info!(election = %self.name, pod = %self.pod, "stands by: {what}");
            self.told = Some(what);
        }
    }

    fn misconfigured(&self, message: String) -> Stop {
        LockError::new(LockErrorKind::Misconfigured, message).into()
    }
}

fn by() -> Instant {
    Instant::now() + REQUEST_TIMEOUT
}
