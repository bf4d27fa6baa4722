//! `election history --runs`.

use std::path::Path;

use incumbent::Token;
use incumbent::schedule::recorded_runs;
use time::OffsetDateTime;

use crate::console::history::{JobStatistics, KnownRun, Recording, RunHistory, RunLine};
use crate::error::{CliError, Code};
use crate::lock::elections::Elections;
use crate::lock::{LockArgs, check_name};
use crate::output::time_format::{self, rfc3339};
use crate::output::{self, Format, or_dash};

pub async fn show(
    name: &str,
    from: Option<&Path>,
    lock: &LockArgs,
    since: Option<OffsetDateTime>,
    format: Format,
) -> Result<(), CliError> {
    let (history, absent) = match from {
        Some(file) => {
            check_name(name)?;
            let shown = file.display();
            let absent = format!("no run is in {shown}: `incumbent record --runs` records them");
            (Recording::open(file).await?.runs(name, since).await?, absent)
        }
        None => {
            let history = of_lock(name, lock, since).await?;
            (history, "it has run no job, or none that its leader recorded".to_owned())
        }
    };
    if history.lines().is_empty() {
        return Err(CliError::new(Code::NotFound, format!("election {name}: {absent}")));
    }
    match format {
        Format::Json => output::json(&history.json()),
        Format::Text => print(&history),
    }
}

/// The runs in the checkpoint of the election.
async fn of_lock(
    name: &str,
    lock: &LockArgs,
    since: Option<OffsetDateTime>,
) -> Result<RunHistory, CliError> {
    let elections = Elections::open(lock, Some(name)).await?;
    let stored = elections.read_checkpoint(name).await?;
    let record = elections.now(name).await?;
    let leader = |token: Token| {
        let holder = record.holder().filter(|holder| holder.token == Some(token));
        holder.map(|holder| holder.identity.to_string())
    };
    let now = OffsetDateTime::now_utc();
    let runs = stored.as_ref().and_then(recorded_runs).unwrap_or_default().into_iter();
    let known = runs.map(|run| KnownRun { leader: leader(run.token), ..KnownRun::read(run, now) });
    Ok(RunHistory::new(name, known.collect(), since))
}

fn print(history: &RunHistory) -> Result<(), CliError> {
    let head = ["slot", "job", "state", "exit code", "took", "leader", "token"];
    output::table(head, history.lines().iter().map(row))?;
    output::line("")?;
    let head = ["job", "succeeded", "failed", "cut short", "others", "longest"];
    output::table(head, history.statistics().into_iter().map(job_row))
}

fn row(line: &RunLine) -> [String; 7] {
    let run = match line {
        RunLine::Run(run) => run,
        RunLine::Unknown(count) => {
            let count = count.map_or_else(|| "some".to_owned(), |count| count.to_string());
            let state = format!("not recorded: {count}");
            let none = || or_dash(None);
            return [none(), none(), state, none(), none(), none(), none()];
        }
    };
    let (state, code, took) = run.end();
    [
        rfc3339(run.slot),
        run.job.clone(),
        state.replace('_', " "),
        or_dash(code.map(|code| code.to_string())),
        or_dash(took.map(time_format::span)),
        or_dash(run.leader.clone()),
        run.token.0.to_string(),
    ]
}

fn job_row((job, of): (&str, JobStatistics)) -> [String; 6] {
    [
        job.to_owned(),
        of.succeeded.to_string(),
        of.failed.to_string(),
        of.cut_short.to_string(),
        of.others.to_string(),
        or_dash(of.longest.map(time_format::span)),
    ]
}
