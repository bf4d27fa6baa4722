//! What an object says of an election, and what is written into it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::race_entry::{RaceEntry, Timestamp};
use crate::advertisement::Advertisement;
use crate::lock::{Content, Entry, Tombstone};
use crate::says::{Said, Says, identity};

const CURRENT: u32 = 1;

/// The key under which the addresses of a Go leader are told that are more than one.
const ADDRESSES: &str = "addresses";

/// The longest that anybody is waited for, whatever a foreign entry says: twice the longest lease that there is.
const LONGEST_WAIT: Duration = Duration::from_secs(2 * 3600);

/// What the terms of Go's campaigners are measured by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// The longest lease, or term, of anybody in the election.
    pub(super) longest: Duration,
    /// By how much wall clocks may differ.
    pub(super) skew: Duration,
}

/// Our field.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Mark {
    version: u32,
    #[serde(flatten)]
    says: Says,
}

/// The mark as it is written.
pub(super) fn mark(says: Says) -> Option<String> {
    serde_json::to_string(&Mark { version: CURRENT, says }).ok()
}

/// What a message says. `now`: by the wall clock.
pub(super) fn content(entry: &RaceEntry, terms: Terms, now: SystemTime) -> Content {
    let mark = entry.mark.as_ref().and_then(|text| serde_json::from_str::<Mark>(text).ok());
    let said = mark.filter(|mark| mark.version == CURRENT).and_then(|mark| mark.says.meaning());
    match said {
        Some(Said::Released(tombstone)) => Content::Vacant(tombstone),
        Some(Said::Held(mark, advertisement)) => {
            let life = mark.lease;
            let identity = identity(&entry.leader_id);
            Content::Held(Entry { identity, mark: Some(mark), life, advertisement })
        }
        // Go's campaigners never empty it: somebody else did.
        None if entry.leader_id.is_empty() => Content::Vacant(Tombstone::Deleted),
        None => Content::Held(Entry {
            identity: identity(&entry.leader_id),
            mark: None,
            life: wait_for_go(entry.term_expiry, terms, now),
            advertisement: addresses(&entry.host_port),
        }),
    }
}

/// What is believed of a message that was put back in the place of later ones: that somebody holds the election. Whoever has
/// the mark in it may long be out of office.
pub(super) fn set_back(content: Content, terms: Terms) -> Content {
    match content {
        Content::Held(entry) => {
            let life = entry.life.max(terms.longest);
            Content::Held(Entry { mark: None, life, ..entry })
        }
        Content::Vacant(_) => Content::Vacant(Tombstone::Deleted),
    }
}

/// For how long a Go campaigner must be waited for, from when its entry was first seen.
///
/// Its term ends one term after it began to write, and its work goes by a context that is cancelled when a renewal
/// that hangs has timed out, which is up to another term later. How long its term is does not stand in the entry. So it is taken
/// for the longest that there may be; and where the entry's wall-clock time says that it ends later still, for that.
fn wait_for_go(expiry: Option<Timestamp>, terms: Terms, now: SystemTime) -> Duration {
    let said = expiry.map_or(Duration::ZERO, |expiry| expiry.since(now));
    let by_wall_clock = said.saturating_add(terms.skew).saturating_add(terms.longest);
    terms.longest.saturating_mul(2).max(by_wall_clock).min(LONGEST_WAIT)
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
