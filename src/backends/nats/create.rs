//! Making a bucket, or finding that somebody else has.

use std::time::Duration;

use tokio::time::Instant;

use super::api::{ApiFailure, code};
use super::config::first_sequence;
use super::connection::RequestFailure;
use super::error::{BucketError, BucketErrorKind};
use super::state::{ATTEMPT, BucketState};
use super::stream::{StreamFacts, StreamInfo};
use crate::time::timer::deadline_after;

/// How often to look for a bucket that is being made.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl BucketState {
    /// Makes the bucket, or looks at the one that is there; answers whether it was made.
    pub(super) async fn make(&self, timeout: Duration) -> Result<(StreamInfo, bool), BucketError> {
        let first_sequence = first_sequence();
        // A domain or prefix may lead to a cluster that the server we are connected to is not part of.
        let clustered = || !self.api.is_local() || self.api.connection.is_clustered();
        let mut replicas = self.config.replicas.unwrap_or_else(|| if clustered() { 3 } else { 1 });
        let deadline = deadline_after(timeout);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let stream = self.config.stream(replicas, first_sequence);
            match self.api.create(&stream, left.min(ATTEMPT)).await {
                Ok(info) => return Ok((info, true)),
                // The same again is no second stream: a server that has made it says the same.
                Err(ApiFailure::Request(RequestFailure::TimedOut(_))) if left > ATTEMPT => {}
                Err(ApiFailure::Server(error)) if error.err_code == code::STREAM_NAME_EXISTS => {
                    return Ok((self.ask_until_there(left).await?, false));
                }
                Err(ApiFailure::Server(error))
                    if error.err_code == code::REPLICAS_NOT_SUPPORTED
                        && self.config.replicas.is_none()
                        && replicas > 1 =>
                {
                    replicas = 1;
                }
                Err(failure) => return Err(self.api.bucket_error(failure, "cannot be made")),
            }
        }
    }

    /// Asks about a bucket that somebody else is making: a cluster refuses its name before all servers know of it.
    async fn ask_until_there(&self, timeout: Duration) -> Result<StreamInfo, BucketError> {
        let deadline = deadline_after(timeout);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.ask(left).await {
                Err(error) if error.kind() == BucketErrorKind::Missing && left > LOOK_AGAIN => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                answer => return answer,
            }
        }
    }

    /// How an existing bucket differs from the configuration.
    pub(super) fn difference(&self, facts: &StreamFacts) -> Option<String> {
        let (told, found) = (&self.config, &facts.config);
        let mut differences = Vec::new();
        if found.max_age() != Some(told.ttl) {
            let ttl = found.max_age().unwrap_or_default();
            differences.push(format!("a TTL of {ttl:?} instead of {:?}", told.ttl));
        }
        if found.storage != told.storage.as_str() {
            differences.push(format!(
                "{} storage instead of {}",
                found.storage,
                told.storage.as_str()
            ));
        }
        if let Some(replicas) = told.replicas
            && u64::try_from(replicas) != Ok(found.num_replicas)
        {
            differences.push(format!("{} replicas instead of {replicas}", found.num_replicas));
        }
        (!differences.is_empty()).then(|| differences.join(", "))
    }
}
