//! Disks that are soon full, or do not respond.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::notices::not_run;
use crate::poll::LIMIT;
use crate::process::succeeds;

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
        let end = Instant::now() + LIMIT;
        while !mount.status().is_ok_and(|status| status.success()) {
            assert!(Instant::now() < end, "{} is in use", self.path().display());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy"]).arg(self.path()).status();
    }
}

/// A file system of its own, which all users may write to, and which can be frozen.
#[derive(Debug)]
pub struct FreezableDisk(TempDir);

impl FreezableDisk {
    /// Mounts one. Without the permission, or the programs for it, reports that `what` is not run.
    pub fn mount(what: &str) -> Option<Self> {
        let disk = Self(tempfile::tempdir().expect("a directory"));
        let image = disk.0.path().join("image");
        fs::File::create(&image).and_then(|file| file.set_len(16 << 20)).expect("a file");
        fs::create_dir(disk.path()).expect("a directory");
        let (image, path) = (image.display().to_string(), disk.path().display().to_string());
        let created = succeeds("mkfs.ext4", &["-q", &image])
            && succeeds("mount", &["-o", "loop", &image, &path])
            && disk.set_frozen(true)
            && disk.set_frozen(false);
        if created {
            fs::set_permissions(disk.path(), Permissions::from_mode(0o777)).expect("ours");
            return Some(disk);
        }
        not_run(what, "no disk may be frozen here: be root, with mkfs.ext4 and loop devices");
        None
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.0.path().join("disk")
    }

    /// Keeps all who write to it waiting, until it is thawed or dropped.
    pub fn freeze(&self) {
        assert!(self.set_frozen(true), "it was not frozen");
    }

    /// Has it respond again.
    pub fn thaw(&self) {
        self.set_frozen(false);
    }

    fn set_frozen(&self, frozen: bool) -> bool {
        let how = if frozen { "--freeze" } else { "--unfreeze" };
        succeeds("fsfreeze", &[how, &self.path().display().to_string()])
    }
}

impl Drop for FreezableDisk {
    fn drop(&mut self) {
        self.thaw();
        succeeds("umount", &["--lazy", &self.path().display().to_string()]);
    }
}
