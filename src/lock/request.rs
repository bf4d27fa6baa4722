//! Requests to a lock.

use std::sync::Arc;
use std::time::Duration;

use super::{Content, Mark, Nonce, Pause, Record, Revision, Token};
use crate::lock::Advertisement;

/// A conditional write of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize))]
pub struct Write {
    /// The revision that must still be the last one; `None`: there must be none.
    pub expected: Option<Revision>,
    /// What people read.
    pub identity: Arc<str>,
    /// The rest of the entry.
    pub mark: Mark,
    /// How long the entry must live at least, from this write.
    pub ttl: Duration,
    /// Where the writer can be reached, for readers of the entry. A lock that has no room for it
    /// leaves it out.
    pub advertisement: Option<Arc<Advertisement>>,
    /// How long to wait for the response.
    pub timeout: Duration,
}

/// A conditional delete of one's own entry, marked as its holder's own.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize))]
pub struct Release {
    /// The revision that must still be the last one.
    pub expected: Revision,
    /// The holder; [`Nonce::NOBODY`]: somebody else in its place.
    pub by: Nonce,
    /// What is left of the holder's own cool-down; by nobody, of the time that the holder may lead.
    pub left: Duration,
    /// Why, in one word, for people.
    pub cause: &'static str,
    /// The candidate that the election is handed over to.
    pub to: Option<Nonce>,
    /// The pause of the election.
    pub pause: Option<Pause>,
    /// How long to wait for the response.
    pub timeout: Duration,
}

/// No entry has it. Every lock stores it: more digits are none to a NATS server.
const NO_REVISION: Revision = Revision(1 << 62);

impl Release {
    /// A release of what no entry is, which the lock must refuse as a conflict: it shows whether a
    /// write would be accepted.
    pub fn check(timeout: Duration) -> Self {
        let (expected, by, left) = (NO_REVISION, Nonce::NOBODY, Duration::ZERO);
        Self { expected, by, left, cause: "", to: None, pause: None, timeout }
    }

    /// Whether it is such a [`check`](Self::check), made by [`Lock::check_release`].
    ///
    /// [`Lock::check_release`]: super::Lock::check_release
    pub fn is_check(&self) -> bool {
        self.expected == NO_REVISION
    }

    /// The eviction of the holder of this entry, as an operator does it: a release that leaves as
    /// much time as the holder, and all that it waited for, may lead. `None`: there is no holder.
    pub fn evicting(
        record: &Record,
        max_lease: Duration,
        lock_expires: bool,
        timeout: Duration,
    ) -> Option<Self> {
        let Content::Held(entry) = &record.content else { return None };
        let left = entry.lease(max_lease, lock_expires);
        let (expected, by) = (record.revision, Nonce::NOBODY);
        let pause = entry.pause();
        Some(Self { expected, by, left, cause: "evicted", to: None, pause, timeout })
    }
}

/// The notice of a former holder that its work has stopped and that it does not lead in this term
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub struct StepDownNotice {
    /// The holder.
    pub by: Nonce,
    /// Its term.
    pub token: Token,
    /// Its last write that it knows of.
    pub revision: Revision,
    /// What was left of its cool-down.
    pub left: Duration,
}

/// A request to a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "_history", derive(serde::Serialize))]
pub enum Request {
    /// [`Lock::read`](super::Lock::read).
    Read {
        /// How long to wait for the response.
        timeout: Duration,
    },
    /// [`Lock::write`](super::Lock::write).
    Write(Write),
    /// [`Lock::release`](super::Lock::release).
    Release(Release),
    /// [`Messages::notify_step_down`](super::Messages::notify_step_down).
    NotifyStepDown(StepDownNotice),
}
