//! The checkpoint of the election as a file of COMMAND.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::time::Duration;

use incumbent::{Checkpoint, Leadership, MAX_CHECKPOINT_LEN};
use tokio::sync::Notify;

use crate::error::{CliError, Code};
use crate::output;
use crate::process::BackgroundTask;

/// How long a file may take to be written or read on a hung disk.
const IO_WITHIN: Duration = Duration::from_secs(2);

/// The checkpoint of a term, and its file.
pub struct CheckpointFile {
    path: Arc<Path>,
    checkpoint: Checkpoint,
    wanted: Arc<Notify>,
    /// Saves the file when that is wanted.
    _saves: BackgroundTask,
}

impl CheckpointFile {
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
        let (path, wanted) = (Arc::<Path>::from(path), Arc::new(Notify::new()));
        let (of_task, saved, notified) = (Arc::clone(&path), checkpoint.clone(), wanted.clone());
        let saves = tokio::spawn(async move {
            loop {
                notified.notified().await;
                if let Err(why) = save(&of_task, &saved).await {
                    output::note(format!("incumbent: {why}"));
                }
            }
        });
        Ok(Self { path, checkpoint, wanted, _saves: BackgroundTask(saves) })
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
        self.wanted.notify_one();
    }

    /// Saves the file after COMMAND has ended, for at most this time. Returns whether it is saved;
    /// reports why not.
    pub async fn save_last(&self, longest: Duration) -> bool {
        let saved = tokio::time::timeout(longest, save(&self.path, &self.checkpoint)).await;
        let saved = saved.unwrap_or_else(|_| {
            Err(format!("{}: not saved within {longest:?}", self.path.display()))
        });
        saved.map_err(|why| CliError::new(Code::Failed, why).report()).is_ok()
    }
}

async fn save(path: &Path, checkpoint: &Checkpoint) -> Result<(), String> {
    let file: PathBuf = path.to_owned();
    let data = within(path, "read", move || read(&file)).await?;
    if data == *checkpoint.data() {
        return Ok(());
    }
    let saved = checkpoint.save(data).await;
    saved.map_err(|error| format!("{} is not saved: {error}", path.display()))
}

/// Does it in a thread of its own, which may hang.
async fn within<T: Send + 'static>(
    path: &Path,
    what: &str,
    act: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, String> {
    let failed = |why: &dyn std::fmt::Display| {
        format!("the checkpoint {} cannot be {what}: {why}", path.display())
    };
    match tokio::time::timeout(IO_WITHIN, tokio::task::spawn_blocking(act)).await {
        Ok(Ok(done)) => done.map_err(|error| failed(&error)),
        Ok(Err(ended)) => Err(failed(&ended)),
        Err(_) => Err(failed(&"no response of the disk")),
    }
}

/// Replaces the file at once, readable by this user.
fn replace(path: &Path, data: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(data)?;
    file.persist(path)?;
    Ok(())
}

/// Reads the file; no more of it than shows that it is too long.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut data = Vec::new();
    let longest = u64::try_from(MAX_CHECKPOINT_LEN).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path)?.take(longest).read_to_end(&mut data)?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

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
