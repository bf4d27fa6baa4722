//! `incumbent cron`: commands at times of a calendar, each time on one host of a fleet.

mod crontab;
mod list;
mod runner;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use incumbent::schedule::{Job, Jobs, MAX_CATCH_UP, ScheduleError, ScheduleErrorKind};

use self::crontab::JobCommand;
use crate::candidate::{CandidateArgs, MoveArgs};
use crate::error::{CliError, Code};
use crate::lock::LockArgs;
use crate::output::Format;
use crate::output::time_format::parse_up_to_a_year;
use crate::run::{SentinelArgs, StopArgs, parse_signal};

/// Run COMMAND at the times of a schedule, each time on one host.
///
/// Run this with one NAME and the same jobs on any number of hosts. They elect a leader, which runs
/// the jobs, and another one takes over if it fails. Which slot of which job has run is recorded in
/// the lock, so that no host repeats it. While the server is unreachable it retries, unless
/// `--timeout` is given.
#[derive(Debug, Args)]
#[command(after_long_help = MANUAL)]
pub struct Cron {
    /// When COMMAND runs: a cron expression of five fields, or six with seconds first.
    #[arg(long, value_name = "EXPRESSION", required_unless_present = "file")]
    schedule: Option<String>,
    /// Run the jobs of a file: lines as `NAME: 0 3 * * * COMMAND`, which a shell runs.
    ///
    /// Empty lines and those that begin with # are left out. CRON_TZ=ZONE sets the zone of the
    /// lines below it.
    #[arg(long, value_name = "FILE", conflicts_with = "schedule")]
    file: Option<PathBuf>,
    /// The time zone of the schedule, such as Europe/Berlin [default: UTC].
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// Record a slot when its run has ended, and not when it begins: a run that is cut short, by a
    /// crash or the loss of the lead, is repeated with the same slot.
    #[arg(long)]
    at_least_once: bool,
    /// Run each slot once that nobody ran in time, if it is not older than this.
    ///
    /// A slot is missed while nobody leads, or while the run of an earlier slot continues. 0s skips
    /// them. At most 31d.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_catch_up)]
    catch_up: Duration,
    /// Print the last and the next slot of each job, and exit.
    #[arg(long)]
    list: bool,
    /// The format of --list.
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    output: Format,
    /// The command and its arguments, after `--`. It must be on PATH, which is checked before
    /// campaigning.
    #[arg(index = 2, last = true, required_unless_present_any = ["file", "list"], value_name = "COMMAND")]
    command: Vec<OsString>,
    /// The signal that stops COMMAND: a name as in TERM or SIGINT, or a number.
    #[arg(long, default_value = "TERM", value_parser = parse_signal)]
    signal: rustix::process::Signal,
    #[command(flatten)]
    stop: StopArgs,
    #[command(flatten)]
    candidate: CandidateArgs,
    #[command(flatten)]
    moves: MoveArgs,
    #[command(flatten)]
    lock: LockArgs,
}

fn parse_catch_up(text: &str) -> Result<Duration, String> {
    match parse_up_to_a_year(text)? {
        span if span <= MAX_CATCH_UP => Ok(span),
        _ => Err("more than 31d".to_owned()),
    }
}

const MANUAL: &str = "\
What COMMAND sees:
  INCUMBENT_JOB
      The job: NAME, or that of the line of --file.
  INCUMBENT_SLOT
      The time for which the run is scheduled, in UTC, as in 2026-11-26T02:00:00Z. A repeated run \
      has the same one.
  INCUMBENT_ELECTION, INCUMBENT_IDENTITY, INCUMBENT_TOKEN, INCUMBENT_DEADLINE_FILE
      As with `incumbent run`.
  Variables with credentials of the lock are not inherited, unless --pass-env names them. Standard \
  output and error are passed through. Standard input is empty.

What runs twice, and what does not at all:
  By default a slot runs at most once: it is recorded before COMMAND starts. With --at-least-once \
  it is recorded when COMMAND has ended, whatever its exit code is. The clocks of the hosts may \
  differ by minutes: a slot that has run is not repeated, but runs as early or late as the clock \
  of the leader.

Where the times of day change:
  A run at a time that is skipped begins right after the gap; one at a time that is repeated runs \
  the first time.

Signals:
  SIGTERM, SIGINT and SIGQUIT stop each COMMAND, in order; a second one ends the drain. SIGUSR1, \
  SIGUSR2 and SIGHUP are forwarded to each COMMAND once it has a handler for them. --drain also \
  counts when one job gives up the term, as when its deadline file cannot be written.

If this process is killed:
  The guard of a single job ends its COMMAND and releases the lock. With several jobs the lease is \
  waited for, whatever --no-sentinel says.

Exit codes:
  128 and the number of a signal that ended incumbent, after it stopped each COMMAND and released \
  the lock. 127: no such command, 126: not executable; both before campaigning. Else 1 failed, 2 \
  usage, 3 no such bucket or namespace, 4 no server reachable at the start, 5 permission denied. \
  Those of COMMAND are in the log, in --list and in /metrics of --http.

Examples:
  incumbent cron nightly --schedule '0 3 * * *' --zone Europe/Berlin -- ./report --all
  incumbent cron billing --schedule '@hourly' --at-least-once --catch-up 1d -- ./bill
  incumbent cron jobs --file /etc/incumbent/crontab
  incumbent cron jobs --file /etc/incumbent/crontab --list";

impl Cron {
    /// The lock of the sentinel of a candidate.
    pub fn sentinel_args(self) -> SentinelArgs {
        SentinelArgs { lock: self.lock, object: self.candidate.lease.object }
    }

    pub async fn run(mut self) -> Result<ExitCode, CliError> {
        let commands = self.jobs()?;
        let jobs = Jobs::new(commands.iter().map(|command| command.job.clone()))?;
        if self.list {
            return self.print(&jobs).await.map(|()| ExitCode::SUCCESS);
        }
        self.candidate.moves = std::mem::take(&mut self.moves);
        self.candidate.drain = self.stop.drain;
        self.candidate.checkpoint = true;
        self.lead(jobs, commands).await
    }

    /// The jobs of the flags, or of the file.
    fn jobs(&self) -> Result<Vec<JobCommand>, CliError> {
        let change = |mut job: Job| {
            job = job.catch_up(self.catch_up);
            if self.at_least_once { job.at_least_once() } else { job }
        };
        if let Some(file) = &self.file {
            // Not by clap: a sentinel parses the arguments of this process with a command.
            if !self.command.is_empty() {
                let message = "--file has the commands: leave out what follows --";
                return Err(CliError::new(Code::Usage, message));
            }
            return crontab::read(file, self.zone.as_deref(), change);
        }
        let mut job = Job::new(&self.candidate.name, self.schedule.as_deref().unwrap_or_default())?;
        if let Some(zone) = &self.zone {
            job = job.zone(zone)?;
        }
        Ok(vec![JobCommand { job: change(job), command: self.command.clone() }])
    }
}

impl From<ScheduleError> for CliError {
    fn from(error: ScheduleError) -> Self {
        let code = match error.kind() {
            ScheduleErrorKind::Invalid => Code::Usage,
            _ => Code::Failed,
        };
        Self::new(code, crate::error::one_line(&error))
    }
}
