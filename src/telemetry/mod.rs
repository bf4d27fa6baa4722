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
