//! The command's control group, if one can be created: it is killed atomically.
//!
//! The kernel has one lock for all groups of a machine. A process that moves one holds it while all
//! cores pass a point of rest, for 5 to 100 ms, and a second on a busy machine. COMMAND enters the
//! group before it starts, so that no descendant of it begins outside; when it is killed, nothing
//! waits for the group.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// A child of this process's group, in the hierarchy of version 2. Each of the processes that know
/// it removes it when it drops it, if no process is left in it.
pub struct Cgroup {
    directory: PathBuf,
    /// Whether a thread kills it at this moment.
    is_being_killed: Arc<AtomicBool>,
}

impl Cgroup {
    /// How long its creation or removal is waited for.
    pub const LIMIT: Duration = Duration::from_secs(2);

    /// Creates it. `None` without such a hierarchy, without the permission to write, if the kernel
    /// (before 5.14) cannot kill a group, or if it takes too long.
    pub fn create() -> Option<Self> {
        on_thread(Self::create_now).recv_timeout(Self::LIMIT).ok().flatten()
    }

    fn create_now() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let cgroup = Self::create_in(&own_directory(&mounts, &groups)?)?;
        cgroup.directory.join("cgroup.kill").is_file().then_some(cgroup)
    }

    /// Its name is random, and nobody else's: processes of several PID namespaces share this group.
    fn create_in(parent: &Path) -> Option<Self> {
        let mut random = tempfile::Builder::new();
        let directory = random.prefix("incumbent-").rand_bytes(16).tempdir_in(parent);
        Some(Self::at(directory.ok()?.keep()))
    }

    /// The group that another process created.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory, is_being_killed: Arc::default() }
    }

    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Moves the calling process into the group that another process created.
    pub fn enter(directory: &Path) -> std::io::Result<()> {
        fs::write(directory.join("cgroup.procs"), "0")
    }

    /// Kills every process in the group, on a thread, as each process is killed, too. Returns what
    /// ends with it, unless another thread does so already.
    pub fn kill(&self) -> Option<mpsc::Receiver<()>> {
        let is_being_killed = Arc::clone(&self.is_being_killed);
        if is_being_killed.swap(true, Ordering::AcqRel) {
            return None;
        }
        let file = self.directory.join("cgroup.kill");
        Some(on_thread(move || {
            let _ = fs::write(file, "1");
            is_being_killed.store(false, Ordering::Release);
        }))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let directory = std::mem::take(&mut self.directory);
        let _ = on_thread(move || remove(&directory)).recv_timeout(Self::LIMIT);
    }
}

/// Does this on a thread of its own, as the kernel may take long. Returns where the result comes.
fn on_thread<T: Send + 'static>(
    act: impl FnOnce() -> T + Clone + Send + 'static,
) -> mpsc::Receiver<T> {
    let (sender, done) = mpsc::channel();
    let work = move || drop(sender.send(act()));
    let thread = thread::Builder::new().name("cgroup".to_owned()).spawn(work.clone());
    // COMMAND may have used up the threads: that is what its group is killed for.
    let _ = thread.inspect_err(|_| work());
    done
}

/// Removes a group, and those that its processes created in it.
fn remove(group: &Path) {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    below.for_each(|entry| remove(&entry.path()));
    let _ = fs::remove_dir(group); // it may have processes
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
    fn group_is_removed_with_those_below_it() {
        let parent = tempfile::tempdir().unwrap();
        let group = Cgroup::create_in(parent.path()).unwrap();
        fs::create_dir_all(group.path().join("one/two")).unwrap();
        let path = group.path().to_owned();
        drop(group); // by a thread of its own, which may be late
        let is_gone = |_| {
            thread::sleep(Duration::from_millis(10));
            !path.exists()
        };
        assert!((0..6000).any(is_gone));
    }

    #[test]
    fn hung_request_is_not_waited_for() {
        let parent = tempfile::tempdir().unwrap();
        let group = Cgroup::create_in(parent.path()).unwrap();
        let file = group.path().join("cgroup.kill");
        let made = std::process::Command::new("mkfifo").arg(&file).status();
        assert!(made.unwrap().success());
        let kills = group.kill().unwrap();
        let waited = kills.recv_timeout(Duration::from_millis(10));
        assert_eq!(waited, Err(mpsc::RecvTimeoutError::Timeout));
        assert!(group.kill().is_none(), "it is being killed");
        assert_eq!(fs::read(&file).unwrap(), b"1");
        assert!(kills.recv().is_ok() && group.kill().is_some());
    }

    #[test]
    fn no_two_groups_share_a_name() {
        let parent = tempfile::tempdir().unwrap();
        let create = || Cgroup::create_in(parent.path()).unwrap().path().to_owned();
        assert_ne!(create(), create());
    }
}
