//! A row, and its meaning for the protocol.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::lock::codec::{
    MAX_IDENTITY_LEN, bounded_duration, ceil_millis, display_identity, parse_nonce,
    stated_advertisement, stated_mark, stated_release,
};
use crate::lock::{
    Advertisement, Content, Entry, Mark, MoveInfo, Record, Release, Revision, Tombstone, Write,
    WriteId,
};
use crate::util::text::ascii_json;

/// The most bytes of the column `advertised` that are read.
const MAX_STATED_LEN: usize = 10 * 1024;

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

/// What the column `advertised` contains: the fields of an [`Advertisement`] if there is one, as
/// candidates of earlier versions read it, and what concerns moves.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Stated {
    #[serde(flatten)]
    pub advertisement: Option<Advertisement>,
    #[serde(default, skip_serializing_if = "MoveInfo::is_empty")]
    pub moves: MoveInfo,
}

impl Stated {
    pub fn of(write: &Write) -> Self {
        let advertisement = write.advertisement.as_deref().cloned();
        Self { advertisement, moves: (*write.mark.moves).clone() }
    }

    pub fn of_release(release: &Release) -> Self {
        let moves = MoveInfo { pause: release.pause, ..MoveInfo::default() };
        Self { advertisement: None, moves }
    }

    /// The content of the column; `None` if there is nothing to state.
    pub fn column(&self) -> Option<String> {
        let json = serde_json::to_string(self).unwrap_or_default(); // has string keys only
        Some(ascii_json(&json)).filter(|json| json != "{}")
    }
}

impl Row {
    pub fn record(&self) -> Record {
        Record { revision: Revision(self.revision), content: self.content() }
    }

    fn content(&self) -> Content {
        let Stated { advertisement, moves } = self.stated();
        match &self.holder {
            Some(_) if self.expired => Content::Vacant(Tombstone::Expired),
            Some(holder) => Content::Held(Entry {
                identity: display_identity(holder, MAX_IDENTITY_LEN),
                ttl: span(self.lease_ms),
                advertisement: stated_advertisement(advertisement),
                mark: self.mark(moves),
            }),
            None => Content::Vacant(match self.released_by.as_deref().and_then(parse_nonce) {
                Some(by) => {
                    let to = self.released_to.as_deref().and_then(parse_nonce);
                    let left_ms = number(self.left_ms.unwrap_or_default());
                    stated_release(by, left_ms, self.released_cause.as_deref(), to, moves.pause)
                }
                None => Tombstone::Deleted,
            }),
        }
    }

    fn stated(&self) -> Stated {
        let text = self.advertised.as_deref().filter(|text| text.len() <= MAX_STATED_LEN);
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    fn mark(&self, moves: MoveInfo) -> Option<Mark> {
        let number_of = |column: Option<i64>| u64::try_from(column?).ok();
        let nonce = parse_nonce(self.nonce.as_deref()?)?;
        let write = WriteId { nonce, number: number_of(self.write)? };
        let (token, since) = (number_of(self.token)?, number_of(self.acquired_ms)?);
        Some(stated_mark(write, number(self.lease_ms), Some(token), since, moves))
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
    bounded_duration(number(millis))
}

fn number(column: i64) -> u64 {
    u64::try_from(column).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{Nonce, Pause};

    /// Tables of earlier versions have no column for it.
    #[test]
    fn what_concerns_moves_stands_beside_the_advertisement() {
        let advertisement = Advertisement::new("10.0.0.3:1").with("zone", "é");
        let pause = Some(Pause { until_unix_ms: 7 });
        let moves = MoveInfo { priority: Some(9), site: Some("eu".into()), pause };
        let row = |advertisement: Option<&Advertisement>, moves: &MoveInfo| {
            let stated = Stated { advertisement: advertisement.cloned(), moves: moves.clone() };
            Row { advertised: stated.column(), ..Row::default() }
        };
        for advertisement in [None, Some(&advertisement)] {
            let row = row(advertisement, &moves);
            let Stated { advertisement: read, moves: read_moves } = row.stated();
            assert_eq!((read.as_ref(), &read_moves), (advertisement, &moves));
            // As an earlier version reads it, and writes it.
            let json = row.advertised.expect("a text");
            assert_eq!(Advertisement::from_json(&json).as_ref(), advertisement, "{json}");
        }
        let json = Some(advertisement.to_json());
        let old = Row { advertised: json, ..Row::default() }.stated();
        assert_eq!((old.advertisement, old.moves), (Some(advertisement), MoveInfo::default()));
        assert_eq!(row(None, &MoveInfo::default()).advertised, None);
    }

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
            let released = Tombstone::Released { by: Nonce(7), left, cause, to: None, pause: None };
            assert_eq!(row.content(), Content::Vacant(released), "{written:?}");
        }
    }
}
