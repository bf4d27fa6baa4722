//! What is seen from outside: metrics.

mod labels;
mod leased;
mod of_election;
mod of_set;

pub(crate) use of_election::Telemetry;
pub(crate) use of_set::SetTelemetry;

/// Whether the sentinel of this process responds.
#[cfg(all(feature = "sentinel", unix))]
pub(crate) fn sentinel_up(up: bool) {
    metrics::gauge!("incumbent_sentinel_up").set(f64::from(up));
}
