//! Watches on the objects that a candidate for life waits for.

use std::time::Duration;

use futures_util::future::select_all;
use futures_util::stream::StreamExt;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tracing::debug;

use super::pod;
use crate::backends::hint_hub::BEGINS_WITHIN;
use crate::backends::kubernetes::answers::Events;
use crate::backends::kubernetes::api::Objects;
use crate::util::retry::BackendRetries;

/// The role of an object for a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Lock,
    Pod,
    Node,
}

/// An object to watch, and the version in which it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    role: Role,
    name: String,
    version: String,
}

impl Target {
    pub(super) fn new(role: Role, name: &str, version: &str) -> Self {
        Self { role, name: name.to_owned(), version: version.to_owned() }
    }

    fn is_same_object(&self, other: &Self) -> bool {
        (self.role, &self.name) == (other.role, &other.name)
    }
}

/// The watches of one candidate. They are part of its future, and end when it is dropped.
pub(super) struct Watches {
    watches: Vec<Watch>,
    /// The targets whose last watch failed: the server may have forgotten the changes after the
    /// seen version (410).
    failed: Vec<Target>,
    pauses: BackendRetries,
    poll: Duration,
    poll_timeout: Duration,
}

struct Watch {
    target: Target,
    events: Events,
}

/// The meaning of an event.
enum EventKind {
    Nothing,
    /// The object has changed.
    Changed,
    Gone,
    Broken,
}

impl Watches {
    /// `poll`: how long to wait without an event.
    pub(super) fn new(poll: Duration) -> Self {
        let pauses = BackendRetries::unseeded();
        Self { watches: Vec::new(), failed: Vec::new(), pauses, poll, poll_timeout: poll }
    }

    /// How long to wait for an event before the next read.
    pub(super) fn poll_timeout(&self) -> Duration {
        self.poll_timeout
    }

    /// Watches exactly these objects, from the versions in which they were seen. Returns `false` if
    /// something may have happened between the read and the watch, so the objects should be read
    /// again.
    ///
    /// A watch that has not delivered the version that was seen is slow, or has gone silent: it is
    /// restarted.
    pub(super) async fn follow<'a>(
        &mut self,
        targets: Vec<Target>,
        objects: impl Fn(Role) -> &'a Objects,
    ) -> bool {
        self.watches.retain(|watch| targets.contains(&watch.target));
        self.failed.retain(|failed| targets.iter().any(|target| target.is_same_object(failed)));
        self.poll_timeout = self.poll;
        let mut seamless = true;
        for target in targets {
            if self.watches.iter().any(|watch| watch.target == target) {
                continue;
            }
            let fresh = self.failed.iter().position(|failed| failed.is_same_object(&target));
            let from = if fresh.is_some() { None } else { Some(&*target.version) };
            let by = Instant::now() + BEGINS_WITHIN;
            match objects(target.role).watch(&target.name, from, by).await {
                Ok(events) => {
                    if let Some(at) = fresh {
                        self.failed.swap_remove(at);
                        seamless = false;
                    }
                    debug!(object = %target.name, "watch began");
                    self.watches.push(Watch { target, events });
                }
                Err(failure) => {
                    debug!(object = %target.name, ?failure, "watch cannot begin");
                    if failure.code() != 403 {
                        if fresh.is_none() {
                            self.failed.push(target);
                        }
                        self.poll_timeout = self.poll_timeout.min(self.pauses.delay());
                    }
                }
            }
        }
        seamless
    }

    /// Waits until a watch delivers a change. Without any watch it waits indefinitely. Cancel safe.
    pub(super) async fn changed(&mut self) {
        loop {
            if self.watches.is_empty() {
                std::future::pending::<()>().await;
            }
            let next = self.watches.iter_mut().map(|watch| watch.events.next());
            let (event, at, _) = select_all(next).await;
            let Some(watch) = self.watches.get_mut(at) else { return };
            match watch.classify(event) {
                EventKind::Nothing => {}
                EventKind::Changed => {
                    self.pauses = BackendRetries::unseeded();
                    return;
                }
                EventKind::Gone => {
                    self.watches.swap_remove(at);
                    return;
                }
                EventKind::Broken => {
                    let watch = self.watches.swap_remove(at);
                    self.failed.push(watch.target);
                    sleep(self.pauses.delay()).await; // a starting server ends watches as soon as they begin
                    return;
                }
            }
        }
    }
}

impl Watch {
    fn classify(&mut self, event: Option<Result<WatchEvent<Value>, kube::Error>>) -> EventKind {
        match event {
            Some(Ok(WatchEvent::Bookmark(_))) => EventKind::Nothing,
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                let version = pod::version(&object);
                if version == self.target.version {
                    return EventKind::Nothing; // the version that was read
                }
                version.clone_into(&mut self.target.version);
                EventKind::Changed
            }
            Some(Ok(WatchEvent::Deleted(_))) => EventKind::Gone,
            Some(Ok(WatchEvent::Error(status))) => {
                debug!(object = %self.target.name, code = status.code, "watch ended by the server");
                EventKind::Broken
            }
            Some(Err(error)) => {
                debug!(object = %self.target.name, %error, "watch failed");
                EventKind::Broken
            }
            None => EventKind::Broken,
        }
    }
}
