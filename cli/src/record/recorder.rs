//! What is to be written, and when.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::Instant;

use super::observed::Observed;
use crate::elections::{ElectionStatus, Elections, LeaderStatus};
use crate::error::{CliError, Code};
use crate::history::{Event, WriteError, Writer};
use crate::output;
use crate::time_format;
use crate::view::{LastRead, Transition};

/// How old the written end of an observation may be.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How many transitions wait before they are written.
const BATCH: usize = 500;
/// How many transitions wait for the file at most.
const MAX_WAITING: usize = 10_000;
/// The pause before a failed write is repeated.
const PAUSE: Duration = Duration::from_secs(1);

/// Transitions on their way to the file.
pub struct Recorder {
    writer: Writer,
    has_lock_times: bool,
    cause_of_absence: &'static str,
    waiting: VecDeque<Event>,
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
        elections: &Elections<'_>,
        names: &[String],
    ) -> Result<Self, CliError> {
        let lock = serde_json::Value::Object(elections.lock_json()).to_string();
        let has_lock_times = elections.has_lock_times();
        writer.set_lock(&lock, has_lock_times).await?;
        let mut led = writer.led().await?;
        led.retain(|(name, _)| names.is_empty() || names.contains(name));
        Ok(Self::with(writer, has_lock_times, elections.cause_of_absence(), led))
    }

    fn with(
        writer: Writer,
        has_lock_times: bool,
        cause_of_absence: &'static str,
        led: Vec<(String, u64)>,
    ) -> Self {
        Self {
            writer,
            has_lock_times,
            cause_of_absence,
            waiting: VecDeque::new(),
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
                let state = LeaderStatus::Vacant(self.cause_of_absence.to_owned());
                let status = ElectionStatus { election, revision, written: None, state };
                self.add(Transition::found(status, read.wall));
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
        let is_due = !self.waiting.is_empty() || self.is_heartbeat_due();
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
        while !self.waiting.is_empty() || self.is_heartbeat_due() {
            let events = &*self.waiting.make_contiguous();
            let count = self.writer.write(events, self.observed.periods()).await?;
            self.waiting.drain(..count);
            // The observations were written with the last events.
            if self.waiting.is_empty() {
                self.observed.written();
                self.written_at = Some(Instant::now());
            }
            if self.retry_at.take().is_some() {
                output::note("recording again");
            }
        }
        Ok(())
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
        match (written, self.waiting.len()) {
            (Ok(()) | Err(WriteError::Passing(_)), 0) => closed,
            (Err(WriteError::Lasting(failure)), 0) => Err(failure),
            (Ok(()), _) => closed, // never: all is written
            (Err(WriteError::Passing(failure) | WriteError::Lasting(failure)), left) => {
                let what = if left == 1 { "transition was" } else { "transitions were" };
                let message = format!("{left} {what} not written: {failure}");
                Err(CliError::new(Code::Failed, message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::MIN_SIZE;
    use crate::view::Moment;

    #[tokio::test]
    async fn time_before_a_read_after_an_outage_is_unknown() {
        let place = tempfile::tempdir().expect("a directory");
        let writer = Writer::open(&place.path().join("rec"), &[], MIN_SIZE).await;
        let mut recorder = Recorder::with(writer.expect("a file"), false, "expired", Vec::new());
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
}
