//! Whether a store keeps what elections rest on, tried out on an object of the probe's own.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use object_store::UpdateVersion;
use object_store::path::Path;
use tokio::time::{Instant, sleep};

use super::bucket::Bucket;
use crate::backends::object_storage::race_entry::{RaceEntry, Timestamp};
use crate::lock::{LockError, LockErrorKind};
use crate::time::timer::deadline_after;

/// The name of the probe's object. It is an election's that nobody holds, for whoever lists them meanwhile.
const NAME: &str = "incumbent-doctor";
/// Google Cloud Storage takes one write a second of one object.
const PAUSE: Duration = Duration::from_secs(1);

/// What a probe has found out about a store.
#[derive(Debug)]
#[non_exhaustive]
pub struct BucketFacts {
    /// Whether it refuses to create an object that is there.
    pub refuses_to_create: bool,
    /// Whether it refuses to write over an object that has been written over meanwhile.
    pub refuses_to_replace: bool,
    /// Its clock, as of its answer to the last write.
    pub clock: Option<SystemTime>,
    /// How long each answer took.
    pub spans: Vec<Duration>,
    /// Why the probe's object is still there; `None`: it was removed. Elections need no such right.
    pub left: Option<LockError>,
}

impl Bucket {
    /// Sees whether conditional writes are refused where they must be, on the object `incumbent-doctor` of the prefix, which is
    /// removed afterwards. Takes two seconds, since a store may take one write a second of one object.
    ///
    /// # Errors
    /// As those of the [lock](Bucket::lock): what the first request that fails was answered. `timeout` is for each.
    ///
    /// # Cancel safety
    /// The object may be left behind; the next probe removes it.
    pub async fn probe(&self, timeout: Duration) -> Result<BucketFacts, LockError> {
        let path = self.probed()?;
        let store = &self.store;
        let (mut spans, mut number) = (Vec::new(), fastrand::u64(..1 << 32));
        let mut put = async |replaced: Option<&UpdateVersion>| {
            // No two have the same content: where they had, they would have the same ETag.
            number += 1;
            let entry = RaceEntry {
                election_number: number,
                term_expiry: Some(Timestamp::at(SystemTime::now(), Duration::ZERO)),
                ..RaceEntry::default()
            };
            let body = Bytes::from(entry.encode());
            let start = Instant::now();
            let written = store.put(&path, replaced, &body, deadline_after(timeout)).await;
            spans.push(start.elapsed());
            written
        };
        // What an earlier one has left serves as well.
        let first = match store.get(&path, deadline_after(timeout)).await? {
            Some((version, _)) => version,
            None => put(None).await?,
        };
        let refuses_to_create = is_refused(put(None).await)?;
        sleep(PAUSE).await;
        put(Some(&first)).await?;
        let refuses_to_replace = is_refused(put(Some(&first)).await)?;
        let clock = store.written_at(&path, deadline_after(timeout)).await?;
        sleep(PAUSE).await;
        let left = store.delete(&path, deadline_after(timeout)).await.err();
        Ok(BucketFacts { refuses_to_create, refuses_to_replace, clock, spans, left })
    }

    fn probed(&self) -> Result<Path, LockError> {
        Path::parse(format!("{}{NAME}", self.prefix))
            .map_err(|error| LockError::new(LockErrorKind::Misconfigured, error.to_string()))
    }
}

/// Whether a write was refused because of what stands there.
fn is_refused(written: Result<UpdateVersion, LockError>) -> Result<bool, LockError> {
    match written {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == LockErrorKind::Conflict => Ok(true),
        Err(error) => Err(error),
    }
}
