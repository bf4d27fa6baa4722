//! The command's control group, if one can be created: it is killed atomically.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

/// A child of this process's group, in the hierarchy of version 2.
pub struct Cgroup {
    directory: PathBuf,
}

impl Cgroup {
    /// Creates it. `None` without such a hierarchy, without the right to write, or if the kernel
    /// (before 5.14) cannot kill a group.
    pub fn create() -> Option<Self> {
        Self::create_as(format!("incumbent-{}", std::process::id()))
    }

    /// The same for one of several commands.
    pub fn create_for(number: u32) -> Option<Self> {
        Self::create_as(format!("incumbent-{}-{number}", std::process::id()))
    }

    fn create_as(name: String) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let below = own_directory(&mounts, &groups)?;
        let directory = below.join(name);
        // An existing group is left by a killed process with the same id.
        if fs::create_dir(&directory).is_err() && !directory.is_dir() {
            return None;
        }
        let cgroup = Self { directory };
        if cgroup.directory.join("cgroup.kill").is_file() {
            return Some(cgroup);
        }
        cgroup.remove();
        None
    }

    /// The group that another process created.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Moves the calling process into the group.
    pub fn enter(&self) -> std::io::Result<()> {
        fs::write(self.directory.join("cgroup.procs"), "0")
    }

    /// Whether the process is in the group or below it: then `kill` reaches it, whatever its user
    /// is.
    pub fn holds(&self, pid: Pid) -> bool {
        let Some(name) = self.directory.file_name().and_then(|name| name.to_str()) else {
            return false;
        };
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_pid()));
        is_below(&groups.unwrap_or_default(), name)
    }

    /// Kills every process in the group.
    pub fn kill(&self) {
        let _ = fs::write(self.directory.join("cgroup.kill"), "1"); // the tree is walked too
    }

    /// Removes the group once it is empty.
    pub fn remove(&self) {
        let _ = fs::remove_dir(&self.directory);
    }
}

/// The directory of the process's group, from its `mounts` and `cgroup` files.
fn own_directory(mounts: &str, groups: &str) -> Option<PathBuf> {
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let at = fields.nth(1)?;
        (fields.next()? == "cgroup2").then_some(at)
    })?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // A group outside of this namespace begins with "..".
    (!group.starts_with("..")).then(|| Path::new(mount).join(group))
}

/// Whether the `cgroup` file of a process has a group of this name.
fn is_below(groups: &str, name: &str) -> bool {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    group.is_some_and(|group| group.split('/').any(|part| part == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_our_group_beside_the_old_hierarchies() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let groups = "4:memory:/x\n0::/user.slice/a.service\n";
        let found = own_directory(mounts, groups);
        assert_eq!(found, Some("/sys/fs/cgroup/unified/user.slice/a.service".into()));
        assert_eq!(own_directory(mounts, "0::/../../outside\n"), None);
        assert_eq!(own_directory("proc /proc proc rw 0 0\n", groups), None);
    }

    #[test]
    fn child_groups_are_in_the_group() {
        let groups = "4:memory:/x\n0::/a.service/incumbent-12/b\n";
        assert!(is_below(groups, "incumbent-12") && is_below("0::/incumbent-12\n", "incumbent-12"));
        assert!(!is_below(groups, "incumbent-1") && !is_below("4:memory:/x\n", "x"));
    }
}
