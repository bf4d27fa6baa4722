//! Tests whether a store has the properties that elections rely on, on an object of the probe's
//! own.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use object_store::UpdateVersion;
use object_store::path::Path;
use prost::Message;
use tokio::time::{Instant, sleep};

use super::bucket::Bucket;
use crate::backends::object_storage::race_entry::{RaceEntry, Timestamp};
use crate::lock::{LockError, LockErrorKind};
use crate::time::timer::deadline_after;

/// The name of the probe's object. Programs that list elections meanwhile see an election without a
/// leader.
const NAME: &str = "incumbent-doctor";
/// Google Cloud Storage accepts one write per second of one object.
const PAUSE: Duration = Duration::from_secs(1);

/// The results of a probe.
#[derive(Debug)]
#[non_exhaustive]
pub struct BucketFacts {
    /// Whether it refuses to create an object that exists.
    pub refuses_to_create: bool,
    /// Whether it refuses to replace an object that has been replaced meanwhile.
    pub refuses_to_replace: bool,
    /// Its clock, at the time of its response to the last write.
    pub clock: Option<SystemTime>,
    /// The duration of each request.
    pub spans: Vec<Duration>,
    /// Why the probe's object still exists; `None`: it was removed. Elections do not need the
    /// permission to delete.
    pub left: Option<LockError>,
}

impl Bucket {
    /// Tests whether conditional writes are refused where they must be, on the object
    /// `incumbent-doctor` of the prefix, which is removed afterwards. Takes two seconds, since a
    /// store may accept one write per second of one object.
    ///
    /// # Errors
    /// As those of the [lock](Bucket::lock), for the first request that fails. `timeout` applies to
    /// each request.
    ///
    /// # Cancel safety
    /// If dropped, the object may be left behind; the next probe removes it.
    pub async fn probe(&self, timeout: Duration) -> Result<BucketFacts, LockError> {
        let path = self.probed()?;
        let store = &self.store;
        let (mut spans, mut number) = (Vec::new(), fastrand::u64(..1 << 32));
        let mut put = async |replaced: Option<&UpdateVersion>| {
            // Each content is different: the same content would have the same ETag.
            number += 1;
            let entry = RaceEntry {
                election_number: number,
                term_expiry: Some(Timestamp::at(SystemTime::now(), Duration::ZERO)),
                ..RaceEntry::default()
            };
            let body = Bytes::from(entry.encode_to_vec());
            let start = Instant::now();
            let written = store.put(&path, replaced, &body, deadline_after(timeout)).await;
            spans.push(start.elapsed());
            written
        };
        // An object that an earlier probe left behind is used again.
        let first = match store.get(&path, deadline_after(timeout)).await? {
            Some((version, _)) => version,
            None => put(None).await?,
        };
        let again = unless_refused(put(None).await)?;
        let refuses_to_create = again.is_none();
        let first = again.unwrap_or(first);
        sleep(PAUSE).await;
        put(Some(&first)).await?;
        let refuses_to_replace = unless_refused(put(Some(&first)).await)?.is_none();
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

/// Returns what was written; `None`: the write was refused because its condition did not hold.
fn unless_refused(
    written: Result<UpdateVersion, LockError>,
) -> Result<Option<UpdateVersion>, LockError> {
    match written {
        Err(error) if error.kind() == LockErrorKind::Conflict => Ok(None),
        written => written.map(Some),
    }
}
