//! Subscriptions per election, and revisions delivered.

use crate::backends::hint_hub::HintHub;
use crate::lock::{Coverage, Hint, Revision};

/// The subscribers of one lock, and the revisions that were delivered to them and read for them.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    pub hub: HintHub<DeliveredRevisions>,
    /// Notifies the listener of a revision that was read and not delivered.
    #[cfg(feature = "postgres")]
    pub news: tokio::sync::Notify,
}

#[derive(Debug, Default)]
pub(crate) struct DeliveredRevisions {
    /// The newest revision that was delivered; `None` before the first.
    delivered: Option<Revision>,
    /// The newest revision that was read.
    #[cfg(feature = "postgres")]
    read: Option<Revision>,
}

impl Subscribers {
    /// Passes a hint on to the subscribers of an election. Returns whether it is newer than the
    /// last one.
    pub fn deliver(&self, name: &str, hint: &Hint) -> bool {
        let newer = self.hub.send(name, hint, |note| match hint {
            Hint::Stored { record, .. } => {
                let newer = note.delivered < Some(record.revision);
                note.delivered = note.delivered.max(Some(record.revision));
                newer
            }
            _ => true,
        });
        newer.unwrap_or_default()
    }

    /// Returns the newest revision of an election that was delivered.
    #[cfg(feature = "sqlite")]
    pub fn delivered(&self, name: &str) -> Option<Revision> {
        self.hub.note(name, |note| note.delivered)?
    }

    /// Announces the coverage of the following hints if it changed, and forgets the revisions
    /// delivered so far.
    pub fn announce(&self, coverage: Coverage) {
        self.hub.announce(coverage);
    }

    /// As `announce`, if there was no coverage until now. Returns whether that was so.
    #[cfg(feature = "sqlite")]
    pub fn announce_if_none(&self, coverage: Coverage) -> bool {
        let is_none = self.hub.coverage() == Coverage::None;
        if is_none {
            self.announce(coverage);
        }
        is_none
    }

    /// Records a revision that was read, for comparison with those delivered.
    #[cfg(feature = "postgres")]
    pub fn record_read(&self, name: &str, revision: Revision) {
        let undelivered = self.hub.note(name, |note| {
            note.read = note.read.max(Some(revision));
            // No notification follows for a row that was written before listening began.
            *note.delivered.get_or_insert(revision) < revision
        });
        if undelivered == Some(true) {
            self.news.notify_one();
        }
    }

    /// Whether a revision was read that no hint delivered.
    #[cfg(feature = "postgres")]
    pub fn is_behind(&self) -> bool {
        self.hub.any(|note| note.delivered < note.read)
    }
}
