//! A schedule with an election of its own.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;
use tracing::error;

use super::job::Job;
use super::jobs::{JobRun, Jobs, RunEnd, WallClock};
use super::{ScheduleError, ScheduleErrorKind};
use crate::builder::ElectionBuilder;
use crate::election::handle::Election;
use crate::election::leadership::Leadership;
use crate::util::text::error_chain;

/// The pause after a term in which nothing could be recorded.
const RETRY: Duration = Duration::from_secs(10);

type Execute = Arc<dyn Fn(JobRun) -> BoxFuture<'static, u8> + Send + Sync>;

/// Begins to describe a schedule whose leader this election elects. The election gets a
/// [checkpoint](ElectionBuilder::checkpoint), which holds nothing else.
///
/// See the [module](crate::schedule) for an example.
pub fn new_schedule(election: ElectionBuilder) -> ScheduleBuilder {
    ScheduleBuilder {
        election,
        jobs: Vec::new(),
        execute: HashMap::new(),
        now: Arc::new(SystemTime::now),
    }
}

/// The jobs of a schedule. All members of its election are to have the same.
#[must_use = "a schedule begins with start()"]
pub struct ScheduleBuilder {
    election: ElectionBuilder,
    jobs: Vec<Job>,
    execute: HashMap<String, Execute>,
    now: WallClock,
}

partial_debug!(ScheduleBuilder, self, jobs: self.jobs);

impl ScheduleBuilder {
    /// Adds a job. `run` does one run, and returns its exit code: zero if it succeeded. It is
    /// dropped at its next await point if the term ends first.
    pub fn job<F, W>(mut self, job: Job, run: F) -> Self
    where
        F: Fn(JobRun) -> W + Send + Sync + 'static,
        W: Future<Output = u8> + Send + 'static,
    {
        let run = Arc::new(run);
        // Called within the task of the run, so that a panic of it ends no other.
        let execute: Execute = Arc::new(move |job| {
            let run = Arc::clone(&run);
            Box::pin(async move { run(job).await })
        });
        self.execute.insert(job.name().to_owned(), execute);
        self.jobs.push(job);
        self
    }

    /// Uses another wall clock. For tests and simulations.
    pub fn clock(mut self, now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.now = Arc::new(now);
        self
    }

    /// Takes part in the election, and runs the jobs while it leads.
    ///
    /// # Errors
    /// The jobs are not described well, or the election cannot start, as outside a tokio runtime.
    pub fn start(self) -> Result<Schedule, ScheduleError> {
        let mut jobs = Jobs::new(self.jobs)?;
        jobs.now = self.now;
        let election = self.election.checkpoint().start().map_err(|error| {
            let what = "the election of the schedule cannot start";
            ScheduleError::with_source(ScheduleErrorKind::NotStarted, what, error)
        })?;
        let task = tokio::spawn(lead(election.clone(), jobs, self.execute));
        Ok(Schedule { election, task })
    }
}

/// A running schedule. Dropping it stops it without waiting.
#[derive(Debug)]
pub struct Schedule {
    election: Election,
    task: JoinHandle<()>,
}

impl Schedule {
    /// The election of its leader.
    pub fn election(&self) -> &Election {
        &self.election
    }

    /// Stops the runs, and hands the lead to another member.
    pub async fn stop(self) {
        self.election.stop().await;
    }
}

impl Drop for Schedule {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs the jobs of each term.
async fn lead(election: Election, jobs: Jobs, execute: HashMap<String, Execute>) {
    while let Ok(leadership) = election.won().await {
        let leadership = Arc::new(leadership);
        let ended = jobs.run(&leadership, |run| within(&leadership, &execute, run)).await;
        if let Err(error) = ended {
            error!(
                election = election.name(),
                error = error_chain(&error),
                "schedule does not run"
            );
            leadership.resign();
            leadership.ended().await;
            drop(leadership);
            // What is stored there is the same for the next leader.
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// Does one run; nothing if the term ends first.
fn within(
    leadership: &Arc<Leadership>,
    execute: &HashMap<String, Execute>,
    run: JobRun,
) -> impl Future<Output = RunEnd> + use<> {
    let (leadership, work) = (Arc::clone(leadership), execute.get(&*run.job).map(|f| f(run)));
    async move {
        let Some(work) = work else { return RunEnd::NotBegun };
        leadership.run(work).await.map_or(RunEnd::CutShort, RunEnd::Ended)
    }
}
