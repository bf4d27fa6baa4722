//! The metrics of a candidate.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::{Counter, counter, gauge, histogram};

use super::leased::{Labels, Leased};
use crate::lock::Readiness;
use crate::protocol::{Cause, Leader, PreviousTerm, State};
use crate::time::clock::Instant;
use crate::time::timing::Timing;

/// The causes of a leader with a lease, in the words of [`Cause::as_str`]. The first ones are
/// those that an alert is for: they are counted from 0 from the start, the others from the first
/// term, as most candidates of many elections lead none.
const CAUSES: [&str; 9] = [
    "expired",
    "denied",
    "superseded",
    "evicted",
    "handed_over",
    "resigned",
    "stopped",
    "work_ended",
    "work_panicked",
];
const ALERTED: usize = 3;
/// The causes of a leader for life.
const LIFE_CAUSES: [&str; 2] = ["evicted", "resigned"];

const EACH: [Readiness; 3] = [Readiness::Ready, Readiness::Cordoned, Readiness::Unhealthy];

/// One word in the task of a candidate. Handles are kept of what each renewal records alone: each
/// takes two words in every election.
pub(crate) struct Telemetry(Box<Metrics>);

struct Metrics {
    labels: Labels,
    /// Renewals.
    campaigns: OnceLock<Counter>,
    /// There once a term has drained.
    has_drained: OnceLock<()>,
    /// There once the candidate has shown how ready it is.
    has_stood: OnceLock<()>,
    /// There once a pause was known.
    was_paused: OnceLock<()>,
    /// There once the candidate has led.
    has_led: OnceLock<()>,
    /// Unless the candidate is one for life.
    leased: Option<Leased>,
}

impl Telemetry {
    pub fn new(election: &Arc<str>, identity: &Arc<str>, timing: Timing) -> Self {
        let labels = Labels { election: Arc::clone(election), identity: Arc::clone(identity) };
        let leased = Leased::new(&labels, timing);
        for cause in CAUSES.iter().take(ALERTED) {
            losses(&labels, cause).increment(0);
        }
        Self::of(labels, Some(leased))
    }

    /// Of a candidate for life, who renews nothing.
    #[cfg_attr(not(feature = "kubernetes"), allow(dead_code))]
    pub fn for_life(election: &str, identity: &str) -> Self {
        Self::of(Labels { election: election.into(), identity: identity.into() }, None)
    }

    fn of(labels: Labels, leased: Option<Leased>) -> Self {
        terms(&labels).increment(0);
        let telemetry = Self(Box::new(Metrics {
            labels,
            campaigns: OnceLock::new(),
            has_drained: OnceLock::new(),
            has_stood: OnceLock::new(),
            was_paused: OnceLock::new(),
            has_led: OnceLock::new(),
            leased,
        }));
        telemetry.set("incumbent_leader", 0.0);
        telemetry.lock_up(false);
        telemetry
    }

    pub fn campaigned(&self, state: State) {
        let labels = &self.0.labels;
        let register = |state| counter!("incumbent_campaigns_total", labels.with("state", state));
        match state {
            State::Leader => self.0.campaigns.get_or_init(|| register("leader")).increment(1),
            _ => register("candidate").increment(1),
        }
    }

    fn set(&self, gauge: &'static str, value: f64) {
        gauge!(gauge, self.0.labels.all()).set(value);
    }

    pub fn won(&self, takeover: Option<Duration>, after: PreviousTerm) {
        terms(&self.0.labels).increment(1);
        self.leads();
        if let Some(leased) = &self.0.leased {
            leased.stamp_renewal();
        }
        if let Some(takeover) = takeover {
            let labels = self.0.labels.with("after", after.as_str());
            histogram!("incumbent_takeover_seconds", labels).record(takeover);
        }
    }

    /// Continues a term that an earlier process has won.
    #[cfg_attr(not(feature = "kubernetes"), allow(dead_code))]
    pub fn resumed(&self) {
        self.leads();
    }

    fn leads(&self) {
        self.0.has_led.get_or_init(|| {
            let causes = if self.0.leased.is_some() { &CAUSES[..] } else { &LIFE_CAUSES[..] };
            for cause in causes {
                losses(&self.0.labels, cause).increment(0);
            }
        });
        self.set("incumbent_leader", 1.0);
    }

    pub fn lost(&self, cause: &Cause) {
        self.set("incumbent_leader", 0.0);
        if self.0.has_drained.get().is_some() {
            self.set("incumbent_draining", 0.0);
        }
        losses(&self.0.labels, cause.as_str()).increment(1);
    }

    pub fn readiness(&self, readiness: Readiness) {
        self.0.has_stood.get_or_init(|| ());
        self.show_readiness(Some(readiness));
    }

    fn show_readiness(&self, readiness: Option<Readiness>) {
        self.set("incumbent_ready", f64::from(readiness == Some(Readiness::Ready)));
        for each in EACH {
            let labels = self.0.labels.with("standing", each.as_str());
            gauge!("incumbent_standing", labels).set(f64::from(readiness == Some(each)));
        }
    }

    /// `left`: of the time to lead, when the renewal had succeeded.
    pub fn renewed(&self, latency: Duration, left: Option<Duration>) {
        if let Some(leased) = &self.0.leased {
            leased.renewed(latency, left, &self.0.labels);
        }
    }

    /// Whether requests to the lock succeed.
    pub fn lock_up(&self, up: bool) {
        self.set("incumbent_lock_up", f64::from(up));
    }

    /// What the candidate knows now. `lock_fails`: whether requests to the lock fail.
    pub fn observe(
        &mut self,
        now: Instant,
        state: State,
        leader: Option<&Leader>,
        lock_fails: bool,
    ) {
        let Metrics { leased: Some(leased), labels, .. } = &mut *self.0 else { return };
        let responds = leased.observe(now, state, leader, lock_fails, labels);
        // Hints may come while requests fail, and so may responses of another one of several locks.
        if responds && !lock_fails {
            self.lock_up(true);
        }
    }

    pub fn draining(&self) {
        self.0.has_drained.get_or_init(|| ());
        self.set("incumbent_draining", 1.0);
    }

    /// `None`: no pause is known.
    pub fn paused_until(&self, unix_ms: Option<u64>) {
        self.0.was_paused.get_or_init(|| ());
        let until = Duration::from_millis(unix_ms.unwrap_or_default()).as_secs_f64();
        self.set("incumbent_paused_until_timestamp_seconds", until);
    }

    pub fn roll_call_answered(&self) {
        counter!("incumbent_roll_calls_total", self.0.labels.all()).increment(1);
    }

    /// The candidate is gone, and its process may continue: nothing is left to show, and no alert
    /// is to fire for what was shown last. A term that continued was lost before.
    pub fn finished(&self) {
        self.lock_up(true); // nothing fails
        if let Some(leased) = &self.0.leased {
            leased.finished(&self.0.labels);
        }
        if self.0.has_stood.get().is_some() {
            self.show_readiness(None);
        }
        if self.0.has_drained.get().is_some() {
            self.set("incumbent_draining", 0.0);
        }
        if self.0.was_paused.get().is_some() {
            self.paused_until(None);
        }
    }
}

fn terms(labels: &Labels) -> Counter {
    counter!("incumbent_terms_total", labels.all())
}

fn losses(labels: &Labels, cause: &'static str) -> Counter {
    counter!("incumbent_losses_total", labels.with("cause", cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_a_counter_from_the_first_term_on() {
        let text = Arc::<str>::from("");
        let causes = [
            Cause::Resigned,
            Cause::HandedOver { to: Arc::clone(&text) },
            Cause::Stopped,
            Cause::Superseded { by: None },
            Cause::Evicted,
            Cause::Expired { last_error: None },
            Cause::Denied { error: text },
            Cause::WorkEnded,
            Cause::WorkPanicked,
        ];
        assert!(causes.iter().all(|cause| CAUSES.contains(&cause.as_str())));
        assert_eq!(causes.len(), CAUSES.len());
        let unplanned = ["expired", "denied", "superseded"];
        assert_eq!(CAUSES[..ALERTED], unplanned);
    }
}
