//! Inspection and eviction of leaders for life.

use std::fmt;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::core::WatchEvent;
use serde_json::Value;

use super::object::{self, Content, MARK};
use super::pod;
use super::resource::LifeResource;
use crate::backends::kubernetes::answers::Events;
use crate::backends::kubernetes::api::{ApiFailure, EVERY, Objects};
use crate::backends::kubernetes::cluster::Cluster;
use crate::backends::kubernetes::events::Recorder;
use crate::backends::kubernetes::namespace;
use crate::backends::kubernetes::record::{self, RecordLocation, resource_version};
use crate::backends::kubernetes::resource::check_object;
use crate::lock::Severity::{Notice, Warning};
use crate::lock::{
    ElectionRecord, ElectionState, ElectionUpdate, ElectionWatch, Finding, Holder, HolderPod,
    LockAdmin, LockError, LockErrorKind, LockFacts, Revision, Token, Vacancy,
};
use crate::time::timer::deadline_after;

/// How many locks are read at the same time.
const READS: usize = 32;

/// The locks of leaders for life in a namespace, created by [`Cluster::life_locks`].
#[derive(Debug)]
pub struct LifeLocks {
    locks: Objects,
    pods: Objects,
    api_version: String,
    recorder: Option<Recorder>,
}

/// A lock, and its owners.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LifeLock {
    /// The name of the object, which is the name of the election.
    pub name: String,
    /// The UID of the object. It differs between the locks of successive leaders.
    pub uid: String,
    /// The version of the object: the leader's token, unless another client has written to the
    /// object since.
    pub resource_version: u64,
    /// The pods that own the lock: one, unless the object was edited by hand. Empty if the lock
    /// has lost its owner, or is being deleted.
    pub owners: Vec<LifeOwner>,
    /// When the lock was created, by the API server's clock.
    pub since: Option<SystemTime>,
}

/// A pod that owns a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LifeOwner {
    /// The name of the pod, without control characters.
    pub pod: String,
    /// The UID of the pod.
    pub uid: String,
    /// The state of the pod.
    pub state: PodState,
}

/// The state of a pod. Its `Display` is a word in the style of `kubectl`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PodState {
    /// The pod exists, in this phase, as in `Running`.
    Phase(String),
    /// The pod is being deleted.
    Terminating,
    /// The pod no longer exists.
    Gone,
    /// The permission to get pods is missing.
    Unknown,
}

/// A watch on one lock, or on all locks of a namespace. It ends when the server ends it, after
/// minutes; then begin another one.
pub struct LifeWatch {
    events: Events,
    locks: Objects,
}

impl Cluster {
    /// Returns the locks of leaders for life, for inspection and eviction. To become a leader, use
    /// [`leader_for_life`](super::leader_for_life).
    pub fn life_locks(&self, resource: &LifeResource) -> LifeLocks {
        let (access, namespace) = (self.access(), self.namespace());
        let pods = Pod::url_path(&(), Some(namespace));
        LifeLocks {
            locks: resource.objects(access, namespace),
            pods: Objects::new(access.clone(), pods, "Pod", namespace),
            api_version: resource.api.api_version.clone(),
            recorder: Some(Recorder::new(access.clone(), namespace)),
        }
    }
}

impl LifeLocks {
    /// Writes no Event upon an eviction, so the permission to create them is not needed.
    pub fn without_events(mut self) -> Self {
        self.recorder = None;
        self
    }

    /// Reads a lock. Returns `None` if there is none.
    ///
    /// Requires the permission to `get` it, and to `get` pods for their state.
    ///
    /// # Errors
    /// [`Denied`](LockErrorKind::Denied), [`Unavailable`](LockErrorKind::Unavailable) if a request
    /// had no response within `timeout`, and [`Misconfigured`](LockErrorKind::Misconfigured) if the
    /// object is not a lock.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub async fn lock(&self, name: &str, timeout: Duration) -> Result<Option<LifeLock>, LockError> {
        match self.get(name, timeout).await? {
            Some(object) => self.to_lock(name, &object, timeout).await.map(Some),
            None => Ok(None),
        }
    }

    /// Reads all locks of the namespace that have an owner or were created by this library, sorted
    /// by name.
    ///
    /// Requires the permission to `list`, to `get` the locks that another program created, and to
    /// `get` pods for their state. Of all other objects, only the metadata is requested.
    ///
    /// # Errors
    /// As [`lock`](Self::lock), but objects that are not locks are omitted.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub async fn locks(&self, timeout: Duration) -> Result<Vec<LifeLock>, LockError> {
        let deadline = deadline_after(timeout);
        let listed = self.locks.list(RecordLocation::Annotation, None, deadline).await;
        let listed = listed
            .map_err(|failure| self.locks.lock_error(failure, EVERY, "list", "list", false))?;
        let items = listed.get("items").and_then(Value::as_array).into_iter().flatten();
        let reads: Vec<_> = items.map(|object| self.listed(object, timeout)).collect();
        let reads = stream::iter(reads).buffered(READS);
        let locks = reads.try_filter_map(async |lock| Ok(lock));
        let mut locks: Vec<LifeLock> = locks.try_collect().await?;
        locks.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(locks)
    }

    /// Returns the lock that an object of a list is, if it is one.
    async fn listed(
        &self,
        object: &Value,
        timeout: Duration,
    ) -> Result<Option<LifeLock>, LockError> {
        let Some(name) = name_of(object).filter(|_| may_be_lock(object)) else { return Ok(None) };
        // An object with other content is not a lock, and the metadata does not show the content.
        let found = match record::annotation(object, MARK) {
            Some(_) => Some(object.clone()),
            None => self.get(name, timeout).await?,
        };
        match found.filter(|found| !matches!(object::read(found), Content::NoLock(_))) {
            Some(found) => self.to_lock(name, &found, timeout).await.map(Some),
            None => Ok(None),
        }
    }

    /// Watches a lock, or all locks of the namespace.
    ///
    /// Requires the permission to `watch`.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub async fn watch(
        &self,
        only: Option<&str>,
        timeout: Duration,
    ) -> Result<LifeWatch, LockError> {
        only.map_or(Ok(()), check_object)?;
        let (location, deadline) = (RecordLocation::Annotation, deadline_after(timeout));
        let events = self.locks.watch_one_or_all(only, location, deadline).await?;
        Ok(LifeWatch { events, locks: self.locks.clone() })
    }

    /// Evicts the leader: deletes its lock if the lock is unchanged since it was read.
    ///
    /// The leader notices the eviction ([`LifeLeadership::lost`](super::LifeLeadership::lost)), and
    /// its successor does not wait until it has stopped: fence what is written with the token. A
    /// leader that campaigns again may be its own successor.
    ///
    /// Requires the permissions to `get` and `delete`. With the permission to create Events, writes
    /// an Event.
    ///
    /// # Errors
    /// [`Conflict`](LockErrorKind::Conflict) if the lock was written meanwhile or is gone: nothing
    /// was changed. [`OutcomeUnknown`](LockErrorKind::OutcomeUnknown) if the eviction may have
    /// taken place. Otherwise as [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// If dropped, the eviction may have taken place or not.
    pub async fn evict(&self, lock: &LifeLock, timeout: Duration) -> Result<(), LockError> {
        let (name, deadline) = (&*lock.name, deadline_after(timeout));
        let version = lock.resource_version;
        let object = self.get(name, timeout).await?;
        let object = object
            .filter(|object| pod::uid(object) == lock.uid)
            .filter(|object| resource_version(object) == Some(version))
            .ok_or_else(|| self.locks.written_by_another(name))?;
        if let Content::NoLock(why) = object::read(&object) {
            return Err(self.no_lock(name, &why));
        }
        match self.locks.delete(name, &lock.uid, Some(&version.to_string()), deadline).await {
            Ok(()) => {}
            Err(failure) if failure.is_change_of(name) => {
                return Err(self.locks.written_by_another(name));
            }
            Err(failure) => {
                return Err(self.locks.lock_error(failure, name, "delete", "delete", true));
            }
        }
        if let Some(recorder) = &self.recorder {
            let reference = self.locks.reference(&self.api_version, name, &object);
            let owners: Vec<&str> = lock.owners.iter().map(|owner| &*owner.pod).collect();
            recorder.record_eviction(reference, &owners.join(", ")).await;
        }
        Ok(())
    }

    async fn get(&self, name: &str, timeout: Duration) -> Result<Option<Value>, LockError> {
        check_object(name)?;
        let got = self.locks.get(name, deadline_after(timeout)).await;
        got.map_err(|failure| self.locks.lock_error(failure, name, "read", "get", false))
    }

    async fn to_lock(
        &self,
        name: &str,
        object: &Value,
        timeout: Duration,
    ) -> Result<LifeLock, LockError> {
        let Some(version) = resource_version(object) else {
            return Err(self.no_lock(name, "its resourceVersion is not a number"));
        };
        let mut owners = Vec::new();
        match object::read(object) {
            Content::NoLock(why) => return Err(self.no_lock(name, &why)),
            Content::Leaving => {}
            Content::Of(pods) => {
                for owner in pods {
                    let state = self.state(&owner, timeout).await?;
                    let pod = owner.name.replace(char::is_control, " ");
                    owners.push(LifeOwner { pod, uid: owner.uid, state });
                }
            }
        }
        let since = object.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
        let since = since.and_then(record::parse_time);
        Ok(LifeLock {
            name: name.to_owned(),
            uid: pod::uid(object).to_owned(),
            resource_version: version,
            owners,
            since,
        })
    }

    async fn state(&self, owner: &object::Owner, timeout: Duration) -> Result<PodState, LockError> {
        if check_object(&owner.name).is_err() {
            return Ok(PodState::Gone);
        }
        let pod = match self.pods.get(&owner.name, deadline_after(timeout)).await {
            Ok(pod) => pod.filter(|pod| pod::uid(pod) == owner.uid),
            Err(failure) if failure.code() == 403 => return Ok(PodState::Unknown),
            Err(failure) => {
                return Err(self.pods.lock_error(failure, &owner.name, "read", "get", false));
            }
        };
        Ok(match pod {
            None => PodState::Gone,
            Some(pod) if pod::is_being_deleted(&pod) => PodState::Terminating,
            Some(pod) => {
                let phase = pod.pointer("/status/phase").and_then(Value::as_str);
                PodState::Phase(phase.unwrap_or("Pending").replace(char::is_control, " "))
            }
        })
    }

    fn no_lock(&self, name: &str, why: &str) -> LockError {
        let what = self.locks.describe(name);
        let message = format!("the {what} is not the lock of a leader for life: {why}");
        LockError::new(LockErrorKind::Misconfigured, message)
    }
}

impl LifeLock {
    /// Who leads by it, and what is wrong with it.
    fn findings(&self) -> Vec<Finding> {
        const NEXT: &str = "the next candidate replaces it; if it stays, there is no candidate, or none may delete it";
        if self.owners.is_empty() {
            return vec![Finding::new(Warning, "no-owner", "no pod owns it;", NEXT)];
        }
        let of_owner = |LifeOwner { pod, state, .. }: &LifeOwner| match state {
            PodState::Gone => {
                Finding::new(Warning, "gone", format!("its pod {pod} is gone;"), NEXT)
            }
            PodState::Phase(phase) if phase == "Succeeded" || phase == "Failed" => {
                Finding::new(Warning, "ended", format!("its pod {pod} has ended ({phase});"), NEXT)
            }
            PodState::Unknown => {
                let message = format!(
                    "pod {pod} leads, if it still exists: cannot be checked without the right to get pods"
                );
                Finding::new(Notice, "unread", message, "")
            }
            state => Finding::new(Notice, "leads", format!("pod {pod} leads ({state})"), ""),
        };
        let mut found: Vec<_> = self.owners.iter().map(of_owner).collect();
        if self.owners.len() > 1 {
            let message = "several pods own it, and a successor waits until all of them are gone:";
            found.push(Finding::new(Warning, "several-owners", message, "keep one"));
        }
        found
    }
}

#[async_trait]
impl LockAdmin for LifeLocks {
    async fn facts(&self, _timeout: Duration) -> Result<LockFacts, LockError> {
        // By the garbage collector, a successor, or an operator.
        Ok(LockFacts::new(None, Vacancy::Deleted))
    }

    async fn record(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Option<ElectionRecord>, LockError> {
        Ok(self.lock(name, timeout).await?.map(ElectionRecord::from))
    }

    async fn names(&self, timeout: Duration) -> Result<Vec<String>, LockError> {
        Ok(self.locks(timeout).await?.into_iter().map(|lock| lock.name).collect())
    }

    async fn list(&self, timeout: Duration) -> Result<Vec<ElectionRecord>, LockError> {
        Ok(self.locks(timeout).await?.into_iter().map(ElectionRecord::from).collect())
    }

    async fn watch(&self, names: &[String], timeout: Duration) -> Result<ElectionWatch, LockError> {
        let only = match names {
            [name] => Some(name.as_str()),
            _ => None,
        };
        let updates = stream::unfold(self.watch(only, timeout).await?, |mut watch| async move {
            let change = watch.next().await?;
            Some((change.map(|()| ElectionUpdate::Recheck), watch))
        });
        Ok(ElectionWatch::new(updates, true))
    }

    /// Deletes the lock: see [`LifeLocks::evict`].
    async fn evict(
        &self,
        name: &str,
        expected: Revision,
        timeout: Duration,
    ) -> Result<(), LockError> {
        let lock = self.lock(name, timeout).await?;
        match lock.filter(|lock| lock.resource_version == expected.0) {
            Some(lock) => self.evict(&lock, timeout).await,
            None => Err(self.locks.written_by_another(name)),
        }
    }

    /// Of the lock of an election, and of the pods that own it.
    async fn diagnose(
        &self,
        name: Option<&str>,
        timeout: Duration,
    ) -> Result<Option<Vec<Finding>>, LockError> {
        let Some(name) = name else { return Ok(None) };
        let lock = self.lock(name, timeout).await?;
        Ok(Some(lock.map_or_else(
            || {
                let message = "none yet: the first candidate creates it, and leads at once";
                vec![Finding::new(Notice, "absent", message, "")]
            },
            |lock| lock.findings(),
        )))
    }

    /// Requires the permission to `get` the namespace; without it, nothing is refused.
    async fn check_exists(&self, timeout: Duration) -> Result<(), LockError> {
        namespace::check_exists(&self.locks, timeout).await
    }
}

impl From<LifeLock> for ElectionRecord {
    fn from(lock: LifeLock) -> Self {
        let all = |word: fn(&LifeOwner) -> String| {
            lock.owners.iter().map(word).collect::<Vec<_>>().join(", ")
        };
        let state = if lock.owners.is_empty() {
            ElectionState::Vacant(Vacancy::NoOwner)
        } else {
            let pod = HolderPod {
                uid: all(|owner| owner.uid.clone()),
                phase: all(|owner| owner.state.to_string()),
                gone: lock.owners.iter().all(|owner| owner.state == PodState::Gone),
                lock: lock.uid.clone(),
            };
            let token = Token(lock.resource_version);
            ElectionState::Held(Holder {
                since: lock.since,
                pod: Some(Box::new(pod)),
                ..Holder::new(all(|owner| owner.pod.clone()), Some(token))
            })
        };
        let written = Some(lock.since.unwrap_or_else(SystemTime::now));
        let revision = Revision(lock.resource_version);
        Self { election: lock.name, revision, written, state }
    }
}

impl LifeWatch {
    /// Waits until a lock has changed, or may have, and should be read again. Returns `None` when
    /// the watch has ended. Cancel safe.
    ///
    /// # Errors
    /// [`Unavailable`](LockErrorKind::Unavailable) if the watch failed, which ends it.
    pub async fn next(&mut self) -> Option<Result<(), LockError>> {
        let mut changed = false;
        loop {
            // Events that arrived meanwhile belong to the same change.
            let event = match self.events.next().now_or_never() {
                Some(event) => event,
                None if changed => return Some(Ok(())),
                None => self.events.next().await,
            };
            let failure = match event {
                None if changed => return Some(Ok(())),
                None => return None,
                Some(Ok(WatchEvent::Error(status))) if status.code == 410 => return None, // too old
                Some(Ok(WatchEvent::Error(status))) => ApiFailure::Refused(status),
                Some(Err(error)) => ApiFailure::Lost(error.into()),
                Some(Ok(WatchEvent::Bookmark(_))) => continue,
                Some(Ok(
                    WatchEvent::Added(object)
                    | WatchEvent::Modified(object)
                    | WatchEvent::Deleted(object),
                )) => {
                    let leaves = matches!(object::read(&object), Content::Leaving);
                    changed |= leaves || may_be_lock(&object);
                    continue;
                }
            };
            return Some(Err(self.locks.lock_error(failure, EVERY, "watch", "watch", false)));
        }
    }
}

partial_debug!(LifeWatch, self, locks: self.locks);

impl fmt::Display for PodState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Phase(phase) => phase,
            Self::Terminating => "Terminating",
            Self::Gone => "gone",
            Self::Unknown => "unknown",
        })
    }
}

/// Whether the metadata is that of a lock.
fn may_be_lock(object: &Value) -> bool {
    record::annotation(object, MARK).is_some()
        || matches!(object::read(object), Content::Of(owners) if !owners.is_empty())
}

fn name_of(object: &Value) -> Option<&str> {
    object.pointer("/metadata/name")?.as_str()
}
