//! Schedules: jobs that run at times of a calendar, each time on one member of a fleet.
//!
//! Every member has the same jobs. The leader of an election runs them, and records in the
//! [checkpoint](crate::Checkpoint) of the election which *slot* of which job has begun. A slot is
//! the time for which a run is scheduled. It is a name, not an instant: a successor whose clock is
//! minutes behind or ahead finds the slot recorded, and does not run it again.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use incumbent::memory::MemoryLock;
//! use incumbent::new_election;
//! use incumbent::schedule::{Job, new_schedule};
//!
//! let schedule = new_schedule(new_election("jobs", MemoryLock::new()))
//!     .job(Job::new("nightly", "0 3 * * *")?.zone("Europe/Berlin")?, |run| async move {
//!         println!("runs {} of {}", run.slot, run.job);
//!         0
//!     })
//!     .start()?;
//! schedule.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! | a job | a slot is recorded | after a crash |
//! |---|---|---|
//! | at most once, unless stated | before its run begins | it is not repeated |
//! | [at least once](Job::at_least_once) | when its run has ended as well | it runs again |
//!
//! A slot that nobody ran in time runs late, [once](Job::catch_up). Where even a run at least once
//! must not have its effects twice, [fence](crate::fence) what it writes, or key it by the slot.

mod job;
mod jobs;
mod log;
mod once;
mod plan;
mod records;
mod run;

pub use self::job::{Job, MAX_CATCH_UP, Slot};
pub use self::jobs::{JobRun, JobStatus, Jobs, RunEnd};
pub use self::log::{RecordedRun, RunState};
pub use self::once::{last_of_period_at, once_per};
pub use self::records::recorded_runs;
pub use self::run::{Schedule, ScheduleBuilder, new_schedule};
use crate::lock::Error;

/// The kind of a [`ScheduleError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleErrorKind {
    /// A job is not described well.
    Invalid,
    /// The election has no checkpoint, or one that holds something else.
    NoRecords,
    /// It was not found out in time: the term may be over.
    TermOver,
    /// The election cannot start.
    NotStarted,
}

/// The reason why a schedule does not run.
pub type ScheduleError = Error<ScheduleErrorKind>;

impl ScheduleError {
    fn invalid(message: impl Into<String>) -> Self {
        Self::new(ScheduleErrorKind::Invalid, message)
    }
}
