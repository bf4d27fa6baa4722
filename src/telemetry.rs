//! What is seen from outside: metrics, where the feature `metrics` is on.

#[cfg(feature = "metrics")]
pub(crate) use enabled::Telemetry;

#[cfg(not(feature = "metrics"))]
pub(crate) use disabled::Telemetry;

#[cfg(feature = "metrics")]
mod enabled {
    use std::time::{Duration, SystemTime};

    use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

    use crate::protocol::{Cause, State};

    pub(crate) struct Telemetry {
        election: String,
        identity: String,
        leader: Gauge,
        last_renewal: Gauge,
        renewal_seconds: Histogram,
        takeover_seconds: Histogram,
        won: Counter,
    }

    impl Telemetry {
        pub fn new(election: &str, identity: &str) -> Self {
            let labels = || [("election", election.to_owned()), ("identity", identity.to_owned())];
            let leader = gauge!("incumbent_leader", &labels());
            leader.set(0.0);
            Self {
                leader,
                last_renewal: gauge!("incumbent_last_renewal_timestamp_seconds", &labels()),
                renewal_seconds: histogram!("incumbent_renewal_seconds", &labels()),
                takeover_seconds: histogram!("incumbent_takeover_seconds", &labels()),
                won: counter!("incumbent_terms_total", &labels()),
                election: election.to_owned(),
                identity: identity.to_owned(),
            }
        }

        pub fn campaigned(&self, state: State) {
            counter!(
                "incumbent_campaigns_total",
                "election" => self.election.clone(),
                "identity" => self.identity.clone(),
                "state" => state.to_string(),
            )
            .increment(1);
        }

        pub fn won(&self, takeover: Option<Duration>) {
            self.won.increment(1);
            self.leader.set(1.0);
            self.stamp_renewal();
            if let Some(takeover) = takeover {
                self.takeover_seconds.record(takeover);
            }
        }

        pub fn lost(&self, cause: &Cause) {
            self.leader.set(0.0);
            counter!(
                "incumbent_losses_total",
                "election" => self.election.clone(),
                "identity" => self.identity.clone(),
                "cause" => cause.word(),
            )
            .increment(1);
        }

        pub fn renewed(&self, latency: Duration) {
            self.renewal_seconds.record(latency);
            self.stamp_renewal();
        }

        fn stamp_renewal(&self) {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            self.last_renewal.set(now.as_secs_f64());
        }
    }
}

#[cfg(not(feature = "metrics"))]
mod disabled {
    use std::time::Duration;

    use crate::protocol::{Cause, State};

    pub(crate) struct Telemetry;

    impl Telemetry {
        pub fn new(_election: &str, _identity: &str) -> Self {
            Self
        }

        pub fn campaigned(&self, _state: State) {}

        pub fn won(&self, _takeover: Option<Duration>) {}

        pub fn lost(&self, _cause: &Cause) {}

        pub fn renewed(&self, _latency: Duration) {}
    }
}
