//! Announces a write to the processes that watch the file.

use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
use tracing::trace;

/// Announces that a write is visible: sets the modification time of the log, which has just been
/// written to. The log is not opened, as closing a file ends the locks that SQLite holds on it for
/// the process.
pub(super) fn announce_write(path: &Path) {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    if let Err(error) = utimensat(CWD, log_path(path), &times, AtFlags::empty()) {
        trace!(%error, path = %path.display(), "write not announced; watchers find it by polling");
    }
}

/// Returns the log of a file, which SQLite writes to first.
pub(super) fn log_path(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}
