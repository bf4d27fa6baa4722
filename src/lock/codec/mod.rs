//! What every lock writes of a holder, and how to read what anybody may have written there.

pub(crate) mod mark;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use crate::lock::types::MAX_IDENTITY_LEN;
use crate::lock::types::MAX_SITE_LEN;
use crate::lock::{Advertisement, Mark, MoveInfo, Nonce, Pause, Token, Tombstone, WriteId};
#[allow(unused_imports, reason = "not every lock writes one")]
pub(crate) use crate::time::timing::ceil_millis;
use crate::util::text::truncate;

/// The longest duration that is accepted: no lease and no cool-down is longer than an hour, and one
/// that is passed on grows by no more than drift. What claims more is taken for as long as this, so
/// that no single write keeps an election without a leader for longer.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(2 * 3600);

/// Whole seconds, rounded up, and one at least: no server takes a zero.
pub(crate) fn ceil_seconds(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0)).max(1)
}

pub(crate) fn bounded_duration(millis: u64) -> Duration {
    Duration::from_millis(millis).min(MAX_DURATION)
}

/// As [`Nonce`] is displayed.
pub(crate) fn parse_nonce(text: &str) -> Option<Nonce> {
    parse_hex(text).map(Nonce)
}

/// A number of 16 hexadecimal digits.
pub(crate) fn parse_hex(text: &str) -> Option<u64> {
    let hex = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if hex { u64::from_str_radix(text, 16).ok() } else { None }
}

/// Why a holder went, in one word, for people.
pub(crate) fn cause_label(cause: &str) -> String {
    cause.chars().filter(char::is_ascii_graphic).take(32).collect()
}

/// A cause as anybody may have written it; `None` where no word is left.
pub(crate) fn read_cause(text: &str) -> Option<Arc<str>> {
    Some(cause_label(text)).filter(|cause| !cause.is_empty()).map(Arc::from)
}

/// The mark that an entry states, whoever wrote it. Each format reads its fields, and leaves their
/// bounds to this.
pub(crate) fn stated_mark(
    write: WriteId,
    lease_ms: u64,
    token: Option<u64>,
    since_unix_ms: u64,
    moves: MoveInfo,
) -> Mark {
    let (lease, moves) = (bounded_duration(lease_ms), display_moves(moves).into());
    Mark { write, lease, token: token.map(Token), since_unix_ms, moves }
}

/// The release that an entry states, whoever wrote it.
pub(crate) fn stated_release(
    by: Nonce,
    left_ms: u64,
    cause: Option<&str>,
    to: Option<Nonce>,
    pause: Option<Pause>,
) -> Tombstone {
    let (left, cause) = (bounded_duration(left_ms), cause.and_then(read_cause));
    Tombstone::Released { by, left, cause, to, pause }
}

/// The advertisement that an entry states, whoever wrote it.
pub(crate) fn stated_advertisement(stated: Option<Advertisement>) -> Option<Arc<Advertisement>> {
    stated.filter(|stated| stated.check().is_ok()).map(Arc::new)
}

/// What anybody may have written for moves, as it is shown.
fn display_moves(moves: MoveInfo) -> MoveInfo {
    MoveInfo { site: moves.site.map(|site| display_identity(&site, MAX_SITE_LEN)), ..moves }
}

/// An identity of at most `most` bytes. Control characters, which none of ours has, are replaced:
/// people will see it.
pub(crate) fn display_identity(text: &str, most: usize) -> Arc<str> {
    Arc::from(truncate(text, most).replace(char::is_control, " "))
}

/// A nonce in JSON.
pub(in crate::lock) mod nonce_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::parse_nonce;
    use crate::lock::Nonce;

    pub fn serialize<S: Serializer>(nonce: &Nonce, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(nonce)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Nonce, D::Error> {
        parse_nonce(&String::deserialize(from)?).ok_or_else(|| D::Error::custom("not a nonce"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_rounded_up_to_seconds() {
        for (millis, whole) in [(0, 1), (999, 1), (1_000, 1), (1_001, 2), (5_000, 5)] {
            assert_eq!(ceil_seconds(Duration::from_millis(millis)), whole, "{millis} ms");
        }
        assert_eq!(ceil_seconds(Duration::MAX), u64::MAX);
    }

    #[test]
    fn a_cause_is_a_short_printable_word() {
        let read = |text: &str| read_cause(text).map(|cause| cause.to_string());
        assert_eq!(read("work_ended").as_deref(), Some("work_ended"));
        assert_eq!(read("\u{1b}[31m crashed\r\n\u{202e}é\0").as_deref(), Some("[31mcrashed"));
        assert_eq!(read(&"x".repeat(1 << 20)), Some("x".repeat(32)));
        for none in ["", " ", "\n\0", "\u{9b}\u{2028}é"] {
            assert_eq!(read(none), None, "{none:?}");
        }
    }
}
