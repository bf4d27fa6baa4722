//! A row, and its meaning for the protocol.

use std::sync::Arc;
use std::time::Duration;

use crate::lock::Advertisement;
use crate::lock::codec::{
    MAX_IDENTITY_LEN, bounded_duration, ceil_millis, display_identity, parse_nonce, read_cause,
};
use crate::lock::{Content, Entry, Mark, Record, Revision, Token, Tombstone, WriteId};

/// The columns of an election's state. Any client may have written them by hand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub revision: u64,
    pub holder: Option<String>,
    pub acquired_ms: Option<i64>,
    pub lease_ms: i64,
    pub token: Option<i64>,
    pub nonce: Option<String>,
    pub write: Option<i64>,
    pub released_by: Option<String>,
    pub left_ms: Option<i64>,
    pub released_cause: Option<String>,
    pub released_to: Option<String>,
    pub advertised: Option<String>,
    /// Whether the database reports that the lease has passed since the row was written.
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
                identity: display_identity(holder, MAX_IDENTITY_LEN),
                mark: self.mark(),
                ttl: span(self.lease_ms),
                advertisement: self.advertisement(),
            }),
            None => Content::Vacant(match self.released_by.as_deref().and_then(parse_nonce) {
                Some(by) => Tombstone::Released {
                    by,
                    left: span(self.left_ms.unwrap_or_default()),
                    cause: self.released_cause.as_deref().and_then(read_cause),
                    to: self.released_to.as_deref().and_then(parse_nonce),
                },
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
            write: WriteId { nonce: parse_nonce(self.nonce.as_deref()?)?, number },
            lease: span(self.lease_ms),
            token: Some(Token(u64::try_from(self.token?).ok()?)),
            since_unix_ms: u64::try_from(self.acquired_ms?).ok()?,
        })
    }
}

/// Converts a revision or a token to a column. This library's numbers are small enough to fit.
pub(super) fn column(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a duration to a column.
pub(super) fn millis(span: Duration) -> i64 {
    column(ceil_millis(span))
}

/// Converts a column, which any client may have written, to a duration.
pub(super) fn span(millis: i64) -> Duration {
    bounded_duration(u64::try_from(millis).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Nonce;

    #[test]
    fn the_cause_of_a_release_is_bounded() {
        let long = "x".repeat(10_000);
        for (written, read) in [
            (None, None),
            (Some("crashed"), Some("crashed")),
            (Some("\u{1b}[2Jcrashed\r\n"), Some("[2Jcrashed")),
            (Some(long.as_str()), long.get(..32)),
            (Some("\n"), None),
        ] {
            let row = Row {
                released_by: Some(Nonce(7).to_string()),
                released_cause: written.map(str::to_owned),
                ..Row::default()
            };
            let (left, cause) = (Duration::ZERO, read.map(Into::into));
            let released = Tombstone::Released { by: Nonce(7), left, cause, to: None };
            assert_eq!(row.content(), Content::Vacant(released), "{written:?}");
        }
    }
}
