//! A history as JSON.

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::periods::Period;
use super::spans::{Span, State};
use super::statistics::{Statistics, availability};
use super::{Day, History};
use crate::time_format;
use crate::view::millis;

impl History {
    /// The fields of `election history -o json`.
    pub fn json(&self) -> Value {
        let mut spans: Vec<(OffsetDateTime, Value)> = Vec::new();
        spans.extend(self.spans().map(|span| (span.begin.at, span_json(span, self.until()))));
        spans.extend(self.unknown().into_iter().map(|part| (part.begin, unknown_json(part))));
        spans.sort_by_key(|(begin, _)| *begin);
        json!({
            "election": self.election,
            "begin": self.begin().map(time_format::rfc3339),
            "until": time_format::rfc3339(self.until()),
            "spans": spans.into_iter().map(|(_, span)| span).collect::<Vec<_>>(),
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
        "ms": millis((part.end - part.begin).try_into().unwrap_or_default()),
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
