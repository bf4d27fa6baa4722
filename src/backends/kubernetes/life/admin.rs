//! The locks of leaders for life, for those who only look, and for whoever evicts.

use std::fmt;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::stream::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::time::Instant;

use super::object::{self, Content, MARK};
use super::pod;
use super::resource::LifeResource;
use crate::backends::kubernetes::answers::Events;
use crate::backends::kubernetes::api::{ApiFailure, EVERY, Objects};
use crate::backends::kubernetes::cluster::Cluster;
use crate::backends::kubernetes::events::Recorder;
use crate::backends::kubernetes::record::{self, RecordLocation, resource_version};
use crate::backends::kubernetes::resource::check_object_name;
use crate::lock::{LockError, LockErrorKind};
use crate::time::timer::deadline_after;

/// The locks of leaders for life in a namespace. Made by [`Cluster::life_locks`].
#[derive(Debug)]
pub struct LifeLocks {
    locks: Objects,
    pods: Objects,
    api_version: String,
    recorder: Option<Recorder>,
}

/// A lock, and who owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LifeLock {
    /// The name of the object, which is that of the election.
    pub name: String,
    /// The UID of the object. A leader that comes after another has a lock with another one.
    pub uid: String,
    /// The version of the object: the leader's token, unless somebody else has written to the object since.
    pub resource_version: u64,
    /// The pods that own it: one, unless somebody has written it by hand. None where it has lost its owner, or is being
    /// deleted.
    pub owners: Vec<LifeOwner>,
    /// When it was made, by the API server's clock.
    pub since: Option<SystemTime>,
}

/// A pod that owns a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LifeOwner {
    /// Its name, without control characters.
    pub pod: String,
    /// Its UID.
    pub uid: String,
    /// How it is.
    pub state: PodState,
}

/// How a pod is. Shown, it is a word as `kubectl` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PodState {
    /// Its phase, as in `Running`.
    Phase(String),
    /// It is being deleted.
    Terminating,
    /// There is no such pod any more.
    Gone,
    /// The right to get pods is missing.
    Unknown,
}

/// A watch on one lock, or on all of a namespace. It ends when the server says so, after minutes; then begin another one.
pub struct LifeWatch {
    events: Events,
    locks: Objects,
}

impl Cluster {
    /// The locks of leaders for life, to look at and to evict from. To become one: [`leader_for_life`](super::leader_for_life).
    pub fn life_locks(&self, carrier: &LifeResource) -> LifeLocks {
        let (access, namespace) = (self.access(), self.namespace());
        let pods = Pod::url_path(&(), Some(namespace));
        LifeLocks {
            locks: carrier.objects(access, namespace),
            pods: Objects::new(access.clone(), pods, "Pod", namespace),
            api_version: carrier.resource.api_version.clone(),
            recorder: Some(Recorder::new(access.clone(), namespace)),
        }
    }
}

impl LifeLocks {
    /// Writes no Event upon an eviction. The right to create them is then not needed.
    pub fn without_events(mut self) -> Self {
        self.recorder = None;
        self
    }

    /// Reads a lock. `None`: there is none.
    ///
    /// Takes the right to `get` it, and pods for their state.
    ///
    /// # Errors
    /// [`Denied`](LockErrorKind::Denied), [`Unavailable`](LockErrorKind::Unavailable) where no answer came within
    /// `timeout`, and [`Misconfigured`](LockErrorKind::Misconfigured) where the object is no lock.
    ///
    /// # Cancel safety
    /// It may be dropped at any time.
    pub async fn lock(&self, name: &str, timeout: Duration) -> Result<Option<LifeLock>, LockError> {
        let by = deadline_after(timeout);
        match self.get(name, by).await? {
            Some(object) => self.understand(name, &object, by).await.map(Some),
            None => Ok(None),
        }
    }

    /// Reads all locks of the namespace that have an owner or were made by this library, in the order of their names.
    ///
    /// Takes the right to `list`, and to `get` those that another program has made, and pods for their state. Of the
    /// others only the metadata are asked for.
    ///
    /// # Errors
    /// As [`lock`](Self::lock), but objects that are no locks are left out.
    ///
    /// # Cancel safety
    /// It may be dropped at any time.
    pub async fn locks(&self, timeout: Duration) -> Result<Vec<LifeLock>, LockError> {
        let by = deadline_after(timeout);
        let listed = self.locks.list(RecordLocation::Annotation, by).await;
        let listed = listed
            .map_err(|failure| self.locks.lock_error(failure, EVERY, "list", "list", false))?;
        let items = listed.get("items").and_then(Value::as_array);
        let mut locks = Vec::new();
        for object in items.into_iter().flatten().filter(|object| may_be_lock(object)) {
            let Some(name) = name_of(object) else { continue };
            // What somebody keeps something in is no lock, and the metadata do not show it.
            let found = match record::annotation(object, MARK) {
                Some(_) => Some(object.clone()),
                None => self.get(name, by).await?,
            };
            let Some(found) = found else { continue };
            if matches!(object::read(&found), Content::NoLock(_)) {
                continue;
            }
            locks.push(self.understand(name, &found, by).await?);
        }
        locks.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(locks)
    }

    /// Watches a lock, or all of the namespace.
    ///
    /// Takes the right to `watch`.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// It may be dropped at any time.
    pub async fn watch(
        &self,
        only: Option<&str>,
        timeout: Duration,
    ) -> Result<LifeWatch, LockError> {
        only.map_or(Ok(()), check)?;
        let by = deadline_after(timeout);
        let events = match only {
            Some(name) => self.locks.watch(name, None, by).await,
            None => self.locks.watch_all(RecordLocation::Annotation, by).await,
        };
        let name = only.unwrap_or(EVERY);
        let events = events
            .map_err(|failure| self.locks.lock_error(failure, name, "watch", "watch", false))?;
        Ok(LifeWatch { events, locks: self.locks.clone() })
    }

    /// Takes the lock from its leader: deletes it, if it is still as it was read.
    ///
    /// Its leader hears of it ([`LifeLeadership::lost`](super::LifeLeadership::lost)), and the next one does not wait until
    /// that one has stopped: fence what is written with the token. A leader that stands again may be the next one.
    ///
    /// Takes the rights to `get` and `delete`; with that to create Events it leaves one.
    ///
    /// # Errors
    /// [`Conflict`](LockErrorKind::Conflict) where the lock was written meanwhile or is gone: nothing was done.
    /// [`Unknown`](LockErrorKind::OutcomeUnknown) where it may have been done. Else as [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// Dropped, it may have been done or not.
    pub async fn evict(&self, lock: &LifeLock, timeout: Duration) -> Result<(), LockError> {
        let (name, by) = (&*lock.name, deadline_after(timeout));
        let version = lock.resource_version;
        let object = self.get(name, by).await?;
        let object = object
            .filter(|object| pod::uid(object) == lock.uid)
            .filter(|object| resource_version(object) == Some(version))
            .ok_or_else(|| self.locks.written_by_somebody_else(name))?;
        if let Content::NoLock(why) = object::read(&object) {
            return Err(self.no_lock(name, &why));
        }
        match self.locks.delete(name, &lock.uid, Some(&version.to_string()), by).await {
            Ok(()) => {}
            Err(failure) if failure.is_change_of(name) => {
                return Err(self.locks.written_by_somebody_else(name));
            }
            Err(failure) => {
                return Err(self.locks.lock_error(failure, name, "delete", "delete", true));
            }
        }
        if let Some(recorder) = &self.recorder {
            let reference = self.locks.reference(&self.api_version, name, &object);
            let owners: Vec<&str> = lock.owners.iter().map(|owner| &*owner.pod).collect();
            recorder.tell_eviction(reference, &owners.join(", ")).await;
        }
        Ok(())
    }

    async fn get(&self, name: &str, by: Instant) -> Result<Option<Value>, LockError> {
        check(name)?;
        let got = self.locks.get(name, by).await;
        got.map_err(|failure| self.locks.lock_error(failure, name, "read", "get", false))
    }

    async fn understand(
        &self,
        name: &str,
        object: &Value,
        by: Instant,
    ) -> Result<LifeLock, LockError> {
        let Some(version) = resource_version(object) else {
            return Err(self.no_lock(name, "its resourceVersion is no number"));
        };
        let mut owners = Vec::new();
        match object::read(object) {
            Content::NoLock(why) => return Err(self.no_lock(name, &why)),
            Content::Leaving => {}
            Content::Of(pods) => {
                for owner in pods {
                    let state = self.state(&owner, by).await?;
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

    async fn state(&self, owner: &object::Owner, by: Instant) -> Result<PodState, LockError> {
        if check(&owner.name).is_err() {
            return Ok(PodState::Gone);
        }
        let pod = match self.pods.get(&owner.name, by).await {
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
        let message = format!("the {what} is no lock of a leader for life: {why}");
        LockError::new(LockErrorKind::Misconfigured, message)
    }
}

impl LifeWatch {
    /// Answers when something has happened to a lock, or may have: a reason to look. `None` when the watch is over. Cancel
    /// safe.
    ///
    /// # Errors
    /// [`Unavailable`](LockErrorKind::Unavailable) where the watch broke. It is over then.
    pub async fn next(&mut self) -> Option<Result<(), LockError>> {
        let mut heard = false;
        loop {
            // What has come meanwhile is the same reason.
            let event = match self.events.next().now_or_never() {
                Some(event) => event,
                None if heard => return Some(Ok(())),
                None => self.events.next().await,
            };
            let failure = match event {
                None if heard => return Some(Ok(())),
                None => return None,
                Some(Ok(WatchEvent::Error(status))) if status.code == 410 => return None, // too old
                Some(Ok(WatchEvent::Error(status))) => ApiFailure::Refused(status),
                Some(Err(error)) => ApiFailure::Lost(error),
                Some(Ok(WatchEvent::Bookmark(_))) => continue,
                Some(Ok(
                    WatchEvent::Added(object)
                    | WatchEvent::Modified(object)
                    | WatchEvent::Deleted(object),
                )) => {
                    let leaves = matches!(object::read(&object), Content::Leaving);
                    heard |= leaves || may_be_lock(&object);
                    continue;
                }
            };
            return Some(Err(self.locks.lock_error(failure, EVERY, "watch", "watch", false)));
        }
    }
}

impl fmt::Debug for LifeWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LifeWatch").field("locks", &self.locks).finish_non_exhaustive()
    }
}

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

/// By what the metadata show.
fn may_be_lock(object: &Value) -> bool {
    record::annotation(object, MARK).is_some()
        || matches!(object::read(object), Content::Of(owners) if !owners.is_empty())
}

fn name_of(object: &Value) -> Option<&str> {
    object.pointer("/metadata/name")?.as_str()
}

fn check(name: &str) -> Result<(), LockError> {
    check_object_name(name).map_err(|rule| LockError::new(LockErrorKind::Misconfigured, rule))
}
