//! Hints from one watch on all keys below the prefix, shared by all elections of a lock.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::client::Watch;
use super::codec::Origin;
use super::errors::said;
use super::lock::{Known, LockState, Version, after, read_of};
use super::messages::{Event, WatchCreateRequest, WatchResponse};
use crate::backends::hint_hub::{BEGINS_WITHIN, HintHub, Listen};
use crate::lock::{Coverage, Hint};
use crate::time::timer::deadline_after;
use crate::util::retry::BackendRetries;

/// The pause before the next attempt where the watch is denied.
const DENIED_PAUSE: Duration = Duration::from_secs(60);

impl Listen for LockState {
    type Note = ();

    fn hub(&self) -> &HintHub<()> {
        &self.hub
    }

    fn forget(&self, name: &str) {
        self.elections.remove(name);
    }

    fn listen(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        run(self)
    }
}

/// Watches until dropped.
async fn run(lock: Arc<LockState>) {
    let mut pauses = BackendRetries::unseeded();
    let place = lock.client.place();
    loop {
        let pause = match begin(&lock).await {
            Ok((watch, era)) => {
                // Every subscriber then reads. What was written before it has no event.
                lock.hub.announce(Coverage::Full);
                let began = Instant::now();
                let end = deliver(&lock, watch, era).await;
                debug!(at = place, end, "the watch has ended");
                pauses.delay_after(began)
            }
            Err(NoWatch { why, is_denied }) => {
                debug!(at = place, why, "not watching");
                if is_denied { DENIED_PAUSE } else { pauses.delay() }
            }
        };
        lock.hub.announce(Coverage::None);
        sleep(pause).await;
    }
}

/// Why there is no watch.
struct NoWatch {
    why: String,
    is_denied: bool,
}

/// Begins a watch, and waits for the response that says so. Returns the era of the cluster, which a
/// read shows: a candidate that receives all hints writes over a silent holder's entry without one.
async fn begin(lock: &LockState) -> Result<(Watch, u64), NoWatch> {
    let failed = |why: String| NoWatch { why, is_denied: false };
    let (key, range_end) = (lock.prefix.clone().into_bytes(), after(lock.prefix.as_bytes()));
    let read = read_of(key.clone());
    let request = WatchCreateRequest { key, range_end, prev_kv: true };
    let watch = lock.client.watch(request, deadline_after(BEGINS_WITHIN)).await;
    let mut watch = watch.map_err(|error| failed(error.to_string()))?;
    match timeout(BEGINS_WITHIN, watch.responses.message()).await {
        Ok(Ok(Some(first))) if first.created && !first.canceled => {
            is_of_cluster(lock, &watch, &first).map_err(failed)?;
            let read = lock.client.range(read, deadline_after(BEGINS_WITHIN)).await;
            let (_, era) = read.map_err(|error| failed(error.to_string()))?;
            Ok((watch, era))
        }
        Ok(Ok(Some(first))) => {
            // A watch is refused in this way, with no word of why, and an old token too.
            lock.client.forget_token_of(&watch).await;
            let why = format!("the watch is refused: {}", said(&first.cancel_reason));
            Err(NoWatch { is_denied: first.cancel_reason.contains("denied"), why })
        }
        Ok(Ok(None)) => Err(failed("the watch has ended at once".to_owned())),
        Ok(Err(status)) => {
            lock.client.leave_member_of(&watch);
            Err(failed(said(status.message()).into_owned()))
        }
        Err(_) => {
            lock.client.leave_member_of(&watch);
            Err(failed("the watch does not begin".to_owned()))
        }
    }
}

/// Passes events on until the watch ends. Returns why it did.
///
/// The connection is tested, so a watch that hangs ends, and a member without a leader ends it.
async fn deliver(lock: &LockState, mut watch: Watch, era: u64) -> String {
    loop {
        let response = match watch.responses.message().await {
            Ok(Some(response)) => response,
            Ok(None) => return "the server has ended it".to_owned(),
            Err(status) => {
                lock.client.leave_member_of(&watch);
                return said(status.message()).into_owned();
            }
        };
        // As after a compaction of what it did not deliver.
        if response.canceled || response.compact_revision != 0 {
            return format!("cancelled: {}", said(&response.cancel_reason));
        }
        if let Err(why) = is_of_cluster(lock, &watch, &response) {
            return why;
        }
        if lock.client.seen().era != era {
            return "the cluster was set back".to_owned();
        }
        let origin = lock.client.origin_of(response.header);
        response.events.iter().for_each(|event| on_event(lock, event, origin, era));
    }
}

/// Another cluster at the address shows nothing of this one.
fn is_of_cluster(lock: &LockState, watch: &Watch, response: &WatchResponse) -> Result<(), String> {
    let checked = lock.client.check(lock.client.place(), response.header.as_ref(), None);
    checked.map(drop).map_err(|error| {
        lock.client.leave_member_of(watch);
        error.to_string()
    })
}

/// An event is a reason to look, and no fact: anybody who may write the key may have written it.
fn on_event(lock: &LockState, event: &Event, origin: Origin, era: u64) {
    let Some(kv) = &event.kv else { return };
    let key = std::str::from_utf8(&kv.key).ok();
    let Some(name) = key.and_then(|key| key.strip_prefix(lock.prefix.as_str())) else { return };
    if lock.hub.has(name) {
        lock.hub.send(name, &hint(lock, name, event, origin, era), |()| ());
    }
}

fn hint(lock: &LockState, name: &str, event: &Event, origin: Origin, era: u64) -> Hint {
    const PUT: i32 = 0;
    let Some(kv) = event.kv.as_ref().filter(|_| event.kind == PUT) else { return Hint::Recheck };
    let Some((value, content)) = LockState::decode(kv) else { return Hint::Recheck };
    let (revision, is_set_back) = (value.revision, value.is_set_back(origin));
    // Later than a response, or of a store that was set back.
    let election = lock.elections.get(name);
    if is_set_back || Some(revision) < election.newest() {
        return Hint::Recheck;
    }
    // The candidate writes over what the hint shows, without a read.
    let (version, number) = (Version::of(kv, era), revision.0.saturating_sub(1));
    let known = election.learn(Known { version, number, revision, content });
    let Some(known) = known else { return Hint::Recheck };
    let previous = event.prev_kv.as_ref().and_then(LockState::decode);
    let previous = match previous {
        Some((previous, _)) => Some(Some(previous.revision)),
        None if kv.version == 1 => Some(None),
        None => None,
    };
    Hint::Stored { record: known.record(), previous, age: None }
}
