//! One run a period, for those who have a scheduler already.

use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Timestamp};

use super::job::Slot;
use super::jobs::{no_checkpoint, not_recorded};
use super::plan::JobRecord;
use super::records::Records;
use super::{ScheduleError, ScheduleErrorKind};
use crate::election::checkpoint::Checkpoint;
use crate::election::leadership::Leadership;

/// The job that a run of a period is recorded as.
const ONCE: &str = "once";

/// When a run of the period at this time has begun; `None` if it may begin. For a member that was
/// started then, and has waited since: a run that began meanwhile is one of its period, too.
///
/// # Errors
/// [`ScheduleErrorKind::NoRecords`]: the election has no
/// [checkpoint](crate::ElectionBuilder::checkpoint), or it holds something else.
pub fn last_of_period_at(
    leadership: &Leadership,
    period: Duration,
    at: SystemTime,
) -> Result<Option<Slot>, ScheduleError> {
    let (_, records) = records_of(leadership)?;
    let last = records.get(ONCE).map(JobRecord::last);
    let at = Timestamp::try_from(at).unwrap_or(Timestamp::MAX);
    Ok(last.filter(|last| !may_run(*last, period, at)))
}

/// Takes the run of this period: `None`, unless the last one began less than nine tenths of a
/// period ago. Then that one.
///
/// For members that all start at about the same time, as by cron: the first of them runs, and the
/// others find that it has. The tenth is for clocks that differ and for members that start late. A
/// run that fails is not repeated within its period.
///
/// # Errors
/// As [`last_of_period_at`], or the checkpoint accepts no records.
/// [`ScheduleErrorKind::TermOver`]: it was not found out in time whether the run is taken.
///
/// # Cancel safety
/// If the returned future is dropped, the run may be taken or not.
pub async fn once_per(
    leadership: &Leadership,
    period: Duration,
) -> Result<Option<Slot>, ScheduleError> {
    if let Some(last) = last_of_period_at(leadership, period, SystemTime::now())? {
        return Ok(Some(last));
    }
    let (checkpoint, mut records) = records_of(leadership)?;
    let now = Timestamp::now();
    let mut record = JobRecord::new(now);
    record.begin(Slot::of(now));
    records.set(ONCE, record);
    let saved = checkpoint.save_within_lease(&records.encode(&[])).await;
    saved.map_err(|error| not_recorded(leadership.election(), error))?;
    match leadership.is_valid() {
        true => Ok(None),
        false => Err(ScheduleError::new(ScheduleErrorKind::TermOver, "the term is over")),
    }
}

fn records_of(leadership: &Leadership) -> Result<(Checkpoint, Records), ScheduleError> {
    let checkpoint = leadership.checkpoint().ok_or_else(no_checkpoint)?;
    let election = leadership.election();
    let records = Records::decode(election, &checkpoint.data())?;
    if records.are_of_others(ONCE) {
        let what = format!("{election} runs the jobs of a schedule: use another election");
        return Err(ScheduleError::new(ScheduleErrorKind::NoRecords, what));
    }
    Ok((checkpoint, records))
}

/// A last run in the future is that of a host whose clock is ahead.
fn may_run(last: Slot, period: Duration, now: Timestamp) -> bool {
    let most = SignedDuration::try_from(period - period / 10).unwrap_or(SignedDuration::MAX);
    let since = last.time().map(|last| now.duration_since(last));
    since.is_none_or(|since| since >= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_start_together_run_once_in_each_period() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let last = Slot::of(at("2026-11-26T03:00:05Z"));
        for (now, runs) in [
            ("2026-11-26T03:00:07Z", false),
            ("2026-11-26T02:57:00Z", false), // its clock is behind
            ("2026-11-26T03:04:00Z", false),
            ("2026-11-26T03:56:00Z", true), // its clock is behind
            ("2026-11-26T04:00:01Z", true),
        ] {
            assert_eq!(may_run(last, Duration::from_secs(3600), at(now)), runs, "{now}");
        }
        assert!(!may_run(last, Duration::MAX, at("2400-01-01T00:00:00Z")));
    }
}
