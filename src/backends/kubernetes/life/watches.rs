//! Watches on the objects that a candidate waits for.

use std::time::Duration;

use futures_util::future::select_all;
use futures_util::stream::StreamExt;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tracing::debug;

use super::pod;
use crate::backends::kubernetes::answers::Events;
use crate::backends::kubernetes::api::Objects;
use crate::backends::kubernetes::watch::BEGINS_WITHIN;
use crate::util::retry::Pauses;

/// What an object is to a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Lock,
    Pod,
    Node,
}

/// An object to watch, in the version in which it was seen.
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

/// The watches of one candidate. They live in its future: dropped with it, they end.
pub(super) struct Watches {
    watches: Vec<Watch>,
    /// Those whose last watch failed: what follows the version that was seen may be forgotten (410).
    failed: Vec<Target>,
    pauses: Pauses,
    poll: Duration,
    patience: Duration,
}

struct Watch {
    target: Target,
    events: Events,
}

/// What a watch has told.
enum Heard {
    Nothing,
    /// Something has happened to the object.
    News,
    Gone,
    Broken,
}

impl Watches {
    /// `poll`: how long to believe in silence.
    pub(super) fn new(poll: Duration) -> Self {
        let pauses = Pauses::new();
        Self { watches: Vec::new(), failed: Vec::new(), pauses, poll, patience: poll }
    }

    /// How long to wait for news before looking again.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Watches these and no others, from the versions in which they were seen. `false`: something may have happened between
    /// the look and the watch, so look again.
    ///
    /// A watch that has not told of the version that was seen is slow, or has gone silent: it is begun anew.
    pub(super) async fn follow<'a>(
        &mut self,
        targets: Vec<Target>,
        objects: impl Fn(Role) -> &'a Objects,
    ) -> bool {
        self.watches.retain(|watch| targets.contains(&watch.target));
        self.failed.retain(|failed| targets.iter().any(|target| target.is_same_object(failed)));
        self.patience = self.poll;
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
                    debug!(object = %target.name, "watches");
                    self.watches.push(Watch { target, events });
                }
                Err(failure) => {
                    debug!(object = %target.name, ?failure, "no watch");
                    if failure.code() != 403 {
                        if fresh.is_none() {
                            self.failed.push(target);
                        }
                        self.patience = self.patience.min(self.pauses.next());
                    }
                }
            }
        }
        seamless
    }

    /// Waits until a watch tells of something. Without any watch it waits for ever. Cancel safe.
    pub(super) async fn heard(&mut self) {
        loop {
            if self.watches.is_empty() {
                std::future::pending::<()>().await;
            }
            let next = self.watches.iter_mut().map(|watch| watch.events.next());
            let (event, at, _) = select_all(next).await;
            let Some(watch) = self.watches.get_mut(at) else { return };
            match watch.hear(event) {
                Heard::Nothing => {}
                Heard::News => {
                    self.pauses = Pauses::new();
                    return;
                }
                Heard::Gone => {
                    self.watches.swap_remove(at);
                    return;
                }
                Heard::Broken => {
                    let watch = self.watches.swap_remove(at);
                    self.failed.push(watch.target);
                    sleep(self.pauses.next()).await; // a server that is starting ends watches as fast as they begin
                    return;
                }
            }
        }
    }
}

impl Watch {
    fn hear(&mut self, event: Option<Result<WatchEvent<Value>, kube::Error>>) -> Heard {
        match event {
            Some(Ok(WatchEvent::Bookmark(_))) => Heard::Nothing,
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                let version = pod::version(&object);
                if version == self.target.version {
                    return Heard::Nothing; // as it was seen
                }
                version.clone_into(&mut self.target.version);
                Heard::News
            }
            Some(Ok(WatchEvent::Deleted(_))) => Heard::Gone,
            Some(Ok(WatchEvent::Error(status))) => {
                debug!(object = %self.target.name, code = status.code, "the watch was ended");
                Heard::Broken
            }
            Some(Err(error)) => {
                debug!(object = %self.target.name, %error, "the watch broke");
                Heard::Broken
            }
            None => Heard::Broken,
        }
    }
}
