//! A bucket: opened, made, or promised for later.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, warn};

use super::api::{Api, Failure};
use super::config::BucketConfig;
use super::connection::{Connection, RequestFailure};
use super::error::{BucketError, BucketErrorKind};
use super::health::Finding;
use super::lock::NatsLock;
use super::stream::{Facts, StreamInfo};
use super::subscribe::Hub;
use super::time::since_epoch;
use crate::time::timer::from_now;

/// How long opening and making a bucket wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// After this long without an answer the bucket is asked about, or made, again: a stream that is being made has no leader yet,
/// nor has a cluster that has just started, and what they are asked then is lost.
pub(super) const ATTEMPT: Duration = Duration::from_secs(2);

/// How many reads of a bucket may be under way at once.
const LOOKS: usize = 256;

/// A key-value bucket that carries elections. Cheap to clone; clones share one subscription.
#[derive(Clone)]
pub struct Bucket(pub(super) Arc<Inner>);

/// What the clones of a bucket, its locks and its listener share.
pub(super) struct Inner {
    pub(super) config: BucketConfig,
    pub(super) api: Api,
    pub(super) hub: Hub,
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
    pub(super) looks: tokio::sync::Semaphore,
    /// Held by who reads first on a connection: of thousands one finds out for all whether reads are answered.
    pub(super) first_read: tokio::sync::Mutex<()>,
    /// The connection on which a read was answered; 0: none.
    readable: AtomicU64,
}

#[derive(Default)]
struct Known {
    facts: Option<Arc<Facts>>,
    /// The least TTL that campaigns here may have been timed by.
    promised: Option<Duration>,
    /// How many attempts to open have ended, and how the last one failed.
    attempts: u64,
    failure: Option<BucketError>,
}

impl Bucket {
    /// Opens a bucket that exists.
    ///
    /// # Errors
    /// [`BucketErrorKind::Missing`], [`Denied`](BucketErrorKind::Denied) and
    /// [`Unavailable`](BucketErrorKind::Unavailable) as they say; [`Unusable`](BucketErrorKind::Unusable) where its
    /// settings cannot carry an election: no TTL, or one that is not within 1 s and 1 h.
    ///
    /// # Cancel safety
    /// Nothing is left behind.
    pub async fn open(
        connection: impl Into<Connection>,
        name: impl Into<String>,
    ) -> Result<Self, BucketError> {
        Self::open_with(connection, BucketConfig::new(name)).await
    }

    /// Opens a bucket that exists, in a domain or below an API prefix. Of `config` only these and the name are used.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    ///
    /// # Cancel safety
    /// Nothing is left behind.
    pub async fn open_with(
        connection: impl Into<Connection>,
        config: BucketConfig,
    ) -> Result<Self, BucketError> {
        let bucket = Self::unopened(connection, config)?;
        let info = bucket.0.ask(TIMEOUT).await?;
        bucket.0.learn(&info, false)?;
        Ok(bucket)
    }

    /// Makes a bucket. One that exists with the same TTL, storage and replicas is opened.
    ///
    /// # Errors
    /// [`BucketErrorKind::Exists`] where it exists with other settings; else those of [`open`](Self::open).
    ///
    /// # Cancel safety
    /// A bucket may be left behind.
    pub async fn create(
        connection: impl Into<Connection>,
        config: BucketConfig,
    ) -> Result<Self, BucketError> {
        let bucket = Self::unopened(connection, config)?;
        let (info, made) = bucket.0.make(TIMEOUT).await?;
        let facts = bucket.0.learn(&info, made)?;
        if !made && let Some(difference) = bucket.0.difference(&facts) {
            let name = &bucket.0.config.name;
            return Err(BucketError::new(
                BucketErrorKind::Exists,
                format!(
                    "bucket {name} exists with {difference}; open it as it is, or delete it first"
                ),
            ));
        }
        Ok(bucket)
    }

    /// Opens a bucket, and makes it if it does not exist. Never alters one that does, whatever its settings.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    ///
    /// # Cancel safety
    /// A bucket may be left behind.
    pub async fn create_or_open(
        connection: impl Into<Connection>,
        config: BucketConfig,
    ) -> Result<Self, BucketError> {
        let mut config = config;
        config.create = true;
        let bucket = Self::unopened(connection, config)?;
        bucket.0.open(TIMEOUT).await?;
        Ok(bucket)
    }

    /// A bucket that is opened (or made, with [`BucketConfig::create_if_missing`]) at its first use, and at each later
    /// use until that succeeds. Does no I/O.
    ///
    /// Elections here are timed by the TTL of `config`; a bucket that turns out to have a shorter one is refused.
    ///
    /// # Errors
    /// [`BucketErrorKind::Unusable`] where `config` cannot be.
    pub fn deferred(
        connection: impl Into<Connection>,
        config: BucketConfig,
    ) -> Result<Self, BucketError> {
        let bucket = Self::unopened(connection, config)?;
        bucket.0.known().promised = Some(bucket.0.config.ttl);
        Ok(bucket)
    }

    /// A lock on this bucket, for any number of elections.
    pub fn lock(&self) -> NatsLock {
        NatsLock::new(self.clone())
    }

    /// The bucket's name.
    pub fn name(&self) -> &str {
        &self.0.config.name
    }

    /// The bucket's TTL, which is the longest lease: as told in its configuration until it was opened.
    pub fn ttl(&self) -> Duration {
        self.0.known_facts().map_or(self.0.config.ttl, |facts| facts.lease)
    }

    /// Looks for what is dangerous or missing, the worst first. An empty list is the best answer.
    ///
    /// Reads up to 100 keys, where there is the right to read.
    ///
    /// # Errors
    /// [`BucketErrorKind::Missing`], [`Denied`](BucketErrorKind::Denied),
    /// [`Unavailable`](BucketErrorKind::Unavailable). Settings are findings, not errors.
    ///
    /// # Cancel safety
    /// It may be dropped at any time.
    pub async fn health(&self) -> Result<Vec<Finding>, BucketError> {
        super::health::examine(&self.0).await
    }

    fn unopened(
        connection: impl Into<Connection>,
        config: BucketConfig,
    ) -> Result<Self, BucketError> {
        config.check()?;
        let api = Api::new(connection.into(), &config);
        Ok(Self(Arc::new(Inner {
            config,
            api,
            hub: Hub::default(),
            known: Mutex::default(),
            server_time: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            stale: AtomicBool::new(false),
            unreadable: AtomicU64::new(0),
            looks: tokio::sync::Semaphore::new(LOOKS),
            first_read: tokio::sync::Mutex::default(),
            readable: AtomicU64::new(0),
        })))
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("name", &self.0.config.name).finish_non_exhaustive()
    }
}

impl Inner {
    /// What is known without asking.
    pub(super) fn known_facts(&self) -> Option<Arc<Facts>> {
        self.known().facts.clone()
    }

    /// What is known; asks the server where nothing is, or where it is out of date. Waits for `timeout` at the most.
    pub(super) async fn facts(&self, timeout: Duration) -> Result<Arc<Facts>, BucketError> {
        let known = self.known_facts();
        if let Some(facts) = &known
            && !self.stale.load(Ordering::Relaxed)
        {
            return Ok(facts.clone());
        }
        // What is known may do: most of the time is left for the request that this is for.
        let patience = if known.is_some() { timeout / 3 } else { timeout };
        match (self.open(patience).await, known) {
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
    pub(super) async fn weigh_emptiness(&self, timeout: Duration) -> Result<bool, BucketError> {
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
    pub(super) fn learn(&self, info: &StreamInfo, made: bool) -> Result<Arc<Facts>, BucketError> {
        let mut facts = Facts::check(&self.config, info)?;
        let mut known = self.known();
        match &known.facts {
            Some(old) if old.created == facts.created => facts.made_here = old.made_here,
            Some(_) => warn!(bucket = %self.config.name, "the bucket was deleted and made again"),
            None => facts.made_here = made && info.did_create,
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
        let deadline = from_now(timeout);
        let (asked, answer) = loop {
            let asked = Instant::now();
            let left = deadline.saturating_duration_since(asked);
            match self.api.info(left.min(ATTEMPT)).await {
                Err(Failure::Request(RequestFailure::TimedOut(_))) if left > ATTEMPT => {}
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
    async fn open(&self, timeout: Duration) -> Result<Arc<Facts>, BucketError> {
        let deadline = from_now(timeout);
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

    async fn open_now(&self, deadline: Instant) -> Result<Arc<Facts>, BucketError> {
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

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
