//! The content of an object, and its meaning for the protocol.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::race_entry::{RaceEntry, Timestamp};
use crate::backends::vimeo_timing::VimeoTiming;
use crate::lock::Advertisement;
use crate::lock::codec::mark::{DecodedMark, EncodedMark, identity};
use crate::lock::{Content, Entry, Tombstone};

const CURRENT: u32 = 1;

/// The metadata key for the addresses of a Go leader that has more than one.
const ADDRESSES: &str = "addresses";

/// This library's field.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Mark {
    version: u32,
    #[serde(flatten)]
    encoded: EncodedMark,
}

/// Encodes a mark.
pub(super) fn mark(encoded: EncodedMark) -> Option<String> {
    serde_json::to_string(&Mark { version: CURRENT, encoded }).ok()
}

/// Returns the meaning of a message. `now`: the wall clock.
pub(super) fn content(entry: &RaceEntry, terms: VimeoTiming, now: SystemTime) -> Content {
    let mark = entry.mark.as_ref().and_then(|text| serde_json::from_str::<Mark>(text).ok());
    let decoded =
        mark.filter(|mark| mark.version == CURRENT).and_then(|mark| mark.encoded.decode());
    match decoded {
        Some(DecodedMark::Released(tombstone)) => Content::Vacant(tombstone),
        Some(DecodedMark::Held(mark, advertisement)) => {
            let life = mark.lease;
            let identity = identity(&entry.leader_id);
            Content::Held(Entry { identity, mark: Some(mark), ttl: life, advertisement })
        }
        // Go's candidates never empty the identity: another client did.
        None if entry.leader_id.is_empty() => Content::Vacant(Tombstone::Deleted),
        None => {
            let stated = entry.term_expiry.map_or(Duration::ZERO, |expiry| expiry.since(now));
            Content::Held(Entry {
                identity: identity(&entry.leader_id),
                mark: None,
                ttl: terms.wait_for_go(stated),
                advertisement: addresses(&entry.host_port),
            })
        }
    }
}

/// Returns the addresses of a Go leader.
fn addresses(host_port: &[String]) -> Option<Arc<Advertisement>> {
    let (first, more) = host_port.split_first()?;
    let mut advertisement = Advertisement::new(first.as_str());
    if !more.is_empty() {
        advertisement = advertisement.with(ADDRESSES, host_port.join(","));
    }
    Some(advertisement).filter(|advertisement| advertisement.check().is_ok()).map(Arc::new)
}

/// Returns the addresses for Go's clients to dial: they accept an address, but no URL.
pub(super) fn host_port(advertisement: Option<&Advertisement>) -> Vec<String> {
    let Some(advertisement) =
        advertisement.filter(|advertisement| !advertisement.address().contains("://"))
    else {
        return Vec::new();
    };
    match advertisement.metadata().get(ADDRESSES) {
        Some(all) if all.split(',').next() == Some(advertisement.address()) => {
            all.split(',').map(str::to_owned).collect()
        }
        _ => vec![advertisement.address().to_owned()],
    }
}

impl Timestamp {
    /// Returns the instant `after` later than `now`.
    pub(super) fn at(now: SystemTime, after: Duration) -> Self {
        let at = now.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_add(after);
        Self {
            seconds: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(at.subsec_nanos()).unwrap_or_default(),
        }
    }

    /// Returns how much later than `now` the instant is.
    fn since(self, now: SystemTime) -> Duration {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = u64::try_from(self.seconds).unwrap_or_default();
        let nanos = u32::try_from(self.nanos).unwrap_or_default().min(999_999_999);
        Duration::new(seconds, nanos).saturating_sub(now)
    }
}
