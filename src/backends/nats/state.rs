//! What the clones of a bucket share: its settings as last seen, rights, and subscribers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use crate::backends::hint_hub::{HintHub, Interest};
use crate::lock::{Coverage, Hint, Revision};
use crate::time::timer::deadline_after;

/// After this long without an answer the bucket is asked about, or made, again: a stream that is being made has no leader yet,
/// nor has a cluster that has just started, and what they are asked then is lost.
pub(super) const ATTEMPT: Duration = Duration::from_secs(2);

/// How long a hint may be under way when the same change was read already.
const HINT_DELAY: Duration = Duration::from_secs(2);

/// How many reads of a bucket may be under way at once.
const MAX_READS: usize = 256;

/// What the clones of a bucket, its locks and its listener share.
pub(super) struct BucketState {
    pub(super) config: BucketConfig,
    pub(super) api: Api,
    pub(super) hub: HintHub<Heard>,
    /// Whether writes were read that no hint has told of.
    hints_lost: AtomicBool,
    loss_found: Notify,
    known: Mutex<Known>,
    /// What the server's clock showed, and when.
    server_time: Mutex<Option<(Instant, Duration)>>,
    /// Held while somebody asks the server about the bucket.
    asking: tokio::sync::Mutex<()>,
    /// Whether a request showed that what is known is out of date.
    stale: AtomicBool,
    /// The connection, counted from 1, on which we found that we may not read; 0: none.
    unreadable: AtomicU64,
    /// How many reads may be under way.
    pub(super) read_permits: tokio::sync::Semaphore,
    /// Held by who reads first on a connection: of thousands one finds out for all whether reads are answered.
    pub(super) first_read: tokio::sync::Mutex<()>,
    /// The connection on which a read was answered; 0: none.
    readable: AtomicU64,
}

/// What was heard of an election.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The last write that a hint told.
    heard: u64,
    /// A write that was read and that no hint had told then.
    unheard: Option<(u64, Instant)>,
}

#[derive(Default)]
struct Known {
    facts: Option<Arc<StreamFacts>>,
    /// The least TTL that campaigns here may have been timed by.
    promised: Option<Duration>,
    /// How many attempts to open have ended, and how the last one failed.
    attempts: u64,
    failure: Option<BucketError>,
}

impl BucketState {
    pub(super) fn new(connection: Connection, config: BucketConfig) -> Self {
        Self {
            api: Api::new(connection, &config),
            config,
            hub: HintHub::default(),
            hints_lost: AtomicBool::new(false),
            loss_found: Notify::new(),
            known: Mutex::default(),
            server_time: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            stale: AtomicBool::new(false),
            unreadable: AtomicU64::new(0),
            read_permits: tokio::sync::Semaphore::new(MAX_READS),
            first_read: tokio::sync::Mutex::default(),
            readable: AtomicU64::new(0),
        }
    }

    /// Elections are timed by the TTL that was told, and no shorter one is accepted.
    pub(super) fn promise(&self, ttl: Duration) {
        self.known().promised = Some(ttl);
    }

    /// What is known without asking.
    pub(super) fn known_facts(&self) -> Option<Arc<StreamFacts>> {
        self.known().facts.clone()
    }

    /// What is known; asks the server where nothing is, or where it is out of date. Waits for `timeout` at the most.
    pub(super) async fn facts(&self, timeout: Duration) -> Result<Arc<StreamFacts>, BucketError> {
        let known = self.known_facts();
        if let Some(facts) = &known
            && !self.stale.load(Ordering::Relaxed)
        {
            return Ok(facts.clone());
        }
        // What is known may do: most of the time is left for the request that this is for.
        let timeout_left = if known.is_some() { timeout / 3 } else { timeout };
        match (self.open(timeout_left).await, known) {
            (Err(error), Some(facts))
                if !matches!(
                    error.kind(),
                    BucketErrorKind::Missing | BucketErrorKind::Unusable
                ) =>
            {
                debug!(bucket = %self.config.name, %error, "cannot look at the bucket");
                Ok(facts)
            }
            (answer, _) => answer,
        }
    }

    /// Asks anew what an empty key shows. Where that cannot be found out, it shows nothing.
    pub(super) async fn proves_unused(&self, timeout: Duration) -> Result<bool, BucketError> {
        match self.ask(timeout).await {
            Ok(info) => Ok(self.learn(&info, false)?.empty_is_proof),
            Err(error) => {
                let mut known = self.known();
                if let Some(facts) = &mut known.facts {
                    Arc::make_mut(facts).empty_is_proof = false;
                }
                if error.kind() == BucketErrorKind::Missing { Err(error) } else { Ok(false) }
            }
        }
    }

    /// To be called when an answer shows that the bucket is not what it was.
    pub(super) fn suspect(&self) {
        self.stale.store(true, Ordering::Relaxed);
    }

    /// Takes in what the server says of the bucket.
    pub(super) fn learn(
        &self,
        info: &StreamInfo,
        made: bool,
    ) -> Result<Arc<StreamFacts>, BucketError> {
        let mut facts = StreamFacts::check(&self.config, info)?;
        let mut known = self.known();
        match &known.facts {
            Some(old) if old.created == facts.created => facts.created_here = old.created_here,
            Some(_) => warn!(bucket = %self.config.name, "the bucket was deleted and made again"),
            None => facts.created_here = made && info.did_create,
        }
        let promised = *known.promised.get_or_insert(facts.lease);
        if facts.lease < promised {
            return Err(BucketError::new(
                BucketErrorKind::Unusable,
                format!(
                    "bucket {}: its TTL is {:?}, and campaigns here were timed by {promised:?}; give it that TTL again, or restart them",
                    self.config.name, facts.lease,
                ),
            ));
        }
        facts.empty_is_proof = facts.emptiness_proves(info);
        let facts = Arc::new(facts);
        known.facts = Some(facts.clone());
        self.stale.store(false, Ordering::Relaxed);
        Ok(facts)
    }

    /// Asks the server about the bucket.
    pub(super) async fn ask(&self, timeout: Duration) -> Result<StreamInfo, BucketError> {
        let deadline = deadline_after(timeout);
        let (asked, answer) = loop {
            let asked = Instant::now();
            let left = deadline.saturating_duration_since(asked);
            match self.api.info(left.min(ATTEMPT)).await {
                Err(ApiFailure::Request(RequestFailure::TimedOut(_))) if left > ATTEMPT => {}
                answer => break (asked, answer),
            }
        };
        let info = answer.map_err(|e| self.api.bucket_error(e, "cannot be looked at"))?;
        if let Some(told) = info.ts.as_deref().and_then(since_epoch) {
            let at = asked + asked.elapsed() / 2;
            *self.server_time.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, told));
        }
        Ok(info)
    }

    /// How long ago the server's clock showed `time`, reckoned from when the server was last asked.
    pub(super) fn age(&self, time: Duration) -> Option<Duration> {
        let known = *self.server_time.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, told) = known?;
        Some((told + at.elapsed()).saturating_sub(time))
    }

    /// Asks the server about the bucket, once for all who wait, and makes it if told so and it never was known.
    pub(super) async fn open(&self, timeout: Duration) -> Result<Arc<StreamFacts>, BucketError> {
        let deadline = deadline_after(timeout);
        let before = self.known().attempts;
        let waited = tokio::time::timeout_at(deadline, self.asking.lock()).await;
        let Ok(_asking) = waited else {
            return Err(self.known().failure.clone().unwrap_or_else(|| {
                let message =
                    format!("bucket {}: cannot be looked at in {timeout:?}", self.config.name);
                BucketError::new(BucketErrorKind::Unavailable, message)
            }));
        };
        {
            let known = self.known();
            if known.attempts > before {
                match (&known.failure, &known.facts) {
                    (Some(failure), _) => return Err(failure.clone()),
                    (None, Some(facts)) => return Ok(facts.clone()),
                    (None, None) => {}
                }
            }
        }
        let answer = self.open_now(deadline).await;
        let mut known = self.known();
        known.attempts += 1;
        known.failure = answer.as_ref().err().cloned();
        answer
    }

    async fn open_now(&self, deadline: Instant) -> Result<Arc<StreamFacts>, BucketError> {
        let left = || deadline.saturating_duration_since(Instant::now());
        match self.ask(left()).await {
            Ok(info) => self.learn(&info, false),
            Err(error)
                if error.kind() == BucketErrorKind::Missing
                    && self.config.create
                    && self.known_facts().is_none() =>
            {
                let (info, made) = self.make(left()).await?;
                self.learn(&info, made)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether we may read, as far as was seen on this connection.
    pub(super) fn may_read(&self) -> bool {
        self.unreadable.load(Ordering::Relaxed) != self.api.connection.epoch().saturating_add(1)
    }

    /// Whether a read was answered on this connection.
    pub(super) fn has_read(&self) -> bool {
        self.readable.load(Ordering::Relaxed) == self.api.connection.epoch().saturating_add(1)
    }

    pub(super) fn note_readable(&self, readable: bool) {
        let epoch = self.api.connection.epoch().saturating_add(1);
        let (set, clear) = if readable {
            (&self.readable, &self.unreadable)
        } else {
            warn!(bucket = %self.config.name, "no right to read; unknown outcomes cannot be settled");
            (&self.unreadable, &self.readable)
        };
        set.store(epoch, Ordering::Relaxed);
        clear.store(0, Ordering::Relaxed);
    }

    /// Passes a hint on to those who listen to `name`.
    pub(super) fn send(&self, name: &str, hint: &Hint) {
        if let Hint::Stored { record, .. } = hint {
            self.hub.note(name, |note| note.heard = note.heard.max(record.revision.0));
        }
        self.hub.send(name, hint);
    }

    /// Announces how much is heard from now on, and of what.
    pub(super) fn announce(&self, coverage: Coverage, covered: Interest) {
        self.hints_lost.store(false, Ordering::Relaxed);
        if self.hub.announce_of(coverage, covered) && coverage > Coverage::None {
            self.hub.send_all(&Hint::Recheck); // what happened before, nobody has told
        }
    }

    /// Takes note of a write that was read. One that is still not told at a read much later shows that hints do not
    /// come: a subscription without the right to it is silent, as is one in an account that they do not reach.
    pub(super) fn was_read(&self, name: &str, revision: Revision) {
        if self.hub.coverage() < Coverage::Full {
            return;
        }
        let now = Instant::now();
        let lost = self.hub.note(name, |note| match note.unheard {
            _ if note.heard == 0 => {
                note.heard = revision.0; // may be older than the subscription
                false
            }
            _ if revision.0 <= note.heard => {
                note.unheard = None;
                false
            }
            Some((unheard, since)) if unheard > note.heard => {
                now.saturating_duration_since(since) > HINT_DELAY
            }
            _ => {
                note.unheard = Some((revision.0, now));
                false
            }
        });
        if lost == Some(true) && !self.hints_lost.swap(true, Ordering::Relaxed) {
            self.loss_found.notify_one();
        }
    }

    /// Waits until writes are found that no hint has told of. For the listener alone. Cancel safe.
    pub(super) async fn hints_lost(&self) {
        while !self.hints_lost.load(Ordering::Relaxed) {
            self.loss_found.notified().await;
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::hint_hub::size_of_election;

    #[test]
    fn an_election_takes_little_memory() {
        let bytes = size_of_election::<BucketState>();
        assert!(bytes <= 200, "{bytes} bytes");
    }
}
