//! Times and durations in a NATS server's format.

use std::time::Duration;

/// The duration that represents "for ever", small enough to be added to any other.
pub(super) const FOREVER: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Parses a timestamp of RFC 3339 as the time since the Unix epoch; `None` if it is not a
/// timestamp, or lies before the epoch (the server writes the year 1 for "never").
///
/// The days are counted as in Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
pub(super) fn since_epoch(text: &str) -> Option<Duration> {
    let (date, rest) = text.split_once(['T', 't'])?;
    let mut date = date.splitn(3, '-').map(digits);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let zone_at = rest.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = rest.split_at_checked(zone_at)?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut clock = clock.splitn(3, ':').map(digits);
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let plausible = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour <= 23
        && minute <= 59
        && second <= 60;
    if !plausible {
        return None;
    }
    let shifted_year = if month <= 2 { year - 1 } else { year }; // a year that ends with February
    let era = shifted_year / 400;
    let year_of_era = shifted_year % 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    let seconds = i64::try_from(seconds).ok()?.checked_sub(offset_seconds(zone)?)?;
    Some(Duration::new(u64::try_from(seconds).ok()?, nanos(fraction)?))
}

/// `Z`, `+01:00`, `-03:30`.
fn offset_seconds(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let (hours, minutes) = (digits(hours)?, digits(minutes)?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    Some(sign * i64::try_from((hours * 60 + minutes) * 60).ok()?)
}

fn nanos(fraction: &str) -> Option<u32> {
    if fraction.is_empty() {
        return Some(0);
    }
    let kept = fraction.get(..fraction.len().min(9))?;
    let scale = 10_u32.checked_pow(9 - u32::try_from(kept.len()).ok()?)?;
    Some(u32::try_from(digits(kept)?).ok()? * scale)
}

/// Up to nine digits.
fn digits(text: &str) -> Option<u64> {
    let plain = (1..=9).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// Parses the value of `Nats-TTL`: whole seconds (`5`), a duration in Go's format (`1h2m3.5s`), or
/// `never`.
pub(super) fn lifetime(text: &str) -> Option<Duration> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("never") {
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
