//! `election file`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, SystemTime};

use clap::Args;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::candidate::CandidateArgs;
use crate::error::{CliError, Code};
use crate::lock::{LockArgs, check_name};
use crate::output::text;
use crate::output::{self, time_format};
use crate::process::on_disk;
use crate::process::signals::StopSignals;

/// The minimum interval, however short the lease is.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
/// How long a write may take before its disk counts as hung.
const WRITTEN_WITHIN: Duration = Duration::from_secs(10);
/// How long the release of the lock waits for the removal of the file.
const REMOVED_WITHIN: Duration = Duration::from_secs(1);

/// Campaign in the election NAME, and keep the file PATH while leading.
///
/// The file is JSON: election, leader, timestamp, count. Each write replaces it atomically. It is
/// removed when the leadership is lost; an existing file is removed at the start. While the server
/// is unreachable it retries, unless `--timeout` is given. A write that fails, or takes 10 seconds,
/// ends the candidate with exit code 1.
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

/// A file that is removed when this is dropped, before the lock is released. A disk that hangs
/// delays nothing else.
struct Kept {
    path: PathBuf,
    disk: Arc<Disk>,
    number: u64,
}

/// What the terms of this process have in common: a write of one may hang into the next.
#[derive(Default)]
struct Disk {
    /// The number of the term whose file it is; it changes with each begin and end.
    term: AtomicU64,
    /// Held for as long as the file is written or removed.
    busy: Mutex<()>,
}

impl Kept {
    fn new(path: &Path, disk: &Arc<Disk>) -> Self {
        let number = disk.term.fetch_add(1, Ordering::Relaxed) + 1;
        Self { path: path.to_owned(), disk: Arc::clone(disk), number }
    }

    async fn write(&self, content: Content) -> io::Result<()> {
        let (path, disk, number) = (self.path.clone(), Arc::clone(&self.disk), self.number);
        on_disk(WRITTEN_WITHIN, move || {
            let _busy = disk.busy.lock();
            if disk.term.load(Ordering::Relaxed) != number {
                return Ok(()); // its term is over
            }
            output::replace_file(&path, output::READABLE, |file| {
                serde_json::to_writer(&mut *file, &content)?;
                file.write_all(b"\n")
            })
        })
        .await
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let (path, disk) = (self.path.clone(), Arc::clone(&self.disk));
        let over = self.disk.term.fetch_add(1, Ordering::Relaxed) + 1;
        let (done, removed) = mpsc::channel();
        let removal = thread::Builder::new().spawn(move || {
            let _busy = disk.busy.lock(); // after a write that hangs
            let is_mine = disk.term.load(Ordering::Relaxed) == over;
            let _ = done.send(if is_mine { remove(&path) } else { Ok(()) });
        });
        match removal {
            Ok(_) => drop(removed.recv_timeout(REMOVED_WITHIN)),
            Err(_) => drop(remove(&self.path)),
        }
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
        let path = self.path.clone();
        let ready = on_disk(WRITTEN_WITHIN, move || {
            drop(output::temporary_beside(&path, output::READABLE)?);
            remove(&path)
        });
        ready.await.map_err(unwritable)?;
        let started = self.candidate.start(lock, signals.next(), async |_| Ok(None)).await?;
        let (mut candidate, _) = started.map_err(CliError::Signal)?;
        let interval = self.interval.unwrap_or(candidate.lease / 4).max(MIN_INTERVAL);
        let election = candidate.election.clone();
        let disk = Arc::default();
        let keep = async {
            while let Ok(leadership) = election.won().await {
                output::note(format!("won: keeping {}", self.path.display()));
                let kept = leadership.run(self.keep(&disk, election.identity(), interval)).await;
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
    async fn keep(&self, disk: &Arc<Disk>, leader: &str, interval: Duration) -> io::Error {
        let kept = Kept::new(&self.path, disk);
        for count in 0.. {
            let content = Content {
                election: self.candidate.name.clone(),
                leader: leader.to_owned(),
                timestamp: time_format::rfc3339(OffsetDateTime::now_utc()),
                count,
            };
            if let Err(error) = kept.write(content).await {
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use incumbent_test_support::eventually;

    use super::*;

    #[tokio::test]
    async fn file_is_removed_after_a_write_that_hung() {
        let place = tempfile::tempdir().unwrap();
        let disk = Arc::default();
        let kept = Kept::new(&place.path().join("leads.json"), &disk);
        let content = |count| Content {
            election: String::new(),
            leader: String::new(),
            timestamp: String::new(),
            count,
        };
        kept.write(content(0)).await.unwrap();
        let path = kept.path.clone();
        let ended = async || (Arc::strong_count(&disk) == 1).then_some(());
        {
            let _hangs = disk.busy.lock();
            assert!(kept.write(content(1)).now_or_never().is_none());
            drop(kept);
            assert!(path.exists(), "it does not wait for long");
        }
        eventually("both have ended", ended).await;
        assert!(!path.exists());

        let kept = Kept::new(&path, &disk);
        let next = {
            let _hangs = disk.busy.lock();
            drop(kept);
            Kept::new(&path, &disk)
        };
        next.write(content(2)).await.unwrap();
        eventually("the removal has ended", async || (Arc::strong_count(&disk) == 2).then_some(()))
            .await;
        assert!(path.exists(), "it is the file of the next term");
    }
}
