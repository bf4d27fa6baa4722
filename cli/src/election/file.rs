//! `election file`.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use incumbent::nats::Bucket;
use incumbent::new_election;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::signal::unix::{SignalKind, signal};

use super::office::check_name;
use crate::connection::Place;
use crate::failure::{Code, Failure};
use crate::{output, when};

/// Stand in the election NAME, and keep the file PATH while leading.
///
/// The file is JSON: election, leader, timestamp, count. It is replaced in one step at each write, never half-written, and
/// removed when the office is lost; a file that is there at the beginning is removed, too.
///
/// With --check nothing is kept: one line tells whether somebody keeps the file, for monitoring. Exit code 0: it was
/// written within MAX_AGE; 1: longer ago, or not by this election; 3: there is none.
#[derive(Args)]
pub struct KeepFile {
    /// The election.
    name: String,
    /// The file.
    path: PathBuf,
    /// Only tell whether the file was written within this time.
    #[arg(long, value_name = "MAX_AGE", value_parser = humantime::parse_duration)]
    check: Option<Duration>,
    /// How often the file is written anew [default: a quarter of the lease].
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    interval: Option<Duration>,
    /// The name to show as holder [default: the host's name].
    #[arg(long)]
    identity: Option<String>,
    /// How long one write entitles to lead [default: the bucket's TTL, 60s for one that is made].
    #[arg(long, value_parser = humantime::parse_duration)]
    lease: Option<Duration>,
    /// Use the bucket only if it is there; else it is made.
    #[arg(long)]
    no_create: bool,
}

/// What the file says.
#[derive(Serialize, Deserialize)]
struct Content {
    election: String,
    leader: String,
    timestamp: String,
    count: u64,
}

/// A file that is removed when the work that keeps it is dropped, which is before the office is released.
struct Kept<'a>(&'a Path);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        let _ = remove(self.0);
    }
}

impl KeepFile {
    pub async fn run(self, place: &Place) -> Result<(), Failure> {
        check_name(&self.name)?;
        if let Some(max_age) = self.check {
            return self.check(max_age);
        }
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        // Whoever cannot write must not lead.
        let unwritable = |error: io::Error| {
            let message = format!("cannot keep {}: {error}", self.path.display());
            Failure::new(Code::Failed, message)
        };
        drop(temporary(&self.path).map_err(unwritable)?);
        remove(&self.path).map_err(unwritable)?;
        let session = place.session().await?;
        let mut config = place.config(&session);
        if let Some(lease) = self.lease {
            config = config.ttl(lease);
        }
        let bucket = match self.no_create {
            true => Bucket::open_with(session.connection(), config).await?,
            false => Bucket::create_or_open(session.connection(), config).await?,
        };
        let lease = self.lease.unwrap_or(bucket.ttl());
        let interval = self.interval.unwrap_or(lease / 4).max(Duration::from_millis(10));
        let mut builder = new_election(&self.name, bucket.lock());
        if let Some(identity) = &self.identity {
            builder = builder.identity(identity);
        }
        if let Some(lease) = self.lease {
            builder = builder.lease(lease);
        }
        let election = builder.start()?;
        let keep = async {
            while let Ok(leadership) = election.won().await {
                output::note(format!("won: keeping {}", self.path.display()));
                let kept = leadership.run(self.keep(election.identity(), interval)).await;
                match kept {
                    Ok(error) => return unwritable(error),
                    Err(loss) => output::note(format!("lost: {}", loss.cause)),
                }
            }
            Failure::new(Code::Failed, "the campaign has ended")
        };
        let end = tokio::select! {
            failure = keep => failure,
            _ = terminate.recv() => Failure::Signal(SignalKind::terminate().as_raw_value()),
            _ = interrupt.recv() => Failure::Signal(SignalKind::interrupt().as_raw_value()),
        };
        election.stop().await;
        Err(end)
    }

    /// Keeps the file until dropped, or until it cannot.
    async fn keep(&self, leader: &str, interval: Duration) -> io::Error {
        let _kept = Kept(&self.path);
        for count in 0.. {
            let content = Content {
                election: self.name.clone(),
                leader: leader.to_owned(),
                timestamp: when::rfc3339(OffsetDateTime::now_utc()),
                count,
            };
            if let Err(error) = replace(&self.path, &content) {
                return error;
            }
            tokio::time::sleep(interval).await;
        }
        io::Error::other("no more numbers")
    }

    fn check(&self, max_age: Duration) -> Result<(), Failure> {
        let (name, path) = (&self.name, self.path.display());
        let tell = |code, line: String| {
            output::line(line)?;
            Err(Failure::Silent(code))
        };
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return tell(Code::NotFound, format!("NOT LEADER: {name}: there is no {path}"));
            }
            Err(error) => return tell(Code::Failed, format!("FAILED: {name}: {path}: {error}")),
        };
        let Ok(content) = serde_json::from_str::<Content>(&text) else {
            return tell(
                Code::Failed,
                format!("FAILED: {name}: {path} is not a file that is kept here"),
            );
        };
        let Some(written) = when::parse(&content.timestamp) else {
            return tell(Code::Failed, format!("FAILED: {name}: {path} has no time"));
        };
        let (leader, election) =
            (output::printable(&content.leader), output::printable(&content.election));
        if election != *name {
            return tell(Code::Failed, format!("FAILED: {name}: {path} is of election {election}"));
        }
        // A time to come is no fresher than one as long ago.
        let age = (OffsetDateTime::from(SystemTime::now()) - written).unsigned_abs();
        let told = format!("{name}: {leader} wrote {path} {} ago", when::span(age));
        match age <= max_age {
            true => output::line(format!("OK: {told}")),
            false => {
                tell(Code::Failed, format!("STALE: {told}, more than {}", when::span(max_age)))
            }
        }
    }
}

/// A new file beside `path`, that everybody may read as far as the mask of this process lets them.
fn temporary(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    tempfile::Builder::new()
        .prefix(".incumbent-")
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(directory.unwrap_or(Path::new(".")))
}

fn replace(path: &Path, content: &Content) -> io::Result<()> {
    let mut file = temporary(path)?;
    serde_json::to_writer(&mut file, content)?;
    file.write_all(b"\n")?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
