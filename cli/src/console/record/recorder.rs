//! What is to be written, when, and in which times every transition was seen.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use incumbent::lock::Revision;
use time::OffsetDateTime;
use tokio::time::Instant;

use crate::console::history::{ElectionRun, Event, ObservedPeriod, Period, WriteError, Writer};
use crate::console::model::{LastRead, Transition};
use crate::error::{CliError, Code};
use crate::lock::elections::{ElectionRecord, Elections, Vacancy};
use crate::output::{self, time_format};

/// How old the written end of an observation may be.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How many transitions wait before they are written.
const BATCH: usize = 500;
/// How many transitions, and runs, wait for the file at most.
const MAX_WAITING: usize = 10_000;
/// The pause before a failed write is repeated.
const PAUSE: Duration = Duration::from_secs(1);

/// Transitions, and runs of jobs, on their way to the file.
pub struct Recorder {
    writer: Writer,
    has_lock_times: bool,
    cause_of_absence: Vacancy,
    waiting: VecDeque<Event>,
    runs: VecDeque<ElectionRun>,
    observed: Observed,
    last_read: Option<Instant>,
    /// The reads so far that showed that writes had been missed.
    gaps: u64,
    /// The elections that had a leader when they were last recorded, until the lock is read.
    led: Option<Vec<(String, u64)>>,
    /// The elections that were found, until the lock is read.
    found: HashSet<String>,
    written_at: Option<Instant>,
    /// When a failed write is repeated.
    retry_at: Option<Instant>,
    /// Whether it was noted that reads take too long.
    is_slow: bool,
}

impl Recorder {
    pub async fn new(
        mut writer: Writer,
        elections: &Elections,
        names: &[String],
    ) -> Result<Self, CliError> {
        let lock = serde_json::Value::Object(elections.lock_json()).to_string();
        let has_lock_times = elections.facts().has_lock_times;
        writer.set_lock(&lock, has_lock_times).await?;
        let mut led = writer.led().await?;
        led.retain(|(name, _)| names.is_empty() || names.contains(name));
        Ok(Self::with(writer, has_lock_times, elections.facts().absence.clone(), led))
    }

    fn with(
        writer: Writer,
        has_lock_times: bool,
        cause_of_absence: Vacancy,
        led: Vec<(String, u64)>,
    ) -> Self {
        Self {
            writer,
            has_lock_times,
            cause_of_absence,
            waiting: VecDeque::new(),
            runs: VecDeque::new(),
            observed: Observed::default(),
            last_read: None,
            gaps: 0,
            led: Some(led),
            found: HashSet::new(),
            written_at: None,
            retry_at: None,
            is_slow: false,
        }
    }

    /// Takes a transition.
    pub fn add(&mut self, transition: Transition) {
        if self.led.is_some() {
            self.found.insert(transition.election.clone());
        }
        let learned = OffsetDateTime::now_utc();
        let at = if self.has_lock_times { transition.time } else { learned };
        if self.waiting.len() == MAX_WAITING {
            // What is lost is not known to have been seen.
            let lost = self.waiting.pop_front().map(|lost| lost.learned);
            lost.into_iter().for_each(|lost| self.observed.lose_until(lost));
        }
        self.waiting.push_back(Event { transition, at, learned });
    }

    /// Takes what was learned of runs.
    pub fn add_runs(&mut self, runs: Vec<ElectionRun>) {
        self.runs.extend(runs);
        // The numbers of the runs say that some are lost.
        self.runs.drain(..self.runs.len().saturating_sub(MAX_WAITING));
    }

    /// The lock cannot be read, since some time after the last read. What that one showed is taken.
    pub fn interrupt(&mut self, last_read: Option<LastRead>) {
        // Taken later it would pass for a read after the failure.
        self.observe(last_read);
        self.observed.interrupt();
    }

    /// Takes when the lock was read last, after the transitions that this read showed. Returns
    /// whether it was read since the last call.
    pub fn observe(&mut self, last_read: Option<LastRead>) -> bool {
        let last_read = last_read.filter(|read| self.last_read != Some(read.moment.at));
        let Some(LastRead { moment: read, took, gaps }) = last_read else { return false };
        self.last_read = Some(read.at);
        if std::mem::replace(&mut self.gaps, gaps) != gaps {
            self.observed.interrupt();
        }
        if !self.observed.read(read.wall, took) && !std::mem::replace(&mut self.is_slow, true) {
            output::note(format!(
                "a read of the lock takes {}: what is between reads is unknown; name the elections \
                 that matter",
                time_format::span(took)
            ));
        }
        // Without an entry now, although there was a leader: it ended while nobody recorded.
        for (election, revision) in self.led.take().into_iter().flatten() {
            if !self.found.contains(&election) {
                let (revision, cause) = (Revision(revision), self.cause_of_absence.clone());
                let record = ElectionRecord::vacant(election, revision, cause);
                self.add(Transition::found(record, read.wall));
            }
        }
        self.found = HashSet::new();
        true
    }

    /// Whether the next transitions are to be written first.
    pub fn is_full(&self) -> bool {
        self.retry_at.is_none() && self.waiting.len() >= BATCH
    }

    /// Writes what is waiting. A failure that may pass is noted once, and the write is repeated.
    pub async fn write_if_due(&mut self) -> Result<(), CliError> {
        if self.retry_at.is_some_and(|at| Instant::now() < at) {
            return Ok(());
        }
        let is_due = self.has_waiting() || self.is_heartbeat_due();
        if is_due { self.write().await } else { Ok(()) }
    }

    async fn write(&mut self) -> Result<(), CliError> {
        match self.write_all().await {
            Ok(()) => Ok(()),
            Err(WriteError::Passing(failure)) => {
                if self.retry_at.is_none() {
                    output::note(format!("not recording for now: {failure}"));
                }
                self.retry_at = Some(Instant::now() + PAUSE);
                Ok(())
            }
            Err(WriteError::Lasting(failure)) => Err(failure),
        }
    }

    async fn write_all(&mut self) -> Result<(), WriteError> {
        while self.has_waiting() || self.is_heartbeat_due() {
            if self.waiting.is_empty() && !self.runs.is_empty() {
                let count = self.writer.write_runs(self.runs.make_contiguous()).await?;
                self.runs.drain(..count);
                self.note_recovery();
                continue;
            }
            let events = &*self.waiting.make_contiguous();
            let count = self.writer.write(events, self.observed.periods()).await?;
            self.waiting.drain(..count);
            // The observations were written with the last events.
            if self.waiting.is_empty() {
                self.observed.written();
                self.written_at = Some(Instant::now());
            }
            self.note_recovery();
        }
        Ok(())
    }

    fn has_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.runs.is_empty()
    }

    fn note_recovery(&mut self) {
        if self.retry_at.take().is_some() {
            output::note("recording again");
        }
    }

    /// Whether the end of the observation is to be written, or a new one.
    fn is_heartbeat_due(&self) -> bool {
        let is_old = self.written_at.is_none_or(|at| at.elapsed() >= HEARTBEAT);
        self.observed.has_new() || is_old && self.observed.has_periods()
    }

    /// Writes the rest, and closes the file. Fails if transitions are left that were not written.
    pub async fn close(mut self) -> Result<(), CliError> {
        self.written_at = None; // the end of the observation, too
        let written = self.write_all().await;
        let closed = self.writer.close().await;
        let left = [(self.waiting.len(), "transition"), (self.runs.len(), "run")];
        let left: Vec<_> = left.into_iter().filter(|(count, _)| *count > 0).map(counted).collect();
        match written {
            Err(WriteError::Lasting(failure)) if left.is_empty() => Err(failure),
            Err(WriteError::Passing(failure) | WriteError::Lasting(failure))
                if !left.is_empty() =>
            {
                let message = format!("{} not written: {failure}", left.join(", "));
                Err(CliError::new(Code::Failed, message))
            }
            _ => closed,
        }
    }
}

/// As in `1 run was`.
fn counted((count, what): (usize, &str)) -> String {
    if count == 1 { format!("1 {what} was") } else { format!("{count} {what}s were") }
}

/// The longest time between two quick reads: more is a suspension, or a clock that was set.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// The longest time between two reads of any duration. Too much may happen in more.
const MAX_SLOW_PAUSE: Duration = Duration::from_secs(300);
/// The most periods that wait for the file.
const MAX_PERIODS: usize = 1000;

/// The periods that are not written yet, of which the last one may still last.
#[derive(Debug, Default)]
pub struct Observed {
    periods: VecDeque<ObservedPeriod>,
    is_interrupted: bool,
    /// How long the last read took.
    took: Duration,
}

impl Observed {
    /// Nothing is seen from now until the next read.
    pub fn interrupt(&mut self) {
        self.is_interrupted = true;
    }

    /// What is not written was overlooked up to this time.
    pub fn lose_until(&mut self, time: OffsetDateTime) {
        self.periods.retain(|observation| observation.id.is_some());
        self.is_interrupted = true;
        for observation in &mut self.periods {
            let period = &mut observation.period;
            period.end = period.end.min(time).max(period.begin);
        }
    }

    /// The lock was read at this time, and no transition was missed since the last read. Returns
    /// whether reads are quick enough for that.
    pub fn read(&mut self, now: OffsetDateTime, took: Duration) -> bool {
        // A lock that is slow is read less often. The read itself may have been suspended.
        let max_pause = MAX_PAUSE.saturating_add(self.took.saturating_mul(2)).min(MAX_SLOW_PAUSE);
        self.took = took;
        let last = self.periods.back_mut().filter(|_| !self.is_interrupted);
        let last = last.filter(|last| {
            let pause = now - last.period.end;
            !pause.is_negative() && pause.unsigned_abs() <= max_pause
        });
        match last {
            Some(last) => last.period.end = now,
            None => {
                if self.periods.len() == MAX_PERIODS {
                    self.periods.pop_front();
                }
                let period = Period { begin: now, end: now };
                self.periods.push_back(ObservedPeriod { id: None, period });
            }
        }
        self.is_interrupted = false;
        took <= MAX_SLOW_PAUSE
    }

    pub fn has_periods(&self) -> bool {
        !self.periods.is_empty()
    }

    /// Whether a period has no row yet.
    pub fn has_new(&self) -> bool {
        self.periods.iter().any(|observation| observation.id.is_none())
    }

    pub fn periods(&mut self) -> &mut [ObservedPeriod] {
        self.periods.make_contiguous()
    }

    /// All have been written: only the last one may change.
    pub fn written(&mut self) {
        self.periods.drain(..self.periods.len().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::history::MIN_SIZE;
    use crate::console::model::Moment;

    #[tokio::test]
    async fn time_before_a_read_after_an_outage_is_unknown() {
        let place = tempfile::tempdir().expect("a directory");
        let writer = Writer::open(&place.path().join("rec"), &[], MIN_SIZE).await;
        let mut recorder =
            Recorder::with(writer.expect("a file"), false, Vacancy::Expired, Vec::new());
        let start = Moment::now();
        let read = |seconds, gaps| {
            let after = Duration::from_secs(seconds);
            let moment = Moment { at: start.at + after, wall: start.wall + after };
            Some(LastRead { moment, took: Duration::ZERO, gaps })
        };
        assert!(recorder.observe(read(0, 0)));
        // It was read again, and could not be read then, before the recorder looked.
        recorder.interrupt(read(1, 0));
        assert!(!recorder.observe(read(1, 0)), "a recovery while the lock is down");
        assert!(recorder.observe(read(20, 0)));
        // Two reads, of which the first one showed that the watcher had missed writes.
        assert!(recorder.observe(read(26, 1)));
        assert!(recorder.observe(read(30, 1)));
        let seconds = |time: OffsetDateTime| (time - start.wall).whole_seconds();
        let periods = recorder.observed.periods().iter().map(|observation| observation.period);
        let periods: Vec<_> = periods.map(|p| (seconds(p.begin), seconds(p.end))).collect();
        assert_eq!(periods, [(0, 1), (20, 20), (26, 30)], "outages are unknown");
    }

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_700_000_000 + seconds).expect("a time")
    }

    fn read(observed: &mut Observed, second: i64) {
        assert!(observed.read(at(second), Duration::ZERO));
    }

    fn periods(observed: &mut Observed) -> Vec<(i64, i64)> {
        let second = |time: OffsetDateTime| time.unix_timestamp() - 1_700_000_000;
        let all = observed.periods().iter().map(|observation| observation.period);
        all.map(|period| (second(period.begin), second(period.end))).collect()
    }

    #[test]
    fn failure_suspension_and_clock_that_is_set_end_a_period() {
        let mut observed = Observed::default();
        [0, 5, 10].into_iter().for_each(|second| read(&mut observed, second));
        assert_eq!(periods(&mut observed), [(0, 10)]);
        observed.interrupt();
        [15, 20].into_iter().for_each(|second| read(&mut observed, second));
        assert_eq!(periods(&mut observed), [(0, 10), (15, 20)]);
        [500, 505].into_iter().for_each(|second| read(&mut observed, second));
        [100, 101].into_iter().for_each(|second| read(&mut observed, second));
        assert_eq!(periods(&mut observed), [(0, 10), (15, 20), (500, 505), (100, 101)]);
        observed.written();
        read(&mut observed, 105);
        assert_eq!(periods(&mut observed), [(100, 105)]);
    }

    #[test]
    fn lost_transitions_leave_an_unknown_time() {
        let mut observed = Observed::default();
        [0, 5].into_iter().for_each(|second| read(&mut observed, second));
        observed.periods()[0].id = Some(1);
        observed.written();
        [10, 15].into_iter().for_each(|second| read(&mut observed, second));
        observed.lose_until(at(7));
        assert_eq!(periods(&mut observed), [(0, 7)]);
        read(&mut observed, 20);
        assert_eq!(periods(&mut observed), [(0, 7), (20, 20)]);
    }

    #[test]
    fn slow_lock_is_seen_and_a_suspension_is_not() {
        let slow = Duration::from_secs(60);
        let mut observed = Observed::default();
        [0, 61, 122].into_iter().for_each(|second| assert!(observed.read(at(second), slow)));
        assert_eq!(periods(&mut observed), [(0, 122)]);
        observed.read(at(1000), slow);
        assert_eq!(periods(&mut observed), [(0, 122), (1000, 1000)]);
        let too_slow = Duration::from_secs(400);
        [1401, 1802].into_iter().for_each(|second| assert!(!observed.read(at(second), too_slow)));
        assert_eq!(periods(&mut observed)[2..], [(1401, 1401), (1802, 1802)]);
    }
}
