//! Hints from a watch on the object of an election.

use std::sync::Arc;

use futures_util::stream::StreamExt;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::answers::Events;
use super::known::ObjectState;
use super::record::{RecordLocation, resource_version};
use super::roll_call::SeenCalls;
use super::store::ResourceLockState;
use crate::backends::hint_hub::{BEGINS_WITHIN, HINT_DELAY, HintHub, Listen, guard};
use crate::lock::{Coverage, Hint, HintSink, Revision, Subscription};
use crate::util::retry::BackendRetries;

/// One election of a lock. Its subscribers share a watch on its object.
struct Watched {
    lock: Arc<ResourceLockState>,
    election: Arc<ObjectState>,
    name: String,
}

impl Listen for Watched {
    type Note = ();

    fn hub(&self) -> &HintHub<()> {
        &self.election.hub
    }

    fn listen(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        let watcher = Watcher {
            lock: Arc::clone(&self.lock),
            election: Arc::clone(&self.election),
            name: self.name.clone(),
            from: None,
            delivered: Revision(0),
            calls: SeenCalls::default(),
        };
        watcher.run()
    }
}

pub(super) fn subscribe(lock: &Arc<ResourceLockState>, name: &str, sink: HintSink) -> Subscription {
    let (lock, election) = (Arc::clone(lock), lock.elections.get(name));
    let watched = Arc::new(Watched { lock, election, name: name.to_owned() });
    guard::subscribe(&watched, name, sink)
}

struct Watcher {
    lock: Arc<ResourceLockState>,
    election: Arc<ObjectState>,
    name: String,
    /// The resourceVersion that was seen last; `None`: begin with the existing object.
    from: Option<String>,
    /// The newest revision that the watch delivered.
    delivered: Revision,
    calls: SeenCalls,
}

/// The reason why a watch ended.
enum WatchEnd {
    /// The watch timed out: the next one continues where it ended.
    InTime,
    /// The watch failed, or omitted an event.
    Failed,
}

impl Watcher {
    /// Watches until dropped, with the last subscription.
    async fn run(mut self) {
        let mut pauses = BackendRetries::unseeded();
        loop {
            let begins_by = Instant::now() + BEGINS_WITHIN;
            let watch = self.lock.objects.watch(&self.name, self.from.as_deref(), begins_by);
            let end = match watch.await {
                Ok(events) => {
                    let fresh = self.from.is_none();
                    self.election.hub.announce(Coverage::Full);
                    if fresh {
                        self.election.hub.send_all(&Hint::Recheck); // for changes before the watch began
                    }
                    let began = Instant::now();
                    let end = self.listen(events, fresh).await;
                    if began.elapsed() > BackendRetries::MAX {
                        pauses = BackendRetries::unseeded();
                        end
                    } else {
                        WatchEnd::Failed // a proxy cuts it, and nobody listens during the pause
                    }
                }
                Err(failure) => {
                    debug!(object = %self.name, ?failure, "watch cannot begin");
                    WatchEnd::Failed
                }
            };
            if let WatchEnd::Failed = end {
                self.from = None;
                self.election.hub.announce(Coverage::None);
                sleep(pauses.delay()).await;
            }
        }
    }

    async fn listen(&mut self, mut events: Events, fresh: bool) -> WatchEnd {
        let mut responses = self.election.responses();
        if fresh {
            // A revision that was seen before is still present and is reported now, or is gone.
            self.delivered = self.delivered.max(*responses.borrow());
        }
        loop {
            let undelivered = *responses.borrow_and_update() > self.delivered;
            let next = async {
                if undelivered {
                    timeout(HINT_DELAY, events.next()).await
                } else {
                    Ok(events.next().await)
                }
            };
            let event = tokio::select! {
                event = next => event,
                // A read or a write completed, perhaps of a revision that the watch did not
                // deliver.
                changed = responses.changed(), if !undelivered => match changed {
                    Ok(()) => continue,
                    Err(_) => return WatchEnd::Failed,
                },
            };
            let object = match event {
                Err(_) => {
                    debug!(object = %self.name, "watch is silent: restarting it");
                    return WatchEnd::Failed;
                }
                Ok(None) => return WatchEnd::InTime,
                Ok(Some(Err(error))) => {
                    debug!(object = %self.name, %error, "watch failed");
                    return WatchEnd::Failed;
                }
                Ok(Some(Ok(WatchEvent::Error(status)))) => {
                    debug!(object = %self.name, code = status.code, "watch ended by the server");
                    return WatchEnd::Failed; // 410: the server forgot what follows the last seen version
                }
                Ok(Some(Ok(WatchEvent::Bookmark(bookmark)))) => {
                    self.from = Some(bookmark.metadata.resource_version);
                    continue;
                }
                Ok(Some(Ok(WatchEvent::Deleted(object)))) => {
                    self.advance_to(&object);
                    self.election.hub.send_all(&Hint::Recheck);
                    continue;
                }
                Ok(Some(Ok(WatchEvent::Added(object)))) => {
                    self.calls.found(&object);
                    object
                }
                Ok(Some(Ok(WatchEvent::Modified(object)))) => {
                    self.on_calls(&object);
                    object
                }
            };
            self.on_object(object);
        }
    }

    fn on_calls(&mut self, object: &Value) {
        if let RecordLocation::Spec = self.lock.location
            && let Some(call) = self.calls.changed(object)
        {
            self.election.hub.send_all(&Hint::RollCall(call));
        }
    }

    fn on_object(&mut self, object: Value) {
        self.advance_to(&object);
        match self.lock.decode(&self.name, object) {
            Ok(object) => {
                let Some(known) = self.election.hinted(object) else { return };
                let hint = Hint::Stored { record: known.record(), previous: None, age: None };
                self.election.hub.send_all(&hint);
            }
            Err(_) => self.election.hub.send_all(&Hint::Recheck), // a read reports the error
        }
    }

    fn advance_to(&mut self, object: &Value) {
        if let Some(version) = resource_version(object) {
            self.delivered = self.delivered.max(Revision(version));
            self.from = Some(version.to_string());
        }
    }
}
