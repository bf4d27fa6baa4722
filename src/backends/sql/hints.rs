//! What has been heard of which election.

use crate::backends::hint_hub::HintHub;
use crate::lock::{Coverage, Hint, Revision};

/// The subscribers of one lock, and what was heard and read for them.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    pub hub: HintHub<HeardRevisions>,
    /// Tells the listener of what was read and not heard.
    #[cfg(feature = "postgres")]
    pub news: tokio::sync::Notify,
}

#[derive(Debug, Default)]
pub(super) struct HeardRevisions {
    /// The newest revision that was heard; none before the first.
    heard: Option<Revision>,
    /// The newest revision that was read.
    #[cfg(feature = "postgres")]
    read: Option<Revision>,
}

impl Subscribers {
    /// Passes on what was stored under a name. Answers whether it is newer than what was heard before.
    pub fn tell(&self, name: &str, hint: &Hint) -> bool {
        let newer = self.hub.note(name, |note| match hint {
            Hint::Stored { record, .. } => {
                let newer = note.heard < Some(record.revision);
                note.heard = note.heard.max(Some(record.revision));
                newer
            }
            _ => true,
        });
        self.hub.send(name, hint);
        newer.unwrap_or_default()
    }

    /// Whether somebody listens to an election.
    #[cfg(feature = "postgres")]
    pub fn is_heard(&self, name: &str) -> bool {
        self.hub.note(name, |_| ()).is_some()
    }

    /// The newest revision of an election that was heard.
    #[cfg(feature = "sqlite")]
    pub fn heard(&self, name: &str) -> Option<Revision> {
        self.hub.note(name, |note| note.heard)?
    }

    /// Tells how much is heard from now on, if that has changed. What was heard until now counts no more.
    pub fn announce(&self, coverage: Coverage) {
        self.hub.announce(coverage);
    }

    /// The same, where nothing was heard until now. Answers whether that is so.
    #[cfg(feature = "sqlite")]
    pub fn announce_if_none(&self, coverage: Coverage) -> bool {
        let is_none = self.hub.coverage() == Coverage::None;
        if is_none {
            self.announce(coverage);
        }
        is_none
    }

    /// Remembers what was read, to compare it with what is heard.
    #[cfg(feature = "postgres")]
    pub fn was_read(&self, name: &str, revision: Revision) {
        let unheard = self.hub.note(name, |note| {
            note.read = note.read.max(Some(revision));
            // What stood there when listening began is told by nobody.
            *note.heard.get_or_insert(revision) < revision
        });
        if unheard == Some(true) {
            self.news.notify_one();
        }
    }

    /// Whether something was read that nobody has told.
    #[cfg(feature = "postgres")]
    pub fn is_behind(&self) -> bool {
        self.hub.any(|note| note.heard < note.read)
    }
}
