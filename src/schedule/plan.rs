//! Which slot of a job runs next: pure, with the time as an argument.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::job::{Job, Runs, Slot};

/// What is known of a job beyond the terms of its leaders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The last slot that has begun or was passed over: no earlier one runs any more.
    #[serde(rename = "slot")]
    last: i64,
    /// Whether the run of that slot has begun and is not known to have ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    open: bool,
    /// How the last run ended that did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ended: Option<Ended>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The slot of the run, in seconds since 1970.
    pub slot: i64,
    /// The exit code of the run; zero if it succeeded.
    pub code: u8,
    /// How long it ran, in milliseconds.
    pub ms: u64,
}

/// What to do for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Run this slot. `late`: it was due before this process could run it.
    Run { slot: Slot, late: bool },
    /// The next slot begins then.
    Wait(Slot),
}

impl JobRecord {
    /// The record of a job that was not known before: slots up to now do not run.
    pub fn new(now: Timestamp) -> Self {
        Self { last: now.as_second(), open: false, ended: None }
    }

    /// The greatest record there is, for its length.
    pub fn longest() -> Self {
        let ended = Some(Ended { slot: i64::MIN, code: u8::MAX, ms: u64::MAX });
        Self { last: i64::MIN, open: true, ended }
    }

    pub fn last(&self) -> Slot {
        Slot(self.last)
    }

    /// Whether the run of the last slot is not known to have ended.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Records that the run of `slot` begins.
    pub fn begin(&mut self, slot: Slot) {
        (self.last, self.open) = (slot.0, true);
    }

    /// Records that the run of `slot` has ended.
    pub fn end(&mut self, ended: Ended) {
        self.open = false;
        self.ended = Some(ended);
    }

    /// Decides what to do at `now`; `None` if the job never runs again.
    ///
    /// `ready_since` is when this process became able to run the job: since it leads, and since its
    /// last run of the job ended.
    pub fn next(&self, job: &Job, ready_since: Timestamp, now: Timestamp) -> Option<Step> {
        if self.open && job.runs == Runs::AtLeastOnce {
            return Some(Step::Run { slot: self.last(), late: true });
        }
        // A clock that was set back was ready before.
        let ready = ready_since.min(now);
        let catch_up = SignedDuration::try_from(job.catch_up).unwrap_or_default();
        let oldest = ready.min(now.checked_sub(catch_up).unwrap_or(Timestamp::MIN));
        // The slot of this very second counts as well.
        let before = oldest.as_second() + i64::from(oldest.subsec_nanosecond() > 0) - 1;
        let after = self.last.max(before);
        let slot = job.next(Timestamp::from_second(after).ok()?)?;
        Some(match slot.time()? <= now {
            true => Step::Run { slot, late: slot.time()? < ready },
            false => Step::Wait(slot),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn record(last: &str) -> JobRecord {
        JobRecord::new(at(last))
    }

    fn runs(slot: &str, late: bool) -> Option<Step> {
        Some(Step::Run { slot: Slot::of(at(slot)), late })
    }

    fn waits(slot: &str) -> Option<Step> {
        Some(Step::Wait(Slot::of(at(slot))))
    }

    fn hourly() -> Job {
        Job::new("hourly", "0 * * * *").unwrap()
    }

    const READY: &str = "2026-03-01T09:30:00Z";

    #[test]
    fn slot_runs_from_its_second_on_and_once() {
        let (job, mut record) = (hourly(), record(READY));
        let next = |record: &JobRecord, now| record.next(&job, at(READY), at(now));
        assert_eq!(next(&record, "2026-03-01T09:59:59.9Z"), waits("2026-03-01T10:00:00Z"));
        assert_eq!(next(&record, "2026-03-01T10:00:00Z"), runs("2026-03-01T10:00:00Z", false));
        record.begin(Slot::of(at("2026-03-01T10:00:00Z")));
        assert_eq!(next(&record, "2026-03-01T10:00:00Z"), waits("2026-03-01T11:00:00Z"));
    }

    #[test]
    fn clock_behind_that_of_the_former_leader_repeats_nothing() {
        let (job, mut record) = (hourly(), record(READY));
        record.begin(Slot::of(at("2026-03-01T10:00:00Z")));
        let now = at("2026-03-01T09:57:00Z");
        assert_eq!(record.next(&job, now, now), waits("2026-03-01T11:00:00Z"));
    }

    #[test]
    fn missed_slots_run_late_each_once_within_the_limit() {
        let job = hourly().catch_up(Duration::from_secs(2 * 3600));
        let mut record = record("2026-03-01T06:00:00Z");
        let now = at(READY);
        let mut ran = Vec::new();
        while let Some(Step::Run { slot, late: true }) = record.next(&job, now, now) {
            record.begin(slot);
            ran.push(slot.to_string());
        }
        assert_eq!(ran, ["2026-03-01T08:00:00Z", "2026-03-01T09:00:00Z"]);
        assert_eq!(record.next(&job, now, now), waits("2026-03-01T10:00:00Z"));
    }

    #[test]
    fn without_catch_up_only_slots_since_this_process_was_ready_run() {
        let job = hourly().catch_up(Duration::ZERO);
        let record = record("2026-03-01T06:00:00Z");
        let ready = at("2026-03-01T10:00:00.5Z");
        assert_eq!(record.next(&job, ready, ready), waits("2026-03-01T11:00:00Z"));
        let ready = at("2026-03-01T10:00:00Z");
        let late = at("2026-03-01T10:00:07Z");
        assert_eq!(record.next(&job, ready, late), runs("2026-03-01T10:00:00Z", false));
    }

    #[test]
    fn run_that_was_cut_short_is_repeated_at_least_once_only() {
        let mut record = record(READY);
        record.begin(Slot::of(at("2026-03-01T10:00:00Z")));
        let now = at("2026-03-05T00:30:00Z");
        let (once, again) = (hourly(), hourly().at_least_once());
        assert_eq!(record.next(&once, now, now), waits("2026-03-05T01:00:00Z"));
        assert_eq!(record.next(&again, now, now), runs("2026-03-01T10:00:00Z", true));
        record.end(Ended { slot: at("2026-03-01T10:00:00Z").as_second(), code: 0, ms: 5 });
        assert_eq!(record.next(&again, now, now), waits("2026-03-05T01:00:00Z"));
    }

    #[test]
    fn clock_that_was_set_back_waits_for_new_slots() {
        let (job, mut record) = (hourly(), record(READY));
        record.begin(Slot::of(at("2026-03-01T10:00:00Z")));
        let step = record.next(&job, at("2026-03-01T10:00:00Z"), at("2026-03-01T08:00:00Z"));
        assert_eq!(step, waits("2026-03-01T11:00:00Z"));
    }

    /// In 2026 the clocks of Berlin skip 02:00 to 03:00 on 29 March, and repeat it on 25 October.
    #[test]
    fn fixed_times_run_once_when_the_clocks_change() {
        let job = Job::new("nightly", "30 2 * * *").unwrap().zone("Europe/Berlin").unwrap();
        let slots = |from: &str, count| {
            let mut slot = Slot::of(at(from));
            let mut slots = Vec::new();
            for _ in 0..count {
                slot = job.next(slot.time().unwrap()).unwrap();
                slots.push(slot.to_string());
            }
            slots
        };
        assert_eq!(
            slots("2026-03-28T00:00:00Z", 3),
            ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
        );
        assert_eq!(
            slots("2026-10-24T00:00:00Z", 3),
            ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
        );
    }

    #[test]
    fn each_time_of_a_list_is_a_fixed_time() {
        let next = |expression: &str, from: &str| {
            let job = Job::new("job", expression).unwrap().zone("Europe/Berlin").unwrap();
            let first = job.next(at(from)).unwrap();
            [first, job.next(first.time().unwrap()).unwrap()].map(|slot| slot.to_string())
        };
        // Skipped.
        assert_eq!(
            next("0 2,14 * * *", "2026-03-29T00:00:00Z"),
            ["2026-03-29T01:00:00Z", "2026-03-29T12:00:00Z"]
        );
        assert_eq!(next("0,30 2 29 3 *", "2026-03-28T00:00:00Z")[0], "2026-03-29T01:00:00Z");
        // Repeated.
        assert_eq!(
            next("0 2,14 * * *", "2026-10-24T22:00:00Z"),
            ["2026-10-25T00:00:00Z", "2026-10-25T13:00:00Z"]
        );
    }

    #[test]
    fn what_never_matches_is_refused() {
        for (expression, why) in [
            ("0 0 30 2 *", "no time matches"),
            ("61 * * * *", "is invalid"),
            ("", "is invalid"),
            ("* * *", "is invalid"),
        ] {
            let error = Job::new("job", expression).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(Job::new("a b", "* * * * *").is_err() && Job::new("", "* * * * *").is_err());
        assert!(hourly().zone("Europe/Atlantis").is_err());
    }
}
