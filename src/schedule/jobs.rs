//! Running the jobs of a leader.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::FutureExt as _;
use jiff::Timestamp;
use tokio::task::{Id, JoinError, JoinSet};
use tracing::warn;

use super::job::{Job, Slot};
use super::plan::{Ended, JobRecord, Step};
use super::records::Records;
use super::{ScheduleError, ScheduleErrorKind};
use crate::election::checkpoint::Checkpoint;
use crate::election::claimed_checkpoint::{CheckpointError, CheckpointErrorKind};
use crate::election::leadership::Leadership;
use crate::election::loss::Loss;
use crate::time::timing::whole_millis;

/// The longest sleep: the wall clock may be set meanwhile.
const MAX_SLEEP: Duration = Duration::from_secs(10);
/// The pause of a job after a run that was cut short in a term that continues.
const PAUSE: Duration = Duration::from_secs(1);
/// The exit code of a run that panicked.
const PANICKED: u8 = 101;

/// One run of a job.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JobRun {
    /// The job.
    pub job: Arc<str>,
    /// The slot.
    pub slot: Slot,
    /// Whether it was due before this process could run it: it was missed, or cut short.
    pub late: bool,
}

/// A wall clock.
pub(super) type WallClock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// What is known of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobStatus {
    /// The job.
    pub job: String,
    /// The last slot that has begun, or was passed over.
    pub last: Option<Slot>,
    /// Whether the run of that slot has begun and is not known to have ended.
    pub is_open: bool,
    /// The last slot whose run has ended, with its exit code and how long it ran.
    pub ended: Option<(Slot, u8, Duration)>,
    /// The next slot.
    pub next: Option<Slot>,
}

/// The jobs of a schedule, for a leader of one's own: [`new_schedule`](super::new_schedule) does
/// all of it.
#[derive(Clone)]
pub struct Jobs {
    jobs: Arc<[Job]>,
    pub(super) now: WallClock,
}

partial_debug!(Jobs, self, jobs: self.jobs);

impl Jobs {
    /// The jobs of one election.
    ///
    /// # Errors
    /// There are none, two have the same name, or they are too many for a checkpoint: about thirty
    /// fit.
    pub fn new(jobs: impl IntoIterator<Item = Job>) -> Result<Self, ScheduleError> {
        let jobs: Arc<[Job]> = jobs.into_iter().collect();
        if jobs.is_empty() {
            return Err(ScheduleError::invalid("a schedule has no job: add one"));
        }
        let mut names: Vec<&str> = jobs.iter().map(Job::name).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let what = format!("two jobs have the name {}: give each its own", pair[0]);
            return Err(ScheduleError::invalid(what));
        }
        Records::check(&jobs)?;
        Ok(Self { jobs, now: Arc::new(SystemTime::now) })
    }

    /// Uses another wall clock. For tests and simulations.
    #[must_use]
    pub fn clock(mut self, now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.now = Arc::new(now);
        self
    }

    fn now(&self) -> Timestamp {
        Timestamp::try_from((self.now)()).unwrap_or_default()
    }

    /// What is known of the jobs by the data of a checkpoint, in their order.
    ///
    /// # Errors
    /// [`ScheduleErrorKind::NoRecords`]: it holds something else.
    pub fn statuses(&self, election: &str, data: &[u8]) -> Result<Vec<JobStatus>, ScheduleError> {
        let (records, now) = (Records::decode(election, data)?, self.now());
        let status = |job: &Job| {
            let record = records.get(job.name());
            let ended = record.and_then(|record| record.ended);
            JobStatus {
                job: job.name().to_owned(),
                last: record.map(JobRecord::last),
                is_open: record.is_some_and(JobRecord::is_open),
                ended: ended.map(|e| (Slot(e.slot), e.code, Duration::from_millis(e.ms))),
                next: job.next(record.and_then(|r| r.last().time()).map_or(now, |t| t.max(now))),
            }
        };
        Ok(self.jobs.iter().map(status).collect())
    }

    /// Runs the jobs until the term is over, or drains, and all their runs have ended. Returns why
    /// it is over; `None` if it is not, as after a drain. Then drop the leadership.
    ///
    /// `execute` does one run, on a task of its own. It must return when the term ends, as what
    /// [`Leadership::run`] does. Runs of one job do not overlap. While the leader drains no run
    /// begins.
    ///
    /// # Errors
    /// [`ScheduleErrorKind::NoRecords`]: the election was not started with a
    /// [checkpoint](crate::ElectionBuilder::checkpoint), or it holds or accepts something else.
    ///
    /// # Cancel safety
    /// Dropping the returned future aborts the tasks of the runs.
    pub async fn run<F, W>(
        &self,
        leadership: &Leadership,
        execute: F,
    ) -> Result<Option<Loss>, ScheduleError>
    where
        F: Fn(JobRun) -> W,
        W: Future<Output = RunEnd> + Send + 'static,
    {
        let mut term = JobTerm::begin(self, leadership)?;
        let mut draining = leadership.is_draining();
        let mut failure = None;
        let loss = loop {
            let (due, sleep) = if draining { (Vec::new(), MAX_SLEEP) } else { term.take_due() };
            // Recorded before it begins: what is not recorded is not run.
            let saved = term.save().await;
            if !matches!(saved, Ok(true)) || !leadership.is_valid() {
                due.iter().rev().for_each(|due| term.put_back(due)); // the last number first
                failure = saved.err();
                // A drain that this begins ends with the runs.
                leadership.resign();
                break leadership.ended().now_or_never();
            }
            if !draining && leadership.is_draining() {
                // It has begun since the runs were found to be due: another leader does them.
                due.iter().rev().for_each(|due| term.put_back(due));
                draining = true;
                continue;
            }
            for due in due {
                let run = execute(due.run.clone());
                term.spawn(due, run);
            }
            if draining && term.tasks.is_empty() {
                break None;
            }
            tokio::select! {
                loss = leadership.ended() => break Some(loss),
                _ = leadership.draining(), if !draining => draining = true,
                Some(ended) = term.tasks.join_next_with_id() => term.ended(ended),
                () = tokio::time::sleep(sleep) => {}
            }
        };
        // In every case: the term is released when this returns.
        while let Some(ended) = term.tasks.join_next_with_id().await {
            term.ended(ended);
        }
        // Until the deadline it may still be recorded.
        let saved = term.save().await;
        match failure.or(saved.err()) {
            Some(error) => Err(error),
            None => Ok(loss),
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// With this exit code: zero if it succeeded.
    Ended(u8),
    /// The end of the term cut it short.
    CutShort,
    /// It did not begin.
    NotBegun,
}

/// A run that begins.
struct Due {
    /// That of the job.
    index: usize,
    run: JobRun,
    /// The record of the job before it.
    before: JobRecord,
    /// What its beginning in the log returned.
    logged: Option<u64>,
}

/// When a job may begin its next run.
struct Lane {
    /// Since when it could; `None` while a run continues.
    ready_since: Option<Timestamp>,
    /// A pause after a run that was cut short, or did not begin.
    not_before: Option<Instant>,
}

/// The jobs within a term.
struct JobTerm<'j> {
    jobs: &'j Jobs,
    leadership: &'j Leadership,
    checkpoint: Checkpoint,
    records: Records,
    /// Whether the records differ from the checkpoint.
    changed: bool,
    /// By job.
    lanes: Vec<Lane>,
    tasks: JoinSet<RunEnd>,
    running: HashMap<Id, (Due, Instant)>,
}

impl<'j> JobTerm<'j> {
    fn begin(jobs: &'j Jobs, leadership: &'j Leadership) -> Result<Self, ScheduleError> {
        let checkpoint = leadership.checkpoint().ok_or_else(no_checkpoint)?;
        let now = jobs.now();
        let mut records = Records::decode(leadership.election(), &checkpoint.data())?;
        for (job, slot) in records.of_the_future(&jobs.jobs, now) {
            let election = leadership.election();
            warn!(
                election,
                job,
                %slot,
                "the last slot is in the future, and no earlier one runs: if a clock was wrong, delete the checkpoint"
            );
        }
        let lane = || Lane { ready_since: Some(now), not_before: None };
        Ok(Self {
            // A slot that nobody runs later on counts as missed from now on.
            changed: records.add_missing(&jobs.jobs, now),
            records,
            jobs,
            leadership,
            checkpoint,
            lanes: jobs.jobs.iter().map(|_| lane()).collect(),
            tasks: JoinSet::new(),
            running: HashMap::new(),
        })
    }

    /// Records all runs that begin now. Returns them, and how long to wait for the next one.
    fn take_due(&mut self) -> (Vec<Due>, Duration) {
        let now = self.jobs.now();
        let (mut due, mut sleep) = (Vec::new(), MAX_SLEEP);
        for (index, (job, lane)) in self.jobs.jobs.iter().zip(&mut self.lanes).enumerate() {
            let Some(record) = self.records.get_mut(job.name()) else { continue };
            let Some(since) = lane.ready_since else { continue };
            let pause = lane.not_before.map(|time| time.saturating_duration_since(Instant::now()));
            if let Some(pause) = pause.filter(|pause| !pause.is_zero()) {
                sleep = sleep.min(pause);
                continue;
            }
            match record.next(job, since, now) {
                Some(Step::Run { slot, late }) => {
                    let before = *record;
                    record.begin(slot);
                    let logged = self.records.log.begin(job.name(), slot, self.leadership.token());
                    (lane.ready_since, self.changed) = (None, true);
                    let run = JobRun { job: job.name().into(), slot, late };
                    due.push(Due { index, run, before, logged });
                }
                Some(Step::Wait(slot)) => {
                    let left = slot.time().map(|time| now.duration_until(time));
                    let left = left.and_then(|left| Duration::try_from(left).ok());
                    sleep = sleep.min(left.unwrap_or(MAX_SLEEP));
                }
                None => {}
            }
        }
        (due, sleep)
    }

    /// Takes the record of a run back that did not begin: another leader may do it.
    fn put_back(&mut self, due: &Due) {
        let (run, token) = (&due.run, self.leadership.token());
        self.records.set(&run.job, due.before);
        self.records.log.take_back(&run.job, run.slot, token, due.logged);
        self.changed = true;
    }

    /// Saves the records if they changed. Returns whether it could, as the term continues then.
    async fn save(&mut self) -> Result<bool, ScheduleError> {
        if !self.changed {
            return Ok(true);
        }
        match self.checkpoint.save_within_lease(&self.records.encode(&self.jobs.jobs)).await {
            Ok(()) => {
                self.changed = false;
                Ok(true)
            }
            Err(error) => match not_recorded(self.leadership.election(), error) {
                error if error.kind() == ScheduleErrorKind::TermOver => Ok(false),
                error => Err(error),
            },
        }
    }

    fn spawn(&mut self, due: Due, run: impl Future<Output = RunEnd> + Send + 'static) {
        let task = self.tasks.spawn(run);
        self.running.insert(task.id(), (due, Instant::now()));
    }

    fn ended(&mut self, ended: Result<(Id, RunEnd), JoinError>) {
        let (id, end) = match ended {
            Ok(ended) => ended,
            Err(error) => (error.id(), RunEnd::Ended(PANICKED)),
        };
        let Some((due, began)) = self.running.remove(&id) else { return };
        if let Some(lane) = self.lanes.get_mut(due.index) {
            lane.ready_since = Some(self.jobs.now());
            let pauses = !matches!(end, RunEnd::Ended(_));
            lane.not_before = pauses.then(|| Instant::now() + PAUSE);
        }
        let (run, took) = (&due.run, began.elapsed());
        let code = match end {
            RunEnd::Ended(code) => Some(code),
            RunEnd::CutShort => None,
            RunEnd::NotBegun => return self.put_back(&due),
        };
        if let (Some(code), Some(record)) = (code, self.records.get_mut(&run.job)) {
            let ms = whole_millis(took);
            record.end(Ended { slot: run.slot.unix_seconds(), code, ms });
            self.changed = true;
        }
        // Alone it is not worth a save, which the release of the term would wait for.
        self.records.log.end(&run.job, run.slot, self.leadership.token(), code, took);
        crate::telemetry::slot_ended(self.leadership.election(), &run.job, code, took);
    }
}

/// The error of a checkpoint that does not hold the records.
pub(super) fn not_recorded(election: &str, error: CheckpointError) -> ScheduleError {
    let kind = match error.kind() {
        CheckpointErrorKind::Refused | CheckpointErrorKind::TooLong => ScheduleErrorKind::NoRecords,
        _ => ScheduleErrorKind::TermOver,
    };
    ScheduleError::with_source(kind, format!("the runs of {election} cannot be recorded"), error)
}

pub(super) fn no_checkpoint() -> ScheduleError {
    let what = "the election has no checkpoint: start it with ElectionBuilder::checkpoint()";
    ScheduleError::new(ScheduleErrorKind::NoRecords, what)
}
