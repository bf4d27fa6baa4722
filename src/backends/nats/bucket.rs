//! A bucket: opened, made, or promised for later.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::config::BucketConfig;
use super::connection::Connection;
use super::error::{BucketError, BucketErrorKind};
use super::health::Finding;
use super::lock::NatsLock;
use super::state::BucketState;

/// How long opening and making a bucket wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A key-value bucket that carries elections. Cheap to clone; clones share one subscription.
#[derive(Clone)]
pub struct Bucket(pub(super) Arc<BucketState>);

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
        bucket.0.promise(bucket.0.config.ttl);
        Ok(bucket)
    }

    /// A lock on this bucket, for any number of elections.
    pub fn lock(&self) -> NatsLock {
        NatsLock::new(Arc::clone(&self.0))
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
        super::health::check(&self.0).await
    }

    fn unopened(
        connection: impl Into<Connection>,
        config: BucketConfig,
    ) -> Result<Self, BucketError> {
        config.check()?;
        Ok(Self(Arc::new(BucketState::new(connection.into(), config))))
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("name", &self.0.config.name).finish_non_exhaustive()
    }
}

impl NatsLock {
    /// The bucket.
    pub fn bucket(&self) -> Bucket {
        Bucket(Arc::clone(self.state()))
    }
}
