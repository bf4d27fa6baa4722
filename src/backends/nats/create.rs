//! Creation of buckets, also by several clients at once.

use std::time::Duration;

use tokio::time::Instant;

use super::api::{ApiFailure, code};
use super::config::first_sequence;
use super::connection::RequestFailure;
use super::error::{BucketError, BucketErrorKind};
use super::state::{ATTEMPT_TIMEOUT, BucketState};
use super::stream::{StreamFacts, StreamInfo};
use crate::time::timer::deadline_after;

/// How often to read a bucket that another client is creating.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl BucketState {
    /// Creates the bucket, or reads the existing one. Returns whether it was created.
    pub(super) async fn create(
        &self,
        timeout: Duration,
    ) -> Result<(StreamInfo, bool), BucketError> {
        let first_sequence = first_sequence();
        // A domain or prefix may lead to a cluster that the connected server is not part of.
        let clustered = || !self.api.is_local() || self.api.connection.cluster().is_some();
        let mut replicas = self.config.replicas.unwrap_or_else(|| if clustered() { 3 } else { 1 });
        let deadline = deadline_after(timeout);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let stream = self.config.stream(replicas, first_sequence);
            match self.api.create(&stream, left.min(ATTEMPT_TIMEOUT)).await {
                Ok(info) => return Ok((info, true)),
                // A repeated request creates no second stream: a server that has created it returns
                // the same response.
                Err(ApiFailure::Request(RequestFailure::TimedOut(_))) if left > ATTEMPT_TIMEOUT => {
                }
                Err(ApiFailure::Server(error)) if error.err_code == code::STREAM_NAME_EXISTS => {
                    return Ok((self.wait_until_created(left).await?, false));
                }
                Err(ApiFailure::Server(error))
                    if error.err_code == code::REPLICAS_NOT_SUPPORTED
                        && self.config.replicas.is_none()
                        && replicas > 1 =>
                {
                    replicas = 1;
                }
                Err(failure) => return Err(self.api.bucket_error(failure, "cannot be created")),
            }
        }
    }

    /// Waits for a bucket that another client is creating: a cluster refuses its name before all
    /// servers know the bucket.
    async fn wait_until_created(&self, timeout: Duration) -> Result<StreamInfo, BucketError> {
        let deadline = deadline_after(timeout);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.request_info(left).await {
                Err(error) if error.kind() == BucketErrorKind::Missing && left > POLL_INTERVAL => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                answer => return answer,
            }
        }
    }

    /// Returns how an existing bucket differs from the configuration.
    pub(super) fn difference(&self, facts: &StreamFacts) -> Option<String> {
        let (wanted, found) = (&self.config, &facts.config);
        let mut differences = Vec::new();
        if found.max_age() != Some(wanted.ttl) {
            let ttl = found.max_age().unwrap_or_default();
            differences.push(format!("a TTL of {ttl:?} instead of {:?}", wanted.ttl));
        }
        if found.storage != wanted.storage.as_str() {
            differences.push(format!(
                "{} storage instead of {}",
                found.storage,
                wanted.storage.as_str()
            ));
        }
        if let Some(replicas) = wanted.replicas
            && u64::try_from(replicas) != Ok(found.num_replicas)
        {
            differences.push(format!("{} replicas instead of {replicas}", found.num_replicas));
        }
        (!differences.is_empty()).then(|| differences.join(", "))
    }
}
