//! A row, in the words of the lock.

use std::sync::Arc;
use std::time::Duration;

use super::LONGEST_IDENTITY;
use crate::advertisement::Advertisement;
use crate::lock::{Content, Entry, Mark, Nonce, Record, Revision, Token, Tombstone, WriteId};
use crate::text::head;

/// The longest span that is believed of a row: no lease and no cool-down is longer than an hour.
const LONGEST_SPAN: Duration = Duration::from_secs(2 * 3600);

/// The columns that say something. Anybody may have written them by hand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "postgres", derive(serde::Deserialize))]
pub(super) struct Row {
    pub revision: u64,
    #[cfg_attr(feature = "postgres", serde(default))]
    pub holder: Option<String>,
    #[cfg_attr(feature = "postgres", serde(default))]
    pub acquired_ms: Option<i64>,
    #[cfg_attr(feature = "postgres", serde(default))]
    pub lease_ms: i64,
    #[cfg_attr(feature = "postgres", serde(default))]
    pub token: Option<i64>,
    #[cfg_attr(feature = "postgres", serde(default))]
    pub nonce: Option<String>,
    #[cfg_attr(feature = "postgres", serde(default))]
    pub write: Option<i64>,
    #[cfg_attr(feature = "postgres", serde(default))]
    pub released_by: Option<String>,
    #[cfg_attr(feature = "postgres", serde(default))]
    pub left_ms: Option<i64>,
    #[cfg_attr(feature = "postgres", serde(default))]
    pub advertised: Option<String>,
    /// Whether the database says that the lease has passed since the row was written.
    #[cfg_attr(feature = "postgres", serde(skip))]
    pub expired: bool,
}

impl Row {
    pub fn record(&self) -> Record {
        Record { revision: Revision(self.revision), content: self.content() }
    }

    fn content(&self) -> Content {
        match &self.holder {
            Some(_) if self.expired => Content::Vacant(Tombstone::Expired),
            Some(holder) => Content::Held(Entry {
                identity: identity(holder),
                mark: self.mark(),
                life: span(self.lease_ms),
                advertisement: self.advertisement(),
            }),
            None => Content::Vacant(match self.released_by.as_deref().and_then(nonce) {
                Some(by) => {
                    Tombstone::Released { by, left: span(self.left_ms.unwrap_or_default()) }
                }
                None => Tombstone::Deleted,
            }),
        }
    }

    fn advertisement(&self) -> Option<Arc<Advertisement>> {
        Advertisement::from_json(self.advertised.as_deref()?).map(Arc::new)
    }

    fn mark(&self) -> Option<Mark> {
        let number = u64::try_from(self.write?).ok()?;
        Some(Mark {
            write: WriteId { nonce: nonce(self.nonce.as_deref()?)?, number },
            lease: span(self.lease_ms),
            token: Some(Token(u64::try_from(self.token?).ok()?)),
            since_unix_ms: u64::try_from(self.acquired_ms?).ok()?,
        })
    }
}

/// Control characters, which no identity of ours has, are replaced: people will see it.
fn identity(text: &str) -> Arc<str> {
    Arc::from(head(text, LONGEST_IDENTITY).replace(char::is_control, " "))
}

pub(super) fn nonce(text: &str) -> Option<Nonce> {
    let hex = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if hex { u64::from_str_radix(text, 16).ok().map(Nonce) } else { None }
}

pub(super) fn span(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or_default()).min(LONGEST_SPAN)
}

/// Whole milliseconds, rounded up: a span that others wait for must not shrink.
pub(super) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// A revision or a token as a column has it. None of ours is so great that it does not fit.
pub(super) fn column(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Why a holder went, in one word, for people.
pub(super) fn word(cause: &str) -> String {
    cause.chars().filter(char::is_ascii_graphic).take(32).collect()
}
