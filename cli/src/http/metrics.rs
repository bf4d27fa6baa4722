//! The metrics of a candidate or a member of a set, for Prometheus.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::task::spawn_blocking;

use crate::error::one_line;
use crate::error::{CliError, Code};
use crate::process::BackgroundTask;

/// Upper bounds of histograms, in seconds: renewals take milliseconds, takeovers up to a lease.
const BUCKETS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// What the route needs, and the task that bounds the memory that metrics take.
#[derive(Clone)]
struct Recorded {
    metrics: PrometheusHandle,
    _upkeep: Arc<BackgroundTask>,
}

/// Records metrics from now on. Returns the route that renders them. Must be called before the
/// campaign starts, which looks for a recorder once.
pub fn metrics() -> Result<Router, CliError> {
    let metrics = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|error| {
            let message = format!("cannot record metrics: {}", one_line(&error));
            CliError::new(Code::Failed, message)
        })?;
    let upkeep = Arc::new(BackgroundTask(tokio::spawn(run_upkeep(metrics.clone()))));
    Ok(Router::new()
        .route("/metrics", get(render))
        .with_state(Recorded { metrics, _upkeep: upkeep }))
}

/// Adds the samples of histograms to their buckets. Without it they are kept until the next scrape,
/// which may never come.
async fn run_upkeep(metrics: PrometheusHandle) {
    loop {
        tokio::time::sleep(UPKEEP_INTERVAL).await;
        let metrics = metrics.clone();
        let _ = spawn_blocking(move || metrics.run_upkeep()).await; // an error: the runtime ends
    }
}

/// Takes milliseconds where there are many series, so it does not run on the threads of elections.
async fn render(State(Recorded { metrics, .. }): State<Recorded>) -> Response {
    match spawn_blocking(move || metrics.render()).await {
        Ok(text) => ([(header::CONTENT_TYPE, METRICS)], text).into_response(),
        Err(_) => {
            (StatusCode::INTERNAL_SERVER_ERROR, "cannot render the metrics\n").into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn samples_are_added_up_without_a_scrape() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || metrics::histogram!("some_seconds").record(1.0));
        // What has been added up is among the distributions.
        let added_up = || {
            let state = format!("{handle:?}");
            let (_, distributions) = state.split_once("distributions:").expect("distributions");
            distributions.contains("some_seconds")
        };
        assert!(!added_up());
        let _upkeep = BackgroundTask(tokio::spawn(run_upkeep(handle.clone())));
        let wait = async {
            while !added_up() {
                tokio::time::sleep(UPKEEP_INTERVAL).await;
            }
        };
        tokio::time::timeout(10 * UPKEEP_INTERVAL, wait).await.expect("upkeep");
    }
}
