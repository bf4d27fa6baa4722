//! What an object says of an election, and what is written into it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::race_entry::{RaceEntry, Timestamp};
use super::vimeo_timing::VimeoTiming;
use crate::lock::Advertisement;
use crate::lock::codec::mark::{DecodedMark, EncodedMark, identity};
use crate::lock::{Content, Entry, Tombstone};

const CURRENT: u32 = 1;

/// The key under which the addresses of a Go leader are told that are more than one.
const ADDRESSES: &str = "addresses";

/// Our field.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Mark {
    version: u32,
    #[serde(flatten)]
    says: EncodedMark,
}

/// The mark as it is written.
pub(super) fn mark(says: EncodedMark) -> Option<String> {
    serde_json::to_string(&Mark { version: CURRENT, says }).ok()
}

/// What a message says. `now`: by the wall clock.
pub(super) fn content(entry: &RaceEntry, terms: VimeoTiming, now: SystemTime) -> Content {
    let mark = entry.mark.as_ref().and_then(|text| serde_json::from_str::<Mark>(text).ok());
    let said = mark.filter(|mark| mark.version == CURRENT).and_then(|mark| mark.says.decode());
    match said {
        Some(DecodedMark::Released(tombstone)) => Content::Vacant(tombstone),
        Some(DecodedMark::Held(mark, advertisement)) => {
            let life = mark.lease;
            let identity = identity(&entry.leader_id);
            Content::Held(Entry { identity, mark: Some(mark), ttl: life, advertisement })
        }
        // Go's campaigners never empty it: somebody else did.
        None if entry.leader_id.is_empty() => Content::Vacant(Tombstone::Deleted),
        None => {
            let said = entry.term_expiry.map_or(Duration::ZERO, |expiry| expiry.since(now));
            Content::Held(Entry {
                identity: identity(&entry.leader_id),
                mark: None,
                ttl: terms.wait_for_go(said),
                advertisement: addresses(&entry.host_port),
            })
        }
    }
}

/// Where a Go leader can be reached.
fn addresses(host_port: &[String]) -> Option<Arc<Advertisement>> {
    let (first, more) = host_port.split_first()?;
    let mut said = Advertisement::new(first.as_str());
    if !more.is_empty() {
        said = said.with(ADDRESSES, host_port.join(","));
    }
    Some(said).filter(|said| said.check().is_ok()).map(Arc::new)
}

/// What Go's clients are told to dial: an address, but no URL.
pub(super) fn host_port(advertisement: Option<&Advertisement>) -> Vec<String> {
    let Some(said) = advertisement.filter(|said| !said.address().contains("://")) else {
        return Vec::new();
    };
    match said.metadata().get(ADDRESSES) {
        Some(all) if all.split(',').next() == Some(said.address()) => {
            all.split(',').map(str::to_owned).collect()
        }
        _ => vec![said.address().to_owned()],
    }
}

impl Timestamp {
    /// `after` from `now`.
    pub(super) fn at(now: SystemTime, after: Duration) -> Self {
        let at = now.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_add(after);
        Self {
            seconds: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(at.subsec_nanos()).unwrap_or_default(),
        }
    }

    /// How long after `now` it is.
    fn since(self, now: SystemTime) -> Duration {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = u64::try_from(self.seconds).unwrap_or_default();
        let nanos = u32::try_from(self.nanos).unwrap_or_default().min(999_999_999);
        Duration::new(seconds, nanos).saturating_sub(now)
    }
}
