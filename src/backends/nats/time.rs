//! Times and durations in a NATS server's format.

use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The duration that represents "forever", small enough to be added to any other.
pub(super) const FOREVER: Duration = Duration::from_secs(100 * 366 * 86_400);

/// The TTL of a message that outlives its bucket's age.
pub(super) const NEVER: &str = "never";

/// Parses a timestamp of RFC 3339 as the time since the Unix epoch; `None` if it is not a
/// timestamp, or lies before the epoch (the server writes the year 1 for "never").
pub(super) fn since_epoch(text: &str) -> Option<Duration> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    (time - OffsetDateTime::UNIX_EPOCH).try_into().ok()
}

/// Parses the value of `Nats-TTL`: whole seconds (`5`), a duration in Go's format (`1h2m3.5s`), or
/// `never`.
pub(super) fn lifetime(text: &str) -> Option<Duration> {
    let text = text.trim();
    if text.eq_ignore_ascii_case(NEVER) {
        return Some(FOREVER);
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return Some(Duration::from_secs(text.parse().ok()?).min(FOREVER));
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (count, tail) = rest.split_at_checked(number)?;
        let unit = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(unit)?;
        let scale = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" | "μs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        let seconds = count.parse::<f64>().ok()? * scale;
        total = total.checked_add(Duration::try_from_secs_f64(seconds).ok()?)?;
        rest = tail;
    }
    if text.is_empty() { None } else { Some(total.min(FOREVER)) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn timestamps() {
        let at = |text| since_epoch(text).map(|d| d.as_nanos());
        assert_eq!(at("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(at("2000-03-01T00:00:00.5Z"), Some(951_868_800_500_000_000));
        assert_eq!(at("2024-02-29T23:59:59.123456789Z"), Some(1_709_251_199_123_456_789));
        assert_eq!(at("2024-03-01T00:59:59+01:00"), Some(1_709_251_199_000_000_000));
        for other in
            ["0001-01-01T00:00:00Z", "", "T", "2024-13-01T00:00:00Z", "2024-01-01T00:00:00"]
        {
            assert_eq!(at(other), None, "{other}");
        }
    }

    #[test]
    fn lifetimes() {
        assert_eq!(lifetime("5"), Some(Duration::from_secs(5)));
        assert_eq!(lifetime("1h2m3.5s"), Some(Duration::from_millis(3_723_500)));
        assert_eq!(lifetime("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(lifetime("never"), Some(FOREVER));
        assert_eq!(lifetime("18446744073709551615"), Some(FOREVER));
        for other in ["", "s", "-5s", "5x", "1..2s", "99999999999999999999"] {
            assert_eq!(lifetime(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*", near in "[0-9TZ:.+\\-hmsnuµ]{0,40}") {
            for text in [text, near] {
                since_epoch(&text);
                lifetime(&text);
            }
        }
    }
}
