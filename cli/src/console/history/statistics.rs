//! Statistics of a history, and its JSON.
//!
//! Only time in which every transition was seen counts: the rest is unknown.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use time::{Date, OffsetDateTime};

use super::spans::{Period, Span, State};
use super::{History, Part};
use crate::output::text::printable;
use crate::output::time_format::{self, millis};

/// The most days, the latest ones, so that no wrong clock takes the memory.
const MAX_DAYS: u32 = 366;
/// The cause of an end that nobody saw.
pub const UNKNOWN: &str = "unknown";

/// Statistics of the requested time.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// The known time with a leader.
    pub led: Duration,
    /// The known time without one.
    pub leaderless: Duration,
    /// The rest, from the start of the history to its end.
    pub unknown: Duration,
    /// How many terms ended, by cause.
    pub changes: BTreeMap<String, u64>,
    /// The longest known time without a leader: its begin, its length and its cause.
    pub longest_gap: Option<(OffsetDateTime, Duration, Option<String>)>,
    /// The latest days with known time.
    pub days: BTreeMap<Date, Day>,
}

/// Statistics of a day in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Day {
    pub led: Duration,
    pub leaderless: Duration,
    pub changes: u64,
}

/// The percentage of the known time with a leader; `None` if no time is known.
pub fn availability(led: Duration, leaderless: Duration) -> Option<f64> {
    let known = led.saturating_add(leaderless);
    (!known.is_zero()).then(|| led.as_secs_f64() / known.as_secs_f64() * 100.0)
}

/// [`availability`] in words, rounded down: only time without any gap is 100%.
pub fn percent(led: Duration, leaderless: Duration) -> String {
    match availability(led, leaderless) {
        Some(_) if leaderless.is_zero() => "100%".to_owned(),
        Some(percent) => format!("{:.3}%", (percent * 1000.0).floor() / 1000.0),
        None => "unknown".to_owned(),
    }
}

impl Statistics {
    pub fn new(history: &History) -> Self {
        let mut statistics = Self {
            led: Duration::ZERO,
            leaderless: Duration::ZERO,
            unknown: Duration::ZERO,
            changes: BTreeMap::new(),
            longest_gap: None,
            days: BTreeMap::new(),
        };
        let since = history.since;
        for span in history.spans() {
            let mut known = Duration::ZERO;
            for part in parts(span, history) {
                known = known.saturating_add(part.length());
                statistics.add(part, span.is_led(), history.until);
            }
            match (span.is_led(), span.end) {
                (true, Some(end)) if since.is_none_or(|since| end.at >= since) => {
                    statistics.count(span, end.at, history.until);
                }
                (false, _) => statistics.compare(span, known, history),
                _ => {}
            }
        }
        let known = statistics.known();
        if let Some(begin) = history.begin() {
            let whole = Period { begin, end: history.until }.length();
            statistics.unknown = whole.saturating_sub(known);
        }
        statistics
    }

    /// The time in which it was known whether there was a leader.
    pub fn known(&self) -> Duration {
        self.led.saturating_add(self.leaderless)
    }

    /// How many terms ended.
    pub fn ends(&self) -> u64 {
        self.changes.values().sum()
    }

    /// The causes of the ends, with their numbers, in parentheses; nothing without an end.
    pub fn causes(&self) -> String {
        let causes = self.changes.iter();
        let causes = causes.map(|(cause, count)| format!("{} {count}", cause.replace('_', " ")));
        let causes = causes.collect::<Vec<_>>().join(", ");
        if causes.is_empty() { causes } else { format!(" ({})", printable(&causes)) }
    }

    /// The known time for each end of a term.
    pub fn mean_between_changes(&self) -> Option<Duration> {
        let ends = u32::try_from(self.ends()).unwrap_or(u32::MAX);
        self.known().checked_div(ends)
    }

    /// Adds known time to its days.
    fn add(&mut self, part: Period, is_led: bool, until: OffsetDateTime) {
        let sum = if is_led { &mut self.led } else { &mut self.leaderless };
        *sum = sum.saturating_add(part.length());
        let first = first_day(until);
        let mut begin = part.begin.max(first.midnight().assume_utc());
        while begin < part.end {
            let date = time_format::date(begin);
            let next = date.next_day().map(|day| day.midnight().assume_utc());
            let end = next.map_or(part.end, |next| next.min(part.end));
            let day = self.days.entry(date).or_default();
            let sum = if is_led { &mut day.led } else { &mut day.leaderless };
            *sum = sum.saturating_add(Period { begin, end }.length());
            begin = end;
        }
    }

    fn count(&mut self, term: &Span, end: OffsetDateTime, until: OffsetDateTime) {
        let cause = term.cause.as_deref().unwrap_or(UNKNOWN);
        *self.changes.entry(cause.to_owned()).or_default() += 1;
        let date = time_format::date(end);
        if date >= first_day(until) {
            self.days.entry(date).or_default().changes += 1;
        }
    }

    fn compare(&mut self, gap: &Span, known: Duration, history: &History) {
        let whole = gap.length(history.until);
        // The measured length, unless some of it is unknown or was not asked for.
        let rounded = Duration::from_millis(1);
        let length = if known.abs_diff(whole) <= rounded { whole } else { known };
        let longest = self.longest_gap.as_ref().map_or(Duration::ZERO, |(_, longest, _)| *longest);
        if length > longest {
            self.longest_gap = Some((gap.begin.at, length, gap.cause.clone()));
        }
    }
}

/// The known parts of a span in the requested time.
fn parts(span: &Span, history: &History) -> impl Iterator<Item = Period> {
    let begin = history.since.map_or(span.begin.at, |since| since.max(span.begin.at));
    let end = span.end_by(history.until);
    let parts = history.periods.between(begin, end);
    parts.map(move |period| Period { begin: period.begin.max(begin), end: period.end.min(end) })
}

/// The first day of those that are listed.
fn first_day(until: OffsetDateTime) -> Date {
    let days = time::Duration::days(i64::from(MAX_DAYS) - 1);
    time_format::date(until).checked_sub(days).unwrap_or(Date::MIN)
}

impl History {
    /// The fields of `election history -o json`.
    pub fn json(&self) -> Value {
        let parts = self.parts().into_iter().map(|part| match part {
            Part::Span(span) => span_json(span, self.until()),
            Part::Unknown(period) => unknown_json(period),
        });
        json!({
            "election": self.election,
            "begin": self.begin().map(time_format::rfc3339),
            "until": time_format::rfc3339(self.until()),
            "spans": parts.collect::<Vec<_>>(),
            "statistics": self.statistics().json(),
        })
    }
}

fn span_json(span: &Span, until: OffsetDateTime) -> Value {
    let (kind, leader, token) = match &span.state {
        State::Led { leader, token } => ("term", Some(leader), *token),
        State::Leaderless => ("gap", None, None),
    };
    json!({
        "kind": kind,
        "begin": time_format::rfc3339(span.begin.at),
        "begin_seen": span.begin.seen,
        "end": span.end.map(|end| time_format::rfc3339(end.at)),
        "end_seen": span.end.map(|end| end.seen),
        "ms": millis(span.length(until)),
        "leader": leader,
        "token": token,
        "cause": span.cause,
    })
}

fn unknown_json(part: Period) -> Value {
    json!({
        "kind": "unknown",
        "begin": time_format::rfc3339(part.begin),
        "end": time_format::rfc3339(part.end),
        "ms": millis(part.length()),
    })
}

impl Statistics {
    fn json(&self) -> Value {
        let gap = self.longest_gap.as_ref();
        json!({
            "availability_percent": availability(self.led, self.leaderless),
            "known_ms": millis(self.known()),
            "leaderless_ms": millis(self.leaderless),
            "unknown_ms": millis(self.unknown),
            "changes": self.ends(),
            "changes_by_cause": self.changes,
            "mean_between_changes_ms": self.mean_between_changes().map(millis),
            "longest_gap": gap.map(|(begin, length, cause)| json!({
                "begin": time_format::rfc3339(*begin),
                "ms": millis(*length),
                "cause": cause,
            })),
            "days": self.days.iter().map(|(date, day)| day.json(&date.to_string()))
                .collect::<Vec<_>>(),
        })
    }
}

impl Day {
    fn json(&self, date: &str) -> Value {
        json!({
            "day": date,
            "availability_percent": availability(self.led, self.leaderless),
            "known_ms": millis(self.led.saturating_add(self.leaderless)),
            "leaderless_ms": millis(self.leaderless),
            "changes": self.changes,
        })
    }
}
