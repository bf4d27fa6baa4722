//! The labels of a candidate's metrics, and those whose term lasts for a lease.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Label, counter, gauge, histogram};

use crate::protocol::{Leader, State};
use crate::time::clock::{Instant, nanos};
use crate::time::timing::Timing;
use crate::util::since_unix_epoch;

/// What all metrics of a candidate have in common. They share the text.
pub(super) struct Labels {
    pub election: Arc<str>,
    pub identity: Arc<str>,
}

impl Labels {
    pub fn all(&self) -> Vec<Label> {
        let (election, identity) = (Arc::clone(&self.election), Arc::clone(&self.identity));
        vec![Label::new("election", election), Label::new("identity", identity)]
    }

    pub fn with(&self, key: &'static str, value: &'static str) -> Vec<Label> {
        let mut labels = self.all();
        labels.push(Label::from_static_parts(key, value));
        labels
    }
}

pub(super) struct Leased {
    last: Gauge,
    seconds: Histogram,
    /// A renewal that leaves less is late, in nanoseconds: durations take twice the memory.
    least_left: u64,
    /// The token of the leader, as recorded.
    observed: u64,
    heard: bool,
    leaderless: Leaderless,
}

/// The time in which the candidate knew that there was no leader.
#[derive(Default)]
struct Leaderless {
    since: Option<Instant>,
    /// What is not counted yet, as a counter has whole numbers: less than a second, in nanoseconds.
    rest: u32,
}

impl Leased {
    pub fn new(labels: &Labels, timing: Timing) -> Self {
        let seconds = |name: &'static str, span: Duration| {
            gauge!(name, labels.all()).set(span.as_secs_f64());
        };
        seconds("incumbent_lease_seconds", timing.lease());
        seconds("incumbent_renewal_interval_seconds", timing.renewal());
        late(labels).increment(0);
        leaderless_seconds(labels).increment(0);
        observed(labels).set(0.0);
        Self {
            last: gauge!("incumbent_last_renewal_timestamp_seconds", labels.all()),
            seconds: histogram!("incumbent_renewal_seconds", labels.all()),
            least_left: nanos(timing.validity().saturating_sub(timing.renewal()) / 2),
            observed: 0,
            heard: false,
            leaderless: Leaderless::default(),
        }
    }

    pub fn renewed(&self, latency: Duration, left: Option<Duration>, labels: &Labels) {
        self.seconds.record(latency);
        self.stamp_renewal();
        if left.is_some_and(|left| nanos(left) < self.least_left) {
            late(labels).increment(1);
        }
    }

    pub fn stamp_renewal(&self) {
        self.last.set(since_unix_epoch().as_secs_f64());
    }

    /// Returns true once: the lock has responded for the first time.
    pub fn observe(
        &mut self,
        now: Instant,
        state: State,
        leader: Option<&Leader>,
        lock_fails: bool,
        labels: &Labels,
    ) -> bool {
        let token = leader.and_then(|leader| leader.token).map_or(0, |token| token.0);
        if std::mem::replace(&mut self.observed, token) != token {
            observed(labels).set(token as f64);
        }
        // A holder that cools down does not lead yet.
        let none = leader.is_none_or(|leader| leader.is_me);
        // While requests fail another candidate may lead.
        let knows = state == State::Candidate && !lock_fails;
        let seconds = self.leaderless.count(now, knows && none);
        if seconds > 0 {
            leaderless_seconds(labels).increment(seconds);
        }
        state != State::Unknown && !std::mem::replace(&mut self.heard, true)
    }

    /// The candidate sees no leader any more.
    pub fn finished(&self, labels: &Labels) {
        observed(labels).set(0.0);
    }
}

impl Leaderless {
    /// Returns the whole seconds that have passed.
    fn count(&mut self, now: Instant, leaderless: bool) -> u64 {
        let since = std::mem::replace(&mut self.since, leaderless.then_some(now));
        let Some(since) = since else { return 0 };
        let span = now.saturating_since(since) + Duration::from_nanos(u64::from(self.rest));
        self.rest = span.subsec_nanos();
        span.as_secs()
    }
}

fn late(labels: &Labels) -> Counter {
    counter!("incumbent_late_renewals_total", labels.all())
}

fn leaderless_seconds(labels: &Labels) -> Counter {
    counter!("incumbent_leaderless_seconds_total", labels.all())
}

fn observed(labels: &Labels) -> Gauge {
    gauge!("incumbent_observed_leader_token", labels.all())
}

#[cfg(test)]
mod tests {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    use super::*;
    use crate::lock::Token;
    use crate::time::timing::TimingOptions;

    const SECOND: Duration = Duration::from_secs(1);

    /// What a recorder has after `test`, for a lease of 30 s.
    fn recorded(test: impl FnOnce(&mut Leased, &Labels)) -> impl Fn(&str) -> DebugValue {
        let recorder = DebuggingRecorder::new();
        metrics::with_local_recorder(&recorder, || {
            let labels = Labels { election: "app".into(), identity: "c1".into() };
            let timing = Timing::new(TimingOptions::default(), 30 * SECOND).unwrap();
            test(&mut Leased::new(&labels, timing), &labels);
        });
        let seen = recorder.snapshotter().snapshot().into_vec();
        let seen: Vec<_> = seen.into_iter().map(|(key, .., value)| (key, value)).collect();
        move |name| {
            let mut of_name = seen.iter().filter(|(key, _)| key.key().name() == name);
            match of_name.next() {
                Some((_, DebugValue::Counter(value))) => DebugValue::Counter(*value),
                Some((_, DebugValue::Gauge(value))) => DebugValue::Gauge(*value),
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_renewal_is_late_when_half_of_the_time_for_it_has_passed() {
        let late = |left: &[u32]| {
            let seen = recorded(|leased, labels| {
                for left in left {
                    leased.renewed(SECOND, Some(*left * SECOND), labels);
                }
                leased.renewed(SECOND, None, labels); // of no term
            });
            seen("incumbent_late_renewals_total")
        };
        // Due when 20 s are left.
        assert_eq!(late(&[20, 15, 10]), DebugValue::Counter(0));
        assert_eq!(late(&[20, 9, 20, 1]), DebugValue::Counter(2));
    }

    #[test]
    fn time_without_a_leader_adds_up() {
        let leader = |is_me| Leader {
            identity: "c2".into(),
            token: Some(Token(7)),
            since_unix_ms: None,
            advertisement: None,
            last_seen: Instant::ORIGIN,
            lease: SECOND,
            is_me,
            priority: None,
        };
        let at = |ms| Instant::ORIGIN + Duration::from_millis(ms);
        let seen = recorded(|leased, labels| {
            assert!(
                !leased.observe(at(0), State::Unknown, None, false, labels),
                "not heard from yet"
            );
            assert!(leased.observe(at(5_000), State::Candidate, None, false, labels));
            assert!(!leased.observe(at(5_400), State::Candidate, None, false, labels));
            leased.observe(at(5_600), State::Candidate, Some(&leader(true)), false, labels); // cools down
            leased.observe(at(5_700), State::Leader, Some(&leader(true)), false, labels);
            leased.observe(at(9_000), State::Candidate, None, false, labels);
            leased.observe(at(10_400), State::Candidate, Some(&leader(false)), false, labels);
            leased.observe(at(60_000), State::Candidate, Some(&leader(false)), false, labels);
            leased.observe(at(70_000), State::Candidate, None, false, labels);
            leased.observe(at(72_000), State::Candidate, None, true, labels);
            leased.observe(at(90_000), State::Candidate, None, true, labels);
            leased.observe(at(95_000), State::Candidate, None, false, labels);
            leased.observe(at(96_000), State::Candidate, Some(&leader(false)), false, labels);
        });
        // 0.7 s, and 1.4 s; 2 s until the lock failed, and 1 s when it was back.
        assert_eq!(seen("incumbent_leaderless_seconds_total"), DebugValue::Counter(5));
        assert_eq!(seen("incumbent_observed_leader_token"), DebugValue::Gauge(7.0.into()));
    }
}
