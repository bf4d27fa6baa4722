//! A disk that is soon full.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::notices::not_run;

/// A disk of 2 MiB, in memory. Dropping it takes it away.
#[derive(Debug)]
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts one. Without the permission to, reports that `what` is not run.
    pub fn mount(what: &str) -> Option<Self> {
        let directory = tempfile::Builder::new().prefix("disk-").tempdir().expect("a directory");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(directory.path());
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(Self(directory));
        }
        not_run(what, "no disk may be mounted here: be root");
        None
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Makes it read-only, once the open files on it are closed.
    pub fn remount_read_only(&self) {
        let mut mount = Command::new("mount");
        mount.args(["-o", "remount,ro"]).arg(self.path());
        let remounted = (0..500).any(|_| {
            let done = mount.status().is_ok_and(|status| status.success());
            if !done {
                thread::sleep(Duration::from_millis(10));
            }
            done
        });
        assert!(remounted, "{} is in use", self.path().display());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy"]).arg(self.path()).status();
    }
}
