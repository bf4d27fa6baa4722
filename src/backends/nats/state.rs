//! The state that the clones of a bucket share: its last known settings, permissions, and
//! subscribers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::api::{Api, ApiFailure};
use super::config::BucketConfig;
use super::connection::{Connection, RequestFailure};
use super::error::{BucketError, BucketErrorKind};
use super::stream::{StreamFacts, StreamInfo};
use super::time::since_epoch;
use crate::backends::hint_hub::{HINT_DELAY, HintHub, Interest};
use crate::lock::{Content, Coverage, Entry, Hint, Nonce, Revision, Tombstone};
use crate::time::timer::deadline_after;
use crate::util::locked;

/// How long to wait before a request about the bucket, or its creation, is repeated: a new stream
/// has no leader yet, nor has a cluster that has just started, and requests sent then are lost.
pub(super) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of reads of a bucket in flight.
const MAX_READS: usize = 256;

/// The state that the clones of a bucket, its locks and its listener share.
pub(super) struct BucketState {
    pub(super) config: BucketConfig,
    pub(super) api: Api,
    pub(super) hub: HintHub<HintNote>,
    /// Whether reads returned writes without a hint.
    hints_lost: AtomicBool,
    /// Whether hints were dropped, and their elections have not rechecked yet.
    hints_dropped: AtomicBool,
    /// What draws the queue group of this process.
    draw: u16,
    loss_found: Notify,
    known: Mutex<OpenedBucket>,
    /// The time of the server's clock, and when it was read.
    server_time: Mutex<Option<(Instant, Duration)>>,
    /// Held during a request about the bucket.
    opening: tokio::sync::Mutex<()>,
    /// Whether a request showed that the known settings are out of date.
    stale: AtomicBool,
    /// Counts what a create must not rely on the known TTL for.
    doubts: AtomicU64,
    /// The connection, counted from 1, on which the server denied a read; 0: none.
    unreadable: AtomicU64,
    /// The permits of reads in flight.
    pub(super) read_permits: tokio::sync::Semaphore,
}

/// The hints and reads of an election.
#[derive(Debug, Default)]
pub(super) struct HintNote {
    /// The revision of the last hint.
    hinted: u64,
    /// A write that was read before its hint, and when.
    missing_hint: Option<(u64, Instant)>,
}

#[derive(Default)]
struct OpenedBucket {
    facts: Option<Arc<StreamFacts>>,
    /// The doubts that these facts answer.
    doubts: u64,
    /// The minimum TTL that elections here may rely on.
    promised: Option<Duration>,
    /// The number of finished attempts to open, and the error of the last one.
    attempts: u64,
    failure: Option<BucketError>,
}

impl BucketState {
    pub(super) fn new(connection: Connection, config: BucketConfig) -> Self {
        Self {
            api: Api::new(connection, &config),
            draw: fastrand::u16(..),
            config,
            hub: HintHub::default(),
            hints_lost: AtomicBool::new(false),
            hints_dropped: AtomicBool::new(false),
            loss_found: Notify::new(),
            known: Mutex::default(),
            server_time: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            stale: AtomicBool::new(false),
            doubts: AtomicU64::new(0),
            unreadable: AtomicU64::new(0),
            read_permits: tokio::sync::Semaphore::new(MAX_READS),
        }
    }

    /// Promises a TTL to elections; no shorter one is accepted later.
    pub(super) fn promise_ttl(&self, ttl: Duration) {
        locked(&self.known).promised = Some(ttl);
    }

    /// Returns the known facts without a request.
    pub(super) fn known_facts(&self) -> Option<Arc<StreamFacts>> {
        locked(&self.known).facts.clone()
    }

    /// Returns the known facts, unless a request showed that they are out of date.
    pub(super) fn current_facts(&self) -> Option<Arc<StreamFacts>> {
        self.known_facts().filter(|_| !self.stale.load(Ordering::Relaxed))
    }

    /// Returns the known facts; requests them if there are none, or if they are out of date. Waits
    /// for at most `timeout`.
    pub(super) async fn facts(&self, timeout: Duration) -> Result<Arc<StreamFacts>, BucketError> {
        if let Some(facts) = self.current_facts() {
            return Ok(facts);
        }
        let known = self.known_facts();
        // The known facts may suffice: leave most of the time for the request that needs them.
        let timeout_left = if known.is_some() { timeout / 3 } else { timeout };
        match (self.open(timeout_left).await, known) {
            (Err(error), Some(facts))
                if !matches!(
                    error.kind(),
                    BucketErrorKind::Missing | BucketErrorKind::Unusable
                ) =>
            {
                debug!(bucket = %self.config.name, %error, "reading the bucket failed");
                Ok(facts)
            }
            (answer, _) => answer,
        }
    }

    /// Returns the number of this process's queue group, if there are any.
    pub(super) fn queue_group(&self, facts: &StreamFacts) -> Option<u8> {
        let groups = self.config.queue_groups.unwrap_or_else(|| facts.config.queue_groups());
        u8::try_from(self.draw.checked_rem(groups.into())?).ok()
    }

    /// Requests the bucket, and returns whether an empty key proves that there is no leader.
    /// Without a response it does not.
    pub(super) async fn proves_unused(&self, timeout: Duration) -> Result<bool, BucketError> {
        match self.request_info(timeout).await {
            Ok(info) => Ok(self.learn(&info, false)?.empty_is_proof),
            Err(error) => {
                let mut known = locked(&self.known);
                if let Some(facts) = &mut known.facts {
                    Arc::make_mut(facts).empty_is_proof = false;
                }
                if error.kind() == BucketErrorKind::Missing { Err(error) } else { Ok(false) }
            }
        }
    }

    /// Marks the known facts as out of date. Call this when a response shows that the bucket has
    /// changed.
    pub(super) fn mark_stale(&self) {
        self.stale.store(true, Ordering::Relaxed);
    }

    /// Notes what was read or received. An operator may have changed the TTL, and no message says
    /// so. It counts when a holder's entry is gone that the holder has not released, and an entry
    /// that states a longer lease shows such a change.
    pub(super) fn note_content(&self, content: &Content) {
        let doubtful = match content {
            Content::Held(Entry { mark: Some(mark), .. }) => {
                self.known_facts().is_some_and(|facts| mark.lease > facts.lease)
            }
            Content::Held(_) => false,
            // Who evicts states a lease by the TTL that it knows.
            Content::Vacant(Tombstone::Released { by, .. }) => *by == Nonce::NOBODY,
            Content::Vacant(Tombstone::Deleted | Tombstone::Expired) => true,
        };
        if doubtful {
            self.doubts.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether a create must not rely on the known TTL.
    pub(super) fn doubts_ttl(&self) -> bool {
        locked(&self.known).doubts < self.doubts.load(Ordering::Relaxed)
    }

    /// Checks and records the server's information on the bucket.
    pub(super) fn learn(
        &self,
        info: &StreamInfo,
        created: bool,
    ) -> Result<Arc<StreamFacts>, BucketError> {
        let mut facts = StreamFacts::check(&self.config, info)?;
        let mut known = locked(&self.known);
        let bucket = &self.config.name;
        if let Some(old) = &known.facts
            && facts.config.with_choria()
            && !(old.config.with_choria() || self.config.with_choria)
        {
            warn!(%bucket, "the bucket states now that Choria's candidates take part: restart candidates that were started without that");
        }
        match &known.facts {
            Some(old) if old.created == facts.created => facts.created_here = old.created_here,
            Some(_) => warn!(%bucket, "the bucket was deleted and created again"),
            None => facts.created_here = created && info.did_create,
        }
        let promised = *known.promised.get_or_insert(facts.lease);
        if facts.lease < promised {
            return Err(BucketError::new(
                BucketErrorKind::Unusable,
                format!(
                    "bucket {}: its TTL is {:?}, but running elections rely on {promised:?}; restore that TTL, or restart them",
                    self.config.name, facts.lease,
                ),
            ));
        }
        facts.empty_is_proof = facts.emptiness_proves(info);
        let facts = Arc::new(facts);
        known.facts = Some(facts.clone());
        known.doubts = known.doubts.max(info.doubts);
        self.stale.store(false, Ordering::Relaxed);
        Ok(facts)
    }

    /// Requests the bucket's information from the server.
    pub(super) async fn request_info(&self, timeout: Duration) -> Result<StreamInfo, BucketError> {
        let deadline = deadline_after(timeout);
        let (sent_at, doubts, answer) = loop {
            let sent_at = Instant::now();
            let doubts = self.doubts.load(Ordering::Relaxed);
            let left = deadline.saturating_duration_since(sent_at);
            match self.api.info(left.min(ATTEMPT_TIMEOUT)).await {
                Err(ApiFailure::Request(RequestFailure::TimedOut(_))) if left > ATTEMPT_TIMEOUT => {
                }
                answer => break (sent_at, doubts, answer),
            }
        };
        let mut info = answer.map_err(|e| self.api.bucket_error(e, "cannot be read"))?;
        info.doubts = doubts;
        if let Some(time) = info.ts.as_deref().and_then(since_epoch) {
            let at = sent_at + sent_at.elapsed() / 2;
            *locked(&self.server_time) = Some((at, time));
        }
        Ok(info)
    }

    /// Returns how long ago the server's clock showed `time`, computed from its last known time.
    pub(super) fn age(&self, time: Duration) -> Option<Duration> {
        let known = *locked(&self.server_time);
        let (at, server) = known?;
        Some((server + at.elapsed()).saturating_sub(time))
    }

    /// Requests the bucket's information, once for all waiting callers, and creates the bucket if
    /// configured and if it was never known.
    pub(super) async fn open(&self, timeout: Duration) -> Result<Arc<StreamFacts>, BucketError> {
        let deadline = deadline_after(timeout);
        let before = locked(&self.known).attempts;
        let doubts = self.doubts.load(Ordering::Relaxed);
        let waited = tokio::time::timeout_at(deadline, self.opening.lock()).await;
        let Ok(_opening) = waited else {
            return Err(locked(&self.known).failure.clone().unwrap_or_else(|| {
                let message =
                    format!("bucket {}: cannot be read within {timeout:?}", self.config.name);
                BucketError::new(BucketErrorKind::Unavailable, message)
            }));
        };
        {
            let known = locked(&self.known);
            if known.attempts > before {
                match (&known.failure, &known.facts) {
                    (Some(failure), _) => return Err(failure.clone()),
                    (None, Some(facts)) if known.doubts >= doubts => return Ok(facts.clone()),
                    (None, _) => {}
                }
            }
        }
        let answer = self.open_now(deadline).await;
        let mut known = locked(&self.known);
        known.attempts += 1;
        known.failure = answer.as_ref().err().cloned();
        answer
    }

    async fn open_now(&self, deadline: Instant) -> Result<Arc<StreamFacts>, BucketError> {
        let left = || deadline.saturating_duration_since(Instant::now());
        match self.request_info(left()).await {
            Ok(info) => self.learn(&info, false),
            Err(error)
                if error.kind() == BucketErrorKind::Missing
                    && self.config.create
                    && self.known_facts().is_none() =>
            {
                let (info, created) = self.create(left()).await?;
                self.learn(&info, created)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns whether reads are permitted, as far as the server has said on this connection.
    pub(super) fn can_read(&self) -> bool {
        self.unreadable.load(Ordering::Relaxed) != self.api.connection.epoch().saturating_add(1)
    }

    /// Notes that the server has denied a read on the connection of this epoch.
    pub(super) fn reads_denied(&self, epoch: u64) {
        if self.unreadable.swap(epoch.saturating_add(1), Ordering::Relaxed) <= epoch {
            warn!(bucket = %self.config.name, "permission to read denied: unknown outcomes cannot be verified");
        }
    }

    /// Sends a hint to the subscribers of `name`.
    pub(super) fn send(&self, name: &str, hint: &Hint) {
        if let Hint::Stored { record, .. } = hint {
            self.note_content(&record.content);
        }
        self.hub.send(name, hint, |note| {
            if let Hint::Stored { record, .. } = hint {
                note.hinted = note.hinted.max(record.revision.0);
            }
        });
    }

    /// Announces the coverage from now on, and of which elections.
    pub(super) fn announce(&self, coverage: Coverage, covered: Interest) {
        self.hints_lost.store(false, Ordering::Relaxed);
        self.hub.announce_of(coverage, covered);
        self.hints_dropped.store(false, Ordering::Relaxed);
    }

    /// Notes that hints were dropped on their way: until the next [`announce`](Self::announce) no
    /// missing hint shows that none are received.
    pub(super) fn on_dropped_hints(&self) {
        self.hints_dropped.store(true, Ordering::Relaxed);
    }

    /// Records a write that was read. If its hint is still missing at a read much later, hints are
    /// lost: a subscription without permission is silent, as is one in an account that they do not
    /// reach.
    pub(super) fn on_read(&self, name: &str, revision: Revision) {
        if self.hub.coverage() < Coverage::Full || self.hints_dropped.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        let lost = self.hub.note(name, |note| match note.missing_hint {
            _ if note.hinted == 0 => {
                note.hinted = revision.0; // may be older than the subscription
                false
            }
            _ if revision.0 <= note.hinted => {
                note.missing_hint = None;
                false
            }
            Some((missing_hint, since)) if missing_hint > note.hinted => {
                now.saturating_duration_since(since) > HINT_DELAY
            }
            _ => {
                note.missing_hint = Some((revision.0, now));
                false
            }
        });
        if lost == Some(true) && !self.hints_lost.swap(true, Ordering::Relaxed) {
            self.loss_found.notify_one();
        }
    }

    /// Waits until reads have returned writes without hints. For the listener only. Cancel safe.
    pub(super) async fn hints_lost(&self) {
        while !self.hints_lost.load(Ordering::Relaxed) {
            self.loss_found.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lock::NatsLock;
    use super::*;
    use crate::backends::hint_hub::guard::size_of_election;
    use crate::lock::{Lock, Mark, Nonce, Write, WriteId};

    /// More than the C library keeps at hand for each thread, 1,032 bytes, makes renewals slow.
    #[tokio::test]
    async fn a_write_takes_little_memory() {
        let options = async_nats::ConnectOptions::new().retry_on_initial_connect();
        let client = options.connect("127.0.0.1:1").await.expect("a client without a connection");
        let bucket = BucketState::new(client.into(), BucketConfig::new("B"));
        let mark = Mark::new(WriteId { nonce: Nonce(1), number: 1 }, Duration::ZERO, None);
        let write = Write {
            expected: None,
            identity: "c".into(),
            mark,
            ttl: Duration::ZERO,
            advertisement: None,
            timeout: Duration::ZERO,
        };
        let lock = NatsLock::new(Arc::new(bucket));
        let bytes = size_of_val(&*lock.write("e", write));
        assert!(bytes <= 1_032, "{bytes} bytes");
    }

    #[test]
    fn an_election_takes_little_memory() {
        let bytes = size_of_election::<BucketState>();
        assert!(bytes <= 200, "{bytes} bytes");
    }
}
