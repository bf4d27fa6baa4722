//! `incumbent record`: writes every change of leadership to a file.

mod recorder;
mod runs;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use futures_util::FutureExt;
use tokio::time::{MissedTickBehavior, interval};

use self::recorder::Recorder;
use self::runs::RunReads;
use crate::console::history::{ElectionRun, MIN_SIZE, Writer};
use crate::console::model::{Feed, Transition};
use crate::error::{CliError, Code, EXIT_CODES};
use crate::lock::LockArgs;
use crate::lock::elections::Elections;
use crate::output;
use crate::output::time_format;
use crate::process::signals::StopSignals;

/// How often the recorder looks whether something is to be written.
const TICK: Duration = Duration::from_secs(1);
/// The largest maximum size.
const MAX_SIZE: u64 = 1 << 40;

/// Record each change of leadership with its cause in a SQLite file, until interrupted.
///
/// `election history --from FILE` and `top --recording FILE` read it, also meanwhile. The file
/// states in which times it was recorded; an unreachable lock is noted, and awaited. Recording
/// again continues the file. A file has one recorder, and the elections of one lock. Needs the
/// permissions of an observer only, and sends as many requests as `election watch`.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub struct Record {
    #[command(flatten)]
    lock: LockArgs,
    /// The elections; with Kubernetes their objects [default: all].
    names: Vec<String>,
    /// The file; it is created if it is missing, for this user alone. Beside it are its log and a
    /// lock file.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// How large the file may become, as in 64MiB or 500kB. At this size the oldest changes of the
    /// elections with most of them are removed; the file does not shrink.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size)]
    max_size: u64,
    /// Record the runs of jobs, too: of `incumbent cron`, and of schedules of programs.
    ///
    /// The checkpoint of each election is read when its leader changes, and every five seconds if
    /// it runs jobs; else less and less often, for twenty minutes. `election history --runs` shows
    /// them. In a file that is half full the oldest runs are removed if they are more than the
    /// changes.
    #[arg(long)]
    runs: bool,
}

impl Record {
    pub async fn run(mut self) -> Result<(), CliError> {
        self.names.sort_unstable();
        self.names.dedup();
        let mut signals = StopSignals::listen()?;
        let writer = Writer::open(&self.to, &self.names, self.max_size).await?;
        let elections = tokio::select! {
            elections = Elections::open_for(&self.lock, &self.names) => elections?,
            signal = signals.next() => return Err(CliError::Signal(signal)),
        };
        let mut recorder = Recorder::new(writer, &elections, &self.names).await?;
        let runs = self.runs.then(|| RunReads::new(&elections, &self.names)).transpose()?;
        let end = follow(&elections, &self, (&mut recorder, runs), &mut signals).await;
        recorder.close().await?;
        Err(end)
    }
}

/// Records until something ends it. Whatever it has read is in the recorder.
async fn follow(
    elections: &Elections,
    args: &Record,
    (recorder, mut runs): (&mut Recorder, Option<RunReads<'_>>),
    signals: &mut StopSignals,
) -> CliError {
    let feed = tokio::select! {
        feed = Feed::open_complete(elections, &args.names) => feed,
        signal = signals.next() => return CliError::Signal(signal),
    };
    let mut feed = match feed {
        Ok(feed) => feed,
        Err(failure) => return failure,
    };
    let (title, file) = (elections.plain_title(), args.to.display());
    output::note(format!("recording {title} to {file}"));
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = false;
    // After a failure the next tick is awaited.
    let mut is_paused = false;
    loop {
        let mut next: Option<Result<Transition, CliError>> = tokio::select! {
            next = feed.next(), if !is_paused => Some(next),
            _ = ticks.tick() => {
                is_paused = false;
                feed.next().now_or_never()
            }
            learned = next_runs(&mut runs) => {
                recorder.add_runs(learned);
                // As above: what the last read showed.
                (!is_paused).then(|| feed.next().now_or_never()).flatten()
            }
            // Not while something is being written.
            signal = signals.next() => return CliError::Signal(signal),
        };
        while let Some(found) = next {
            match found {
                Ok(transition) => {
                    runs.iter_mut().for_each(|runs| runs.look(&transition.election));
                    recorder.add(transition);
                }
                // An unreachable server may come back; a missing bucket or permission does not.
                Err(failure @ CliError::Message { code: Code::Unreachable, .. }) => {
                    recorder.interrupt(feed.last_read());
                    is_paused = true;
                    if !std::mem::replace(&mut failing, true) {
                        output::note(format!("lock failing: {failure}"));
                    }
                    break;
                }
                Err(failure) => return failure,
            }
            if recorder.is_full() {
                break;
            }
            next = feed.next().now_or_never();
        }
        // What was read is known once all that it showed is taken.
        let is_read = !recorder.is_full() && recorder.observe(feed.last_read());
        if is_read && std::mem::take(&mut failing) {
            output::note("lock recovered");
        }
        if let Err(failure) = recorder.write_if_due().await {
            return failure;
        }
    }
}

async fn next_runs(runs: &mut Option<RunReads<'_>>) -> Vec<ElectionRun> {
    match runs {
        Some(runs) => runs.next().await,
        None => std::future::pending().await,
    }
}

/// Parses a size, as in `64MiB`, `500kB` or `1000000`.
fn parse_size(word: &str) -> Result<u64, String> {
    let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    let (number, unit) = word.split_at(end);
    let factor: u64 = match &*unit.trim().to_ascii_lowercase() {
        "" | "b" => 1,
        "k" | "kb" => 1000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "ki" | "kib" => 1 << 10,
        "mi" | "mib" => 1 << 20,
        "gi" | "gib" => 1 << 30,
        _ => return Err("write it as in 64MiB, 500kB or 1000000".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "write it as in 64MiB, 500kB or 1000000")?;
    let size = number.saturating_mul(factor);
    match size {
        MIN_SIZE..=MAX_SIZE => Ok(size),
        _ => {
            let (least, most) = (time_format::size(MIN_SIZE), time_format::size(MAX_SIZE));
            Err(format!("choose between {least} and {most}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_usual_units() {
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("500kB"), Ok(500_000));
        assert_eq!(parse_size("1000000"), Ok(1_000_000));
        assert_eq!(parse_size("1 GiB"), Ok(1 << 30));
        for odd in ["", "MiB", "-1MiB", "1.5MiB", "1", "0", "99999999999999999999", "1TiB", "9PB"] {
            assert!(parse_size(odd).is_err(), "{odd}");
        }
    }
}
