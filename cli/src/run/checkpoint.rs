//! The checkpoint of the election as a file of COMMAND.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::time::Duration;

use incumbent::{Checkpoint, Leadership, MAX_CHECKPOINT_LEN};
use rustix::fs::{Mode, OFlags, open};
use tokio::sync::{mpsc, oneshot};

use crate::error::{CliError, Code};
use crate::output;
use crate::process::{BackgroundTask, on_disk};

/// How long a file may take to be written or read on a hung disk.
const IO_WITHIN: Duration = Duration::from_secs(2);

/// Where the outcome of a save goes; `None`: to standard error.
type Request = Option<oneshot::Sender<Result<(), String>>>;

/// The file with the checkpoint of a term.
pub struct CheckpointFile {
    path: Arc<Path>,
    requests: mpsc::Sender<Request>,
    /// Alone saves the file, so that no older content of it is saved after a later one.
    _saves: BackgroundTask,
}

impl CheckpointFile {
    /// Refuses a file that no term could write.
    pub fn check(path: &Path) -> Result<(), CliError> {
        let refused = |why: &str| {
            CliError::new(Code::Usage, format!("--checkpoint {}: {why}", path.display()))
        };
        let path = std::path::absolute(path)?;
        if path.is_dir() {
            return Err(refused("it is a directory: name a file"));
        }
        output::temporary_beside(&path, output::PRIVATE).map(drop).map_err(|error| {
            let directory = output::directory_of(&path).display();
            refused(&format!("cannot write to {directory}: {}", error.kind()))
        })
    }

    /// Writes the file at the start of a term, in the place of what is there.
    pub async fn of_term(path: &Path, leadership: &Leadership) -> Result<Self, CliError> {
        let path = std::path::absolute(path)?;
        let Some(checkpoint) = leadership.checkpoint() else {
            return Err(CliError::new(Code::Failed, "the election has no checkpoint"));
        };
        let (written, data) = (path.clone(), checkpoint.data());
        within(&path, "written", move || replace(&written, &data))
            .await
            .map_err(|why| CliError::new(Code::Failed, why))?;
        let (requests, received) = mpsc::channel(1);
        let path = Arc::<Path>::from(path);
        let saves = tokio::spawn(save_upon(received, Arc::clone(&path), checkpoint));
        Ok(Self { path, requests, _saves: BackgroundTask(saves) })
    }

    /// What COMMAND sees.
    pub fn variables(&self) -> [(&'static str, OsString); 2] {
        [
            ("INCUMBENT_CHECKPOINT", self.path.as_os_str().to_owned()),
            ("INCUMBENT_PID", process::id().to_string().into()),
        ]
    }

    /// Has the file saved while COMMAND runs. Requests that come meanwhile are one.
    pub fn request_save(&self) {
        let _ = self.requests.try_send(None); // full: one is to be read yet, and reads the file then
    }

    /// Saves the file after COMMAND has ended, for at most this time. Returns whether it is saved;
    /// reports why not.
    pub async fn save_last(&self, longest: Duration) -> bool {
        let (answer, outcome) = oneshot::channel();
        let failed = |what: &str| Err(format!("{}: {what}", self.path.display()));
        let saved = tokio::time::timeout(longest, async {
            let _ = self.requests.send(Some(answer)).await;
            outcome.await.unwrap_or_else(|_| failed("not saved"))
        });
        let saved = saved.await;
        let saved = saved.unwrap_or_else(|_| failed(&format!("not saved within {longest:?}")));
        saved.map_err(|why| CliError::new(Code::Failed, why).report()).is_ok()
    }
}

/// Saves the file upon each request, one after the other.
async fn save_upon(mut requests: mpsc::Receiver<Request>, path: Arc<Path>, checkpoint: Checkpoint) {
    // The last attempt failed: it may be stored, and `data()` is not what is.
    let mut in_doubt = false;
    while let Some(request) = requests.recv().await {
        let saved = save(&path, &checkpoint, in_doubt).await;
        in_doubt = saved.is_err();
        match (request, saved) {
            (Some(answer), saved) => drop(answer.send(saved)),
            (None, Err(why)) => output::note(format!("incumbent: {why}")),
            (None, Ok(())) => {}
        }
    }
}

async fn save(path: &Path, checkpoint: &Checkpoint, in_doubt: bool) -> Result<(), String> {
    let file: PathBuf = path.to_owned();
    let data = within(path, "read", move || read(&file)).await?;
    if !in_doubt && data == *checkpoint.data() {
        return Ok(());
    }
    let saved = checkpoint.save(data).await;
    saved.map_err(|error| format!("{} is not saved: {error}", path.display()))
}

/// Does it on a thread of its own, which may hang.
async fn within<T: Send + 'static>(
    path: &Path,
    what: &str,
    act: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, String> {
    let done = on_disk(IO_WITHIN, act).await;
    done.map_err(|why| format!("the checkpoint {} cannot be {what}: {why}", path.display()))
}

/// Replaces the file at once, readable by this user.
fn replace(path: &Path, data: &[u8]) -> io::Result<()> {
    output::replace_file(path, output::PRIVATE, |file| file.write_all(data))
}

/// Reads the file; no more of it than shows that it is too long. COMMAND may have put something
/// else there: a link to what only this user may read, or a pipe that nobody writes to.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut data = Vec::new();
    let longest = u64::try_from(MAX_CHECKPOINT_LEN).unwrap_or(u64::MAX).saturating_add(1);
    file.take(longest).read_to_end(&mut data)?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn last_save_is_not_followed_by_an_earlier_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("checkpoint");
        let builder = incumbent::new_election("my_app", incumbent::memory::MemoryLock::new());
        let election = builder.checkpoint().start().unwrap();
        let leadership = election.won().await.unwrap();
        let checkpoint = leadership.checkpoint().unwrap();
        for round in 0..20 {
            let file = CheckpointFile::of_term(&path, &leadership).await.unwrap();
            std::fs::write(&path, format!("{round} early")).unwrap();
            file.request_save();
            tokio::time::sleep(Duration::from_micros(round * 50)).await;
            let last = format!("{round} last");
            replace(&path, last.as_bytes()).unwrap();
            assert!(file.save_last(Duration::from_secs(60)).await);
            tokio::task::yield_now().await;
            assert_eq!(&*checkpoint.data(), last.as_bytes());
        }
        drop(leadership);
        election.stop().await;
    }

    #[test]
    fn only_a_regular_file_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("secret"), "secret").unwrap();
        std::os::unix::fs::symlink(at("secret"), at("link")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(at("pipe")).status();
        assert!(made.unwrap().success());
        for name in ["link", "pipe", ""] {
            assert!(read(&at(name)).is_err(), "{name}");
        }
        assert_eq!(read(&at("secret")).unwrap(), b"secret");
    }

    #[test]
    fn a_file_is_replaced_and_read_up_to_its_bound() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("checkpoint");
        for data in [&b""[..], b"one", &[0xff; MAX_CHECKPOINT_LEN], b"two"] {
            replace(&path, data).unwrap();
            assert_eq!(read(&path).unwrap(), data);
        }
        replace(&path, &[1; MAX_CHECKPOINT_LEN * 2]).unwrap();
        assert_eq!(read(&path).unwrap().len(), MAX_CHECKPOINT_LEN + 1);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
