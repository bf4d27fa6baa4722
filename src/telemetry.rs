//! What is seen from outside: metrics, where the feature `metrics` is on.

#[cfg(feature = "metrics")]
pub(crate) use enabled::Telemetry;

#[cfg(not(feature = "metrics"))]
pub(crate) use disabled::Telemetry;

#[cfg(feature = "metrics")]
mod enabled {
    use std::time::{Duration, SystemTime};

    use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

    use crate::lock::Standing;
    use crate::protocol::{Cause, PreviousTerm, State};

    pub(crate) struct Telemetry {
        election: String,
        identity: String,
        leader: Gauge,
        renewals: Option<Renewals>,
        won: Counter,
    }

    /// Of those who renew.
    struct Renewals {
        last: Gauge,
        seconds: Histogram,
    }

    impl Telemetry {
        pub fn new(election: &str, identity: &str) -> Self {
            let labels = labels(election, identity);
            let renewals = Renewals {
                last: gauge!("incumbent_last_renewal_timestamp_seconds", &labels),
                seconds: histogram!("incumbent_renewal_seconds", &labels),
            };
            Self { renewals: Some(renewals), ..Self::for_life(election, identity) }
        }

        /// Of a candidate for life, who renews nothing.
        #[cfg_attr(not(feature = "kubernetes"), allow(dead_code))]
        pub fn for_life(election: &str, identity: &str) -> Self {
            let labels = labels(election, identity);
            let leader = gauge!("incumbent_leader", &labels);
            leader.set(0.0);
            Self {
                leader,
                renewals: None,
                won: counter!("incumbent_terms_total", &labels),
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

        pub fn won(&self, takeover: Option<Duration>, after: PreviousTerm) {
            self.won.increment(1);
            self.leader.set(1.0);
            self.stamp_renewal();
            if let Some(takeover) = takeover {
                histogram!(
                    "incumbent_takeover_seconds",
                    "election" => self.election.clone(),
                    "identity" => self.identity.clone(),
                    "after" => after.as_str(),
                )
                .record(takeover);
            }
        }

        /// A term goes on that an earlier process has won.
        #[cfg_attr(not(feature = "kubernetes"), allow(dead_code))]
        pub fn resumed(&self) {
            self.leader.set(1.0);
        }

        pub fn lost(&self, cause: &Cause) {
            self.leader.set(0.0);
            counter!(
                "incumbent_losses_total",
                "election" => self.election.clone(),
                "identity" => self.identity.clone(),
                "cause" => cause.as_str(),
            )
            .increment(1);
        }

        pub fn standing(&self, standing: Standing) {
            gauge!(
                "incumbent_ready",
                "election" => self.election.clone(),
                "identity" => self.identity.clone(),
            )
            .set(f64::from(standing == Standing::Ready));
        }

        pub fn renewed(&self, latency: Duration) {
            if let Some(renewals) = &self.renewals {
                renewals.seconds.record(latency);
            }
            self.stamp_renewal();
        }

        fn stamp_renewal(&self) {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            if let Some(renewals) = &self.renewals {
                renewals.last.set(now.as_secs_f64());
            }
        }
    }

    fn labels(election: &str, identity: &str) -> [(&'static str, String); 2] {
        [("election", election.to_owned()), ("identity", identity.to_owned())]
    }
}

#[cfg(not(feature = "metrics"))]
mod disabled {
    use std::time::Duration;

    use crate::lock::Standing;
    use crate::protocol::{Cause, PreviousTerm, State};

    pub(crate) struct Telemetry;

    impl Telemetry {
        pub fn new(_election: &str, _identity: &str) -> Self {
            Self
        }

        #[cfg_attr(not(feature = "kubernetes"), allow(dead_code))]
        pub fn for_life(_election: &str, _identity: &str) -> Self {
            Self
        }

        #[cfg_attr(not(feature = "kubernetes"), allow(dead_code))]
        pub fn resumed(&self) {}

        pub fn campaigned(&self, _state: State) {}

        pub fn won(&self, _takeover: Option<Duration>, _after: PreviousTerm) {}

        pub fn lost(&self, _cause: &Cause) {}

        pub fn renewed(&self, _latency: Duration) {}

        pub fn standing(&self, _standing: Standing) {}
    }
}
