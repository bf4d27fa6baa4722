//! Announces a write to the processes that watch the file.

use std::io;
use std::path::{Path, PathBuf};

use tracing::trace;

/// Announces that a write is visible: sets the modification time of the log, which has just been
/// written to.
pub(super) fn announce_write(path: &Path) {
    if let Err(error) = touch(&log_path(path)) {
        trace!(%error, path = %path.display(), "write not announced; watchers find it by polling");
    }
}

/// Does not open the file: closing it would end the locks that SQLite holds on it for the process.
#[cfg(unix)]
fn touch(path: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    Ok(utimensat(CWD, path, &times, AtFlags::empty())?)
}

/// Locks belong to a handle there, and not to the process.
#[cfg(not(unix))]
fn touch(path: &Path) -> io::Result<()> {
    let log = std::fs::File::options().write(true).open(path)?;
    log.set_modified(std::time::SystemTime::now())
}

/// Returns the log of a file, which SQLite writes to first.
pub(super) fn log_path(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}
