//! The public handle of a bucket.

use std::sync::Arc;
use std::time::Duration;

use super::config::BucketConfig;
use super::connection::Connection;
use super::error::{BucketError, BucketErrorKind};
use super::health;
use super::lock::NatsLock;
use super::state::BucketState;
use crate::lock::Finding;

/// The timeout of opening and creating a bucket.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A key-value bucket for elections. Cheap to clone; clones share one subscription.
///
/// ```no_run
/// use incumbent::nats::{self, Bucket};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let connection = nats::connect("nats.example.net", Default::default()).await?;
/// let bucket = Bucket::open(connection, "JOBS").await?;
/// let election = incumbent::new_election("my_app", bucket.lock()).start()?;
/// let leadership = election.won().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Bucket(pub(super) Arc<BucketState>);

impl Bucket {
    /// Opens a bucket that exists.
    ///
    /// # Errors
    /// [`BucketErrorKind::Missing`], [`Denied`](BucketErrorKind::Denied),
    /// [`Unavailable`](BucketErrorKind::Unavailable); [`Unusable`](BucketErrorKind::Unusable) if
    /// elections cannot use its settings: no TTL, or one that is not within 1 s and 1 h.
    ///
    /// # Cancel safety
    /// Nothing is left behind.
    pub async fn open(
        connection: impl Into<Connection>,
        name: impl Into<String>,
    ) -> Result<Self, BucketError> {
        Self::open_with(connection, BucketConfig::new(name)).await
    }

    /// Opens a bucket that exists, in a domain or below an API prefix. Only these and the name of
    /// `config` are used.
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
        let info = bucket.0.request_info(TIMEOUT).await?;
        bucket.0.learn(&info, false)?;
        Ok(bucket)
    }

    /// Creates a bucket. If a bucket exists with the same TTL, storage and replicas, it is opened.
    ///
    /// # Errors
    /// [`BucketErrorKind::Exists`] if it exists with other settings; else those of
    /// [`open`](Self::open).
    ///
    /// # Cancel safety
    /// A bucket may be left behind.
    pub async fn create(
        connection: impl Into<Connection>,
        config: BucketConfig,
    ) -> Result<Self, BucketError> {
        let bucket = Self::unopened(connection, config)?;
        let (info, created) = bucket.0.create(TIMEOUT).await?;
        let facts = bucket.0.learn(&info, created)?;
        if !created && let Some(difference) = bucket.0.difference(&facts) {
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

    /// Opens a bucket, and creates it if it does not exist. Never alters an existing bucket,
    /// whatever its settings.
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

    /// Returns a bucket that is opened (or created, with [`BucketConfig::create_if_missing`]) at
    /// its first use, and at each later use until that succeeds. Does no I/O.
    ///
    /// The TTL of `config` times the elections of this bucket. If the bucket turns out to have a
    /// shorter TTL, it is refused.
    ///
    /// # Errors
    /// [`BucketErrorKind::Unusable`] if `config` is invalid.
    pub fn deferred(
        connection: impl Into<Connection>,
        config: BucketConfig,
    ) -> Result<Self, BucketError> {
        let bucket = Self::unopened(connection, config)?;
        bucket.0.promise_ttl(bucket.0.config.ttl);
        Ok(bucket)
    }

    /// Returns a bucket for operators and observers, to which its TTL and other settings do not
    /// matter. Does no I/O.
    ///
    /// # Errors
    /// [`BucketErrorKind::Unusable`] if `config` is invalid.
    pub fn for_admin(
        connection: impl Into<Connection>,
        config: BucketConfig,
    ) -> Result<Self, BucketError> {
        Self::unopened(connection, config)
    }

    /// Returns a lock on this bucket, for any number of elections.
    pub fn lock(&self) -> NatsLock {
        NatsLock::new(Arc::clone(&self.0))
    }

    /// Returns the bucket's name.
    pub fn name(&self) -> &str {
        &self.0.config.name
    }

    /// Returns the bucket's TTL, which is the maximum lease: that of its configuration until the
    /// bucket was opened.
    pub fn ttl(&self) -> Duration {
        self.0.known_facts().map_or(self.0.config.ttl, |facts| facts.lease)
    }

    /// Checks the bucket for dangerous or missing settings, most severe first. An empty list means
    /// no problems.
    ///
    /// Reads up to 100 keys, if permitted.
    ///
    /// # Errors
    /// [`BucketErrorKind::Missing`], [`Denied`](BucketErrorKind::Denied),
    /// [`Unavailable`](BucketErrorKind::Unavailable). Settings are findings, not errors.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub async fn health(&self) -> Result<Vec<Finding>, BucketError> {
        let found = health::check(&self.0, health::TIMEOUT).await;
        found.map_err(|failure| self.0.api.bucket_error(failure, "cannot be read"))
    }

    fn unopened(
        connection: impl Into<Connection>,
        config: BucketConfig,
    ) -> Result<Self, BucketError> {
        config.check()?;
        Ok(Self(Arc::new(BucketState::new(connection.into(), config))))
    }
}

partial_debug!(Bucket, self, name: self.0.config.name);

impl NatsLock {
    /// Returns the bucket.
    pub fn bucket(&self) -> Bucket {
        Bucket(Arc::clone(self.state()))
    }

    /// Returns the bucket's name.
    pub fn bucket_name(&self) -> &str {
        &self.state().config.name
    }
}
