//! Formats of times, durations and sizes.

use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::Instant;

/// As in `01 Nov 21 17:30 UTC` (RFC 822).
pub fn rfc822(time: OffsetDateTime) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let time = time.to_offset(time::UtcOffset::UTC);
    let month = MONTHS.get(usize::from(u8::from(time.month())) - 1).copied().unwrap_or_default();
    let year = time.year().rem_euclid(100);
    format!("{:02} {month} {year:02} {:02}:{:02} UTC", time.day(), time.hour(), time.minute())
}

/// As in `17:30:05 UTC`.
pub fn time_of_day(time: OffsetDateTime) -> String {
    let time = time.to_offset(time::UtcOffset::UTC);
    format!("{:02}:{:02}:{:02} UTC", time.hour(), time.minute(), time.second())
}

/// The day in UTC.
pub fn date(time: OffsetDateTime) -> time::Date {
    time.to_offset(time::UtcOffset::UTC).date()
}

/// As in `11-01 17:30 UTC`.
pub fn month_and_time(time: OffsetDateTime) -> String {
    let time = time.to_offset(time::UtcOffset::UTC);
    let month = u8::from(time.month());
    format!("{month:02}-{:02} {:02}:{:02} UTC", time.day(), time.hour(), time.minute())
}

/// As in `2021-11-01 17:30:05.250`.
pub fn with_millis(time: OffsetDateTime) -> String {
    let time = time.to_offset(time::UtcOffset::UTC);
    let (hour, minute, second) = (time.hour(), time.minute(), time.second());
    format!("{} {hour:02}:{minute:02}:{second:02}.{:03}", date(time), time.millisecond())
}

/// As in `2021-11-01T17:30:05.25Z`.
pub fn rfc3339(time: OffsetDateTime) -> String {
    time.to_offset(time::UtcOffset::UTC).format(&Rfc3339).unwrap_or_default()
}

/// Parses a time in RFC 3339.
pub fn parse(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text, &Rfc3339).ok()
}

pub fn from_unix_ms(ms: u64) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).ok()
}

/// The age by this host's clock; zero for a time in the future.
pub fn age(time: OffsetDateTime) -> Duration {
    let now = OffsetDateTime::from(SystemTime::now());
    Duration::try_from(now - time).unwrap_or_default()
}

/// Converts a system time; `None` outside the calendar's range.
pub fn from_system(time: SystemTime) -> Option<OffsetDateTime> {
    let nanos = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i128::try_from(since.as_nanos()).ok()?,
        Err(before) => -i128::try_from(before.duration().as_nanos()).ok()?,
    };
    OffsetDateTime::from_unix_timestamp_nanos(nanos).ok()
}

/// A system time in the calendar; the epoch for one that no calendar has.
pub fn utc(time: SystemTime) -> OffsetDateTime {
    from_system(time).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// The maximum of a duration, so that no sum of them overflows.
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Parses a duration that no lease bounds.
pub fn parse_up_to_a_year(word: &str) -> Result<Duration, String> {
    let span = humantime::parse_duration(word).map_err(|error| error.to_string())?;
    if span > A_YEAR {
        return Err("more than a year".to_owned());
    }
    Ok(span)
}

/// Parses a span of at most a day.
pub fn parse_up_to_a_day(word: &str) -> Result<Duration, String> {
    match parse_up_to_a_year(word)? {
        span if span > Duration::from_secs(86_400) => Err("more than a day".to_owned()),
        span => Ok(span),
    }
}

/// About thirty years: the longest wait, which can be added to any current instant.
const MAX_WAIT: Duration = Duration::from_secs(30 * 365 * 86_400);

/// The instant `span` after `instant`. Long spans are capped: adding them would panic.
pub fn after(instant: Instant, span: Duration) -> Instant {
    instant + span.min(MAX_WAIT)
}

/// Waits until the instant; forever without one. Cancel safe.
pub async fn until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// A duration in its two largest units, as in `3m 20s`.
pub fn span(span: Duration) -> String {
    let exact = match span.as_secs() {
        0..10 => Duration::from_millis(span.as_millis().try_into().unwrap_or_default()),
        seconds => Duration::from_secs(seconds),
    };
    let text = humantime::format_duration(exact).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// Whole milliseconds.
pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A duration without fractions of a second, for a line that is redrawn.
pub fn whole_seconds(exact: Duration) -> String {
    span(Duration::from_secs(exact.as_secs()))
}

/// A size, as in `1.5 KiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = bytes.max(1).ilog2() / 10;
    let name = UNITS.get(unit as usize).copied().unwrap_or_default();
    match unit {
        0 => format!("{bytes} {name}"),
        _ => format!("{:.2} {name}", bytes as f64 / f64::from(1_u32 << 10).powi(unit as i32)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_formats_of_choria() {
        let time = parse("2021-11-01T18:30:05.25+01:00").unwrap();
        assert_eq!(rfc822(time), "01 Nov 21 17:30 UTC");
        assert_eq!(rfc3339(time), "2021-11-01T17:30:05.25Z");
        assert_eq!(from_unix_ms(u64::MAX), None);
        assert_eq!(age(from_unix_ms(4_000_000_000_000).unwrap()), Duration::ZERO);
    }

    #[test]
    fn extreme_spans_and_times_do_not_panic() {
        let now = Instant::now();
        assert_eq!(after(now, Duration::from_secs(1)), now + Duration::from_secs(1));
        assert!(after(now, Duration::MAX) > now + Duration::from_secs(86_400));
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(from_system(epoch), Some(OffsetDateTime::UNIX_EPOCH));
        for far in [Duration::from_secs(i64::MAX as u64), Duration::from_secs(1 << 40)] {
            assert_eq!(epoch.checked_add(far).and_then(from_system), None);
            assert_eq!(epoch.checked_sub(far).and_then(from_system), None);
        }
    }

    #[test]
    fn spans_are_short() {
        assert_eq!(span(Duration::from_micros(1_250_700)), "1s 250ms");
        assert_eq!(span(Duration::from_millis(200_900)), "3m 20s");
        assert_eq!(span(Duration::from_secs(90_061)), "1day 1h");
    }
}
