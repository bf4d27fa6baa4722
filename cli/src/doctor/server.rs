//! The server, its JetStream, its clock, and the round trip.

use std::time::{Duration, Instant, SystemTime};

use incumbent::protocol::{COMMON_MIN_LEASE, Timing, TimingError, TimingOptions};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::report::Report;
use crate::error::{CliError, Code};
use crate::lock::nats::Session;
use crate::output::time_format;

/// The number of requests.
const SAMPLES: usize = 10;

/// The oldest supported server, and the first one with all features that are used.
const OLDEST: [u64; 3] = [2, 10, 0];
const COMPLETE: [u64; 3] = [2, 11, 2];
/// The first one that looks again before it decides to store an expiry marker; 2.12.0 does not.
const CAREFUL: [u64; 3] = [2, 11, 10];

/// The TTL of a bucket that is still to be created.
const USUAL_TTL: Duration = Duration::from_secs(60);

/// The clock difference that is worth a warning.
const APART: time::Duration = time::Duration::SECOND;

/// What a bucket states for its candidates, in the metadata of its stream.
pub const QUEUE_GROUPS: &str = "incumbent.queue-groups";

/// What several responses to the same request show.
pub struct Samples<T> {
    pub last: Option<T>,
    /// The durations of the requests, sorted.
    pub spans: Vec<Duration>,
    /// The offset of the other clock, and its uncertainty.
    pub offset: Option<(time::Duration, time::Duration)>,
}

impl<T> Samples<T> {
    /// Sends the request until it has been answered so often, or fails: with the failure, then.
    /// `clock` is the time in a response, if there is one, and by how much it may be off.
    pub async fn take<E>(
        ask: impl AsyncFn() -> Result<T, E>,
        clock: impl Fn(&T) -> Option<(OffsetDateTime, time::Duration)>,
    ) -> (Self, Result<(), E>) {
        let mut samples = Self { last: None, spans: Vec::new(), offset: None };
        let mut ended = Ok(());
        for _ in 0..SAMPLES {
            let (wall, start) = (OffsetDateTime::from(SystemTime::now()), Instant::now());
            let answer = match ask().await {
                Ok(answer) => answer,
                Err(failure) => {
                    ended = Err(failure);
                    break;
                }
            };
            let span = start.elapsed();
            samples.spans.push(span);
            if let Some((theirs, doubt)) = clock(&answer) {
                let (offset, more) = clock_offset(theirs, wall, span);
                let doubt = doubt.saturating_add(more);
                if samples.offset.is_none_or(|(_, known)| doubt < known) {
                    samples.offset = Some((offset, doubt));
                }
            }
            samples.last = Some(answer);
        }
        samples.spans.sort_unstable();
        (samples, ended)
    }
}

/// What JetStream says of a bucket, several times.
pub struct ServerSamples {
    pub info: Option<Value>,
    bucket: String,
    failure: Option<(Code, String)>,
    /// The durations of the requests, sorted.
    spans: Vec<Duration>,
    /// The offset of the server's clock, and its uncertainty.
    offset: Option<(time::Duration, time::Duration)>,
}

impl ServerSamples {
    pub async fn take(session: &Session, bucket: &str) -> Result<Self, CliError> {
        let clock = |info: &Value| {
            let theirs = info.pointer("/ts").and_then(Value::as_str).and_then(time_format::parse);
            theirs.map(|theirs| (theirs, time::Duration::ZERO))
        };
        let (asked, ended) = Samples::take(async || session.info(bucket).await, clock).await;
        let failure = match ended {
            Ok(()) => None,
            Err(CliError::Message { code, message }) if code != Code::Usage => {
                Some((code, message))
            }
            Err(failure) => return Err(failure),
        };
        let Samples { last: info, spans, offset } = asked;
        Ok(Self { info, bucket: bucket.to_owned(), failure, spans, offset })
    }

    pub fn bucket_is_missing(&self) -> bool {
        matches!(&self.failure, Some((Code::NotFound, _)))
    }

    pub fn jetstream(&self, report: &mut Report) {
        match &self.failure {
            None => report.ok("jetstream", format!("enabled, with bucket {}", self.bucket)),
            Some((Code::NotFound, _)) => report.warning(
                "jetstream",
                format!(
                    "enabled, but there is no bucket {}; create it with `incumbent kv add {} --election`, or let \
                     candidates create it",
                    self.bucket, self.bucket
                ),
            ),
            Some((_, message)) => report.error("jetstream", message.as_str()),
        }
    }

    pub fn clock(&self, report: &mut Report) {
        clock(self.offset, "displayed ages and times do", report);
    }

    /// Compares the round trip with the request timeout of candidates.
    pub fn round_trip(&self, lease: Option<Duration>, with_choria: bool, report: &mut Report) {
        let ttl = self.info.as_ref().and_then(|info| info.pointer("/config/max_age"));
        let ttl = ttl.and_then(Value::as_u64).filter(|ns| *ns > 0).map(Duration::from_nanos);
        let ttl = ttl.unwrap_or(USUAL_TTL);
        let options = TimingOptions { lease, with_choria, ..TimingOptions::default() };
        let timing = Timing::new(options, ttl);
        short_lease(&timing, ttl, report);
        if let (Ok(timing), Some(info)) = (&timing, &self.info)
            && timing.lease() < COMMON_MIN_LEASE
            && let Some(why) = lacks_hints(info)
        {
            report.warning(
                SHORT_LEASE,
                format!("{why}, so a standby waits until the server frees the entry of a leader that is gone, which takes a second or more: use a lease of 1s, or another bucket"),
            );
        }
        round_trip(&self.spans, timing, report);
    }
}

/// Checks the clock offset, with its uncertainty. `what`: depends on the clock.
pub fn clock(offset: Option<(time::Duration, time::Duration)>, what: &str, report: &mut Report) {
    const CHECK: &str = "clock";
    let Some((offset, doubt)) = offset else {
        return report.unknown(CHECK, "the server reported no time");
    };
    let apart = offset.abs();
    if apart - doubt <= APART {
        let most = precise((apart + doubt).unsigned_abs());
        return report.ok(CHECK, format!("at most {most} off the server's"));
    }
    let which = if offset.is_positive() { "behind" } else { "ahead of" };
    let apart = time_format::span(apart.unsigned_abs());
    let message = format!(
        "this clock is {apart} {which} the server's; leases do not depend on it, but {what}: synchronize both by NTP"
    );
    report.warning(CHECK, message);
}

/// Compares the sorted durations of requests with the request timeout of candidates.
pub fn round_trip(spans: &[Duration], timing: Result<Timing, TimingError>, report: &mut Report) {
    const CHECK: &str = "round trip";
    let (Some(&median), Some(&longest)) = (spans.get(spans.len() / 2), spans.last()) else {
        return report.unknown(CHECK, "no response");
    };
    let timing = match timing {
        Ok(timing) => timing,
        Err(error) => return report.error(CHECK, format!("{error}; see --lease")),
    };
    let (attempt, lease) = (timing.request_timeout(), time_format::span(timing.lease()));
    let seen = format!(
        "{} (median), {} (longest of {}); with a lease of {lease} a request times out after {}",
        precise(median),
        precise(longest),
        spans.len(),
        time_format::span(attempt)
    );
    let shortest = Timing::shortest_lease(longest).map(time_format::span);
    let fix = match &shortest {
        Some(shortest) => format!("use a lease of {shortest} or longer, or a closer server"),
        None => "use a closer server".to_owned(),
    };
    if median > attempt {
        report.error(CHECK, format!("{seen}, so no candidate can lead; {fix}"));
    } else if !timing.bears(longest) {
        report.warning(CHECK, format!("{seen}, which leaves little margin; {fix}"));
    } else if timing.lease() < COMMON_MIN_LEASE
        && let Some(shortest) = Timing::shortest_lease(longest).filter(|it| *it < timing.lease())
    {
        let shortest = time_format::span(shortest);
        report.ok(CHECK, format!("{seen}; a lease of {shortest} would do"));
    } else {
        report.ok(CHECK, seen);
    }
}

const SHORT_LEASE: &str = "short lease";

/// Why not all standbys receive every write, if so.
fn lacks_hints(info: &Value) -> Option<String> {
    let republishes = info.pointer("/config/republish/dest").is_some_and(Value::is_string);
    match stated_groups(info) {
        Some(groups) => Some(format!("{groups} queue groups share the hints")),
        None => (!republishes).then(|| "the bucket does not republish".to_owned()),
    }
}

/// How many queue groups the bucket states, if any.
pub fn stated_groups(info: &Value) -> Option<u8> {
    let stated = info.pointer("/config/metadata")?.get(QUEUE_GROUPS)?.as_str()?;
    stated.parse().ok().filter(|groups| (1..=15).contains(groups))
}

/// Warns where a winner that knows nothing of the last holder waits much longer than its lease.
pub fn short_lease(timing: &Result<Timing, TimingError>, max_lease: Duration, report: &mut Report) {
    let Some(timing) = timing.as_ref().ok().filter(|timing| timing.lease() < COMMON_MIN_LEASE)
    else {
        return;
    };
    if max_lease > Duration::from_secs(5) {
        let [lease, longest] = [timing.lease(), max_lease].map(time_format::span);
        report.warning(
            SHORT_LEASE,
            format!("where nothing is known of the last holder of a lease of {lease}, as after a delete, the next one waits for {longest}: give the bucket or the tables a longest lease of 1s"),
        );
    }
}

/// The offset of a clock that read `theirs` within `span` after `asked_at`, and its uncertainty.
pub fn clock_offset(
    theirs: OffsetDateTime,
    asked_at: OffsetDateTime,
    span: Duration,
) -> (time::Duration, time::Duration) {
    let doubt = time::Duration::try_from(span / 2).unwrap_or(time::Duration::MAX);
    (theirs - asked_at.saturating_add(doubt), doubt)
}

/// A short duration with fractions.
fn precise(span: Duration) -> String {
    format!("{:.1}ms", span.as_secs_f64() * 1_000.0)
}

/// Checks the version of the connected server, and of the server with the bucket.
pub async fn version(session: &Session, samples: &ServerSamples, report: &mut Report) {
    const CHECK: &str = "server";
    let version_text = session.client().server_info().version;
    let level = match &samples.info {
        Some(info) => {
            info.pointer("/config/metadata/_nats.level").and_then(Value::as_str).map(str::to_owned)
        }
        None => {
            let account: Result<Value, _> = session.api("account", "INFO", &json!({})).await;
            let level = account.ok().and_then(|account| account.pointer("/api/level").cloned());
            level.map(|level| level.to_string())
        }
    };
    let named = match &level {
        Some(level) => format!("nats-server {version_text}, JetStream API level {level}"),
        None => format!("nats-server {version_text}"),
    };
    let missing =
        "it has no TTLs per entry and no expiry markers, so a crashed leader is replaced later";
    match numbers(&version_text) {
        None => report.unknown(CHECK, format!("{named}: unknown version format")),
        Some(version) if version < OLDEST => {
            report.error(CHECK, format!("{named} is not supported; upgrade to 2.11.10 or later"));
        }
        Some(version) if version < COMPLETE => {
            report.warning(CHECK, format!("{named}: {missing}; upgrade to 2.11.10 or later"));
        }
        Some(version) if version < CAREFUL || version == [2, 12, 0] => {
            report.warning(
                CHECK,
                format!("{named}: it may replace the entry of a new leader by the expiry marker of the last one; upgrade to 2.11.10, 2.12.1 or later"),
            );
        }
        Some(_) if level.is_none() && samples.info.is_some() => report.warning(
            CHECK,
            format!("{named}, but the server with the bucket is older than 2.11: {missing}; upgrade it too"),
        ),
        Some(_) => report.ok(CHECK, named),
    }
}

/// The numbers of a version, as in `2.11.2-RC.1`.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let mut parts = version.split(['.', '-', '+']).map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(numbers("2.11.2-RC.1"), Some([2, 11, 2]));
        assert_eq!(numbers("2.12"), None);
        assert_eq!(numbers("dev"), None);
        assert!(numbers("2.9.25").unwrap() < OLDEST && numbers("2.10.26").unwrap() > OLDEST);
    }

    fn asked(info: Option<Value>, spans: &[u64]) -> ServerSamples {
        let spans = spans.iter().map(|ms| Duration::from_millis(*ms)).collect();
        ServerSamples { info, bucket: "B".to_owned(), failure: None, spans, offset: None }
    }

    fn found(offset: time::Duration, doubt: time::Duration) -> String {
        let asked = ServerSamples { offset: Some((offset, doubt)), ..asked(None, &[]) };
        let mut report = Report::default();
        asked.clock(&mut report);
        format!("{report:?}")
    }

    #[test]
    fn clock_is_wrong_if_the_round_trip_cannot_explain_it() {
        let second = time::Duration::SECOND;
        assert!(found(second * 3, second / 2).contains("this clock is 3s behind the server's"));
        assert!(found(second * -3, second / 2).contains("this clock is 3s ahead of the server's"));
        assert!(found(second * 3, second * 2).contains("at most 5000.0ms off the server's"));
        let asked_at = time_format::parse("2021-11-01T17:30:00Z").unwrap();
        let theirs = time_format::parse("2021-11-01T17:30:04Z").unwrap();
        assert_eq!(clock_offset(theirs, asked_at, Duration::from_secs(2)), (second * 3, second));
    }

    #[test]
    fn a_short_lease_needs_a_bucket_with_all_hints_and_a_short_ttl() {
        let judged = |config: Value, lease| {
            let mut report = Report::default();
            let bucket = asked(Some(json!({ "config": config })), &[1]);
            bucket.round_trip(Some(Duration::from_millis(lease)), false, &mut report);
            format!("{report:?}")
        };
        let second = 1_000_000_000_u64;
        let republish = json!({"dest": "incumbent.B.>"});
        let good = json!({"max_age": second, "republish": republish});
        assert!(!judged(good.clone(), 250).contains("Warning"));
        let long = json!({"max_age": second * 60, "republish": republish});
        assert!(judged(long.clone(), 250).contains("the next one waits for 1m"));
        assert!(!judged(long, 1_000).contains("Warning"));
        assert!(judged(json!({"max_age": second}), 250).contains("does not republish"));
        let mut shared = good;
        shared["metadata"] = json!({"incumbent.queue-groups": "8"});
        assert!(judged(shared.clone(), 250).contains("8 queue groups share the hints"));
        assert!(!judged(shared, 1_000).contains("Warning"));
    }

    #[test]
    fn round_trip_is_compared_with_the_lease() {
        let judged = |spans: &[u64], lease: Option<u64>| {
            let bucket = asked(Some(json!({"config": {"max_age": 2_000_000_000_u64}})), spans);
            let mut report = Report::default();
            bucket.round_trip(lease.map(Duration::from_millis), false, &mut report);
            format!("{report:?}")
        };
        // A request times out after 250ms.
        assert!(judged(&[1, 2, 100], None).contains("Ok"));
        assert!(judged(&[1, 2, 130], None).contains("Warning"), "half of it, once");
        assert!(judged(&[1, 260, 270], None).contains("Error"), "most take too long");
        assert!(judged(&[1, 2, 3], Some(3_000)).contains("a lease of 3s is longer"));
        assert!(judged(&[1, 2, 3], Some(500)).contains("a lease of 200ms would do"));
        assert!(judged(&[1, 30, 40], Some(250)).contains("use a lease of 350ms or longer"));
        let short = judged(&[1, 2, 27], Some(220));
        assert!(short.contains("Ok") && !short.contains("would do"), "250ms is longer");
        assert!(judged(&[], None).contains("Unknown"));
    }
}
