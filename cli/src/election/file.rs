//! `election file`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::candidate::CandidateArgs;
use crate::error::{CliError, Code};
use crate::lock::{LockArgs, check_name};
use crate::output::text;
use crate::output::{self, time_format};
use crate::process::signals::StopSignals;

/// The minimum interval, however short the lease is.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Campaign in the election NAME, and keep the file PATH while leading.
///
/// The file is JSON: election, leader, timestamp, count. Each write replaces it atomically. It is
/// removed when the leadership is lost; an existing file is removed at the start. While the server
/// is unreachable it retries, unless `--timeout` is given.
///
/// With --check no file is kept: one line reports whether the file is fresh, for monitoring. Exit
/// code 0: written within MAX_AGE; 1: older, or of another election; 3: no file.
#[derive(Args)]
pub struct KeepFile {
    /// The file.
    #[arg(index = 2)]
    path: PathBuf,
    /// Only check whether the file was written within this time.
    #[arg(long, value_name = "MAX_AGE", value_parser = humantime::parse_duration)]
    check: Option<Duration>,
    /// The interval of writes [default: a quarter of the lease].
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    interval: Option<Duration>,
    #[command(flatten)]
    candidate: CandidateArgs,
}

/// The content of the file.
#[derive(Serialize, Deserialize)]
struct Content {
    election: String,
    leader: String,
    timestamp: String,
    count: u64,
}

/// A file that is removed when its writer is dropped, before the lock is released.
struct Kept<'a>(&'a Path);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        let _ = remove(self.0);
    }
}

impl KeepFile {
    pub async fn run(self, lock: &LockArgs) -> Result<(), CliError> {
        check_name(&self.candidate.name)?;
        if let Some(max_age) = self.check {
            return self.check(max_age);
        }
        let mut signals = StopSignals::listen()?;
        // A process that cannot write must not lead.
        let unwritable = |error: io::Error| {
            let message = format!("cannot keep {}: {error}", self.path.display());
            CliError::new(Code::Failed, message)
        };
        drop(output::temporary_beside(&self.path, output::READABLE).map_err(unwritable)?);
        remove(&self.path).map_err(unwritable)?;
        let started = self.candidate.start(lock, signals.next(), async |_| Ok(None)).await?;
        let (mut candidate, _) = started.map_err(CliError::Signal)?;
        let interval = self.interval.unwrap_or(candidate.lease / 4).max(MIN_INTERVAL);
        let election = candidate.election.clone();
        let keep = async {
            while let Ok(leadership) = election.won().await {
                output::note(format!("won: keeping {}", self.path.display()));
                let kept = leadership.run(self.keep(election.identity(), interval)).await;
                match kept {
                    Ok(error) => return unwritable(error),
                    Err(loss) => output::note(format!("lost: {}", loss.cause)),
                }
            }
            CliError::new(Code::Failed, "the campaign ended")
        };
        let end = tokio::select! {
            failure = keep => failure,
            signal = signals.next() => CliError::Signal(signal),
        };
        candidate.stop().await;
        Err(end)
    }

    /// Writes the file until dropped, or until a write fails.
    async fn keep(&self, leader: &str, interval: Duration) -> io::Error {
        let _kept = Kept(&self.path);
        for count in 0.. {
            let content = Content {
                election: self.candidate.name.clone(),
                leader: leader.to_owned(),
                timestamp: time_format::rfc3339(OffsetDateTime::now_utc()),
                count,
            };
            let written = output::replace_file(&self.path, output::READABLE, |file| {
                serde_json::to_writer(&mut *file, &content)?;
                file.write_all(b"\n")
            });
            if let Err(error) = written {
                return error;
            }
            tokio::time::sleep(interval).await;
        }
        io::Error::other("the counter overflowed")
    }

    fn check(&self, max_age: Duration) -> Result<(), CliError> {
        let (name, path) = (&self.candidate.name, self.path.display());
        let fail = |code, line: String| {
            output::line(line)?;
            Err(CliError::Silent(code))
        };
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return fail(Code::NotFound, format!("NOT LEADER: {name}: no file {path}"));
            }
            Err(error) => return fail(Code::Failed, format!("FAILED: {name}: {path}: {error}")),
        };
        let Ok(content) = serde_json::from_str::<Content>(&text) else {
            return fail(
                Code::Failed,
                format!("FAILED: {name}: {path} was not written by this program"),
            );
        };
        let Some(written) = time_format::parse(&content.timestamp) else {
            return fail(Code::Failed, format!("FAILED: {name}: {path} has no time"));
        };
        let (leader, election) =
            (text::printable(&content.leader), text::printable(&content.election));
        if election != *name {
            return fail(Code::Failed, format!("FAILED: {name}: {path} is of election {election}"));
        }
        // A time in the future counts by its distance.
        let age = (OffsetDateTime::from(SystemTime::now()) - written).unsigned_abs();
        let age_line = format!("{name}: {leader} wrote {path} {} ago", time_format::span(age));
        match age <= max_age {
            true => output::line(format!("OK: {age_line}")),
            false => fail(
                Code::Failed,
                format!("STALE: {age_line}, more than {}", time_format::span(max_age)),
            ),
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
