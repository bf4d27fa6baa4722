//! What is seen from outside: metrics, where the feature `metrics` is on.

#[cfg(not(feature = "metrics"))]
mod disabled;
#[cfg(feature = "metrics")]
mod enabled;
#[cfg(feature = "metrics")]
mod labels;
#[cfg(feature = "metrics")]
mod leased;
#[cfg(feature = "metrics")]
mod of_set;

#[cfg(not(feature = "metrics"))]
pub(crate) use disabled::{SetTelemetry, Telemetry};
#[cfg(feature = "metrics")]
pub(crate) use enabled::Telemetry;
#[cfg(feature = "metrics")]
pub(crate) use of_set::SetTelemetry;

/// Whether the sentinel of this process responds.
#[cfg(all(feature = "sentinel", unix))]
pub(crate) fn sentinel_up(up: bool) {
    #[cfg(feature = "metrics")]
    metrics::gauge!("incumbent_sentinel_up").set(f64::from(up));
    #[cfg(not(feature = "metrics"))]
    let _ = up;
}
