//! What is seen from outside: metrics.

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

/// The end of a run of a job, with its exit code; `None` if it was cut short.
#[cfg(feature = "schedule")]
pub(crate) fn slot_ended(election: &str, job: &str, code: Option<u8>, took: std::time::Duration) {
    let labels = [("election", election.to_owned()), ("job", job.to_owned())];
    let outcome = match code {
        Some(0) => "success",
        Some(_) => "failure",
        None => "cut_short",
    };
    let [of_election, of_job] = labels.clone();
    let counted = [of_election, of_job, ("outcome", outcome.to_owned())];
    metrics::counter!("incumbent_slot_runs_total", &counted).increment(1);
    let Some(code) = code else { return };
    metrics::gauge!("incumbent_slot_last_duration_seconds", &labels).set(took.as_secs_f64());
    metrics::gauge!("incumbent_slot_last_exit_code", &labels).set(f64::from(code));
    if code == 0 {
        let now = crate::util::since_unix_epoch().as_secs_f64();
        metrics::gauge!("incumbent_slot_last_success_timestamp_seconds", &labels).set(now);
    }
}
