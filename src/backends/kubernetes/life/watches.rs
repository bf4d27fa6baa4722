//! Watches on the objects that a candidate for life waits for.

use std::time::Duration;

use futures_util::future::select_all;
use futures_util::stream::StreamExt;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::debug;

use super::pod;
use crate::backends::hint_hub::BEGINS_WITHIN;
use crate::backends::kubernetes::answers::Events;
use crate::backends::kubernetes::api::Objects;
use crate::time::timer::deadline_after;
use crate::util::retry::BackendRetries;

/// How many poll intervals a watch may be silent. The server sends a bookmark once a minute, and
/// the default interval is 15 s.
const SILENT_POLLS: u32 = 6;

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
    /// How long to wait for an event while not all targets are watched.
    unwatched_poll: Duration,
}

struct Watch {
    target: Target,
    events: Events,
    /// When it counts as dead, if it delivers nothing until then.
    silent_at: Instant,
}

/// The meaning of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventKind {
    /// The watch lives.
    Nothing,
    /// The object has changed.
    Changed,
    Gone,
    Broken,
}

impl Watches {
    /// `poll`: how long to wait without a watch.
    pub(super) fn new(poll: Duration) -> Self {
        let pauses = BackendRetries::unseeded();
        Self { watches: Vec::new(), failed: Vec::new(), pauses, poll, unwatched_poll: poll }
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
        let now = Instant::now();
        self.watches.retain(|watch| targets.contains(&watch.target) && now < watch.silent_at);
        self.failed.retain(|failed| targets.iter().any(|target| target.is_same_object(failed)));
        self.unwatched_poll = Duration::MAX;
        let mut seamless = true;
        for target in targets {
            if self.watches.iter().any(|watch| watch.target == target) {
                continue;
            }
            let fresh = self.failed.iter().position(|failed| failed.is_same_object(&target));
            let from = if fresh.is_some() { None } else { Some(&*target.version) };
            let deadline = Instant::now() + BEGINS_WITHIN;
            match objects(target.role).watch(&target.name, from, deadline).await {
                Ok(events) => {
                    if let Some(at) = fresh {
                        self.failed.swap_remove(at);
                        seamless = false;
                    }
                    debug!(object = %target.name, "watch began");
                    let silent_at = silent_at(self.poll);
                    self.watches.push(Watch { target, events, silent_at });
                }
                Err(failure) => {
                    debug!(object = %target.name, ?failure, "watch cannot begin");
                    self.unwatched_poll = self.unwatched_poll.min(self.poll);
                    if failure.code() != 403 {
                        if fresh.is_none() {
                            self.failed.push(target);
                        }
                        self.unwatched_poll = self.unwatched_poll.min(self.pauses.delay());
                    }
                }
            }
        }
        seamless
    }

    /// Waits until there is a reason to read: a change, the end of `within`, a watch that is
    /// silent, or the poll interval where an object is not watched. Cancel safe.
    pub(super) async fn changed(&mut self, within: Duration) {
        let deadline = deadline_after(within.min(self.unwatched_poll));
        loop {
            let silent = self.watches.iter().map(|watch| watch.silent_at).min();
            let silent = silent.map_or(deadline, |silent| silent.min(deadline));
            if timeout_at(silent, self.delivered()).await != Ok(EventKind::Nothing) {
                return;
            }
        }
    }

    /// Waits until a watch delivers an event. Without any watch it waits indefinitely.
    async fn delivered(&mut self) -> EventKind {
        if self.watches.is_empty() {
            return std::future::pending().await;
        }
        let next = self.watches.iter_mut().map(|watch| watch.events.next());
        let (event, at, _) = select_all(next).await;
        let Some(watch) = self.watches.get_mut(at) else { return EventKind::Broken };
        let kind = watch.classify(event);
        match kind {
            EventKind::Nothing => watch.silent_at = silent_at(self.poll),
            EventKind::Changed => {
                watch.silent_at = silent_at(self.poll);
                self.pauses = BackendRetries::unseeded();
            }
            EventKind::Gone => drop(self.watches.swap_remove(at)),
            EventKind::Broken => {
                let watch = self.watches.swap_remove(at);
                self.failed.push(watch.target);
                sleep(self.pauses.delay()).await; // a starting server ends watches as soon as they begin
            }
        }
        kind
    }
}

fn silent_at(poll: Duration) -> Instant {
    deadline_after(poll.saturating_mul(SILENT_POLLS))
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

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use serde_json::json;

    use super::*;

    const POLL: Duration = Duration::from_secs(15);

    fn bookmark() -> Result<WatchEvent<Value>, kube::Error> {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "resourceVersion": "1" },
        });
        let event = json!({ "type": "BOOKMARK", "object": object });
        serde_json::from_value(event).map_err(kube::Error::SerdeError)
    }

    /// One that delivers this many bookmarks, one a minute, and is silent then.
    fn watched(bookmarks: usize) -> Watches {
        let events = stream::iter(0..bookmarks).then(async |_| {
            sleep(Duration::from_secs(60)).await;
            bookmark()
        });
        let events = events.chain(stream::pending()).boxed();
        let target = Target::new(Role::Lock, "my-app", "1");
        let mut watches = Watches::new(POLL);
        watches.watches.push(Watch { target, events, silent_at: silent_at(POLL) });
        watches.unwatched_poll = Duration::MAX;
        watches
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_read_while_all_watches_live() {
        let (began, mut watches) = (Instant::now(), watched(10));
        watches.changed(Duration::MAX).await;
        assert_eq!(began.elapsed().as_secs(), 10 * 60 + 90, "the last one is silent");
        assert!(watches.watches.iter().all(|watch| watch.silent_at <= Instant::now()));
        let (began, mut watches) = (Instant::now(), watched(10));
        watches.changed(Duration::from_secs(7)).await;
        assert_eq!(began.elapsed().as_secs(), 7, "asked for");
        let (began, mut watches) = (Instant::now(), watched(10));
        watches.unwatched_poll = POLL;
        watches.changed(Duration::MAX).await;
        assert_eq!(began.elapsed(), POLL, "another object is not watched");
    }
}
