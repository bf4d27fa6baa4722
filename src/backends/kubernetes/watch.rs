//! Hints: a watch on the object of an election.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::StreamExt;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::answers::Events;
use super::codec::claims_to_be_new;
use super::known::ObjectState;
use super::record::resource_version;
use super::state::ResourceLockState;
use crate::backends::hint_hub::{self, HintHub, Listen};
use crate::lock::{Coverage, Hint, HintSink, Revision, Subscription};
use crate::util::retry::Pauses;

/// How long the server may take to begin a watch.
pub(super) const BEGINS_WITHIN: Duration = Duration::from_secs(5);
/// How long after a write was read the watch may still tell of it.
const HINT_DELAY: Duration = Duration::from_secs(2);

/// One election of a lock, as its subscribers share a watch on its object.
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
            heard: Revision(0),
        };
        watcher.run()
    }
}

pub(super) fn subscribe(lock: &Arc<ResourceLockState>, name: &str, sink: HintSink) -> Subscription {
    let (lock, election) = (Arc::clone(lock), lock.elections.get(name));
    let watched = Arc::new(Watched { lock, election, name: name.to_owned() });
    hint_hub::subscribe(&watched, name, sink)
}

struct Watcher {
    lock: Arc<ResourceLockState>,
    election: Arc<ObjectState>,
    name: String,
    /// The resourceVersion that was seen last; `None`: begin with what is there.
    from: Option<String>,
    /// The newest revision that was heard.
    heard: Revision,
}

/// Why a watch is over.
enum Over {
    /// Its time was up: the next one goes on where it ended.
    InTime,
    /// It failed, or has left something out.
    Failed,
}

impl Watcher {
    /// Watches until it is dropped, with the last subscription.
    async fn run(mut self) {
        let mut pauses = Pauses::new();
        loop {
            let begins_by = Instant::now() + BEGINS_WITHIN;
            let watch = self.lock.objects.watch(&self.name, self.from.as_deref(), begins_by);
            let over = match watch.await {
                Ok(events) => {
                    let fresh = self.from.is_none();
                    self.election.hub.announce(Coverage::Full);
                    if fresh {
                        self.election.hub.send_all(&Hint::Recheck); // what happened before, nobody has told
                    }
                    let began = Instant::now();
                    let over = self.listen(events, fresh).await;
                    if began.elapsed() > Pauses::LONGEST {
                        pauses = Pauses::new();
                    } else if let Over::InTime = over {
                        sleep(pauses.next()).await;
                    }
                    over
                }
                Err(failure) => {
                    debug!(object = %self.name, ?failure, "no watch");
                    Over::Failed
                }
            };
            if let Over::Failed = over {
                self.from = None;
                self.election.hub.announce(Coverage::None);
                sleep(pauses.next()).await;
            }
        }
    }

    async fn listen(&mut self, mut events: Events, fresh: bool) -> Over {
        let mut reads = self.election.reads();
        if fresh {
            // What was read before stands there still, and is told now, or is gone.
            self.heard = self.heard.max(*reads.borrow());
        }
        loop {
            let unheard = *reads.borrow_and_update() > self.heard;
            let next = async {
                if unheard {
                    timeout(HINT_DELAY, events.next()).await
                } else {
                    Ok(events.next().await)
                }
            };
            let event = tokio::select! {
                event = next => event,
                // Somebody has read, perhaps what no hint has told.
                changed = reads.changed(), if !unheard => match changed {
                    Ok(()) => continue,
                    Err(_) => return Over::Failed,
                },
            };
            let object = match event {
                Err(_) => {
                    debug!(object = %self.name, "the watch is silent: beginning it anew");
                    return Over::Failed;
                }
                Ok(None) => return Over::InTime,
                Ok(Some(Err(error))) => {
                    debug!(object = %self.name, %error, "the watch broke");
                    return Over::Failed;
                }
                Ok(Some(Ok(WatchEvent::Error(status)))) => {
                    debug!(object = %self.name, code = status.code, "the watch was ended");
                    return Over::Failed; // 410: what follows what we saw last is forgotten
                }
                Ok(Some(Ok(WatchEvent::Bookmark(bookmark)))) => {
                    self.from = Some(bookmark.metadata.resource_version);
                    continue;
                }
                Ok(Some(Ok(WatchEvent::Deleted(object)))) => {
                    self.went_on_to(&object);
                    self.election.hub.send_all(&Hint::Recheck);
                    continue;
                }
                Ok(Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)))) => object,
            };
            self.hear(object);
        }
    }

    fn hear(&mut self, object: Value) {
        let Some(version) = self.went_on_to(&object) else { return };
        if self.election.is_old(version) {
            return;
        }
        if claims_to_be_new(self.lock.place, &object) {
            return self.election.hub.send_all(&Hint::Recheck); // which asks what came before it
        }
        match self.lock.learn(&self.election, &self.name, object) {
            Ok(known) => {
                let hint = Hint::Stored { record: known.record(), previous: None, age: None };
                self.election.hub.send_all(&hint);
            }
            Err(_) => self.election.hub.send_all(&Hint::Recheck), // which says what is wrong
        }
    }

    fn went_on_to(&mut self, object: &Value) -> Option<u64> {
        let version = resource_version(object)?;
        self.heard = self.heard.max(Revision(version));
        self.from = Some(version.to_string());
        Some(version)
    }
}
