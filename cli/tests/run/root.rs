//! Fixtures that need root. Tests return early where the process is not root.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// UID and GID of the Unix user `nobody`.
pub const NOBODY: u32 = 65534;

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs the command as the user `nobody`, without the directories of root.
pub fn as_nobody(command: &mut Command) -> &mut Command {
    not_of_root(command).uid(NOBODY).gid(NOBODY)
}

/// A path of the program that every user can reach. The build of root may be in its home directory.
pub struct SharedProgram(TempDir);

impl SharedProgram {
    pub fn create() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("ours");
        let program = Self(directory);
        let built = env!("CARGO_BIN_EXE_incumbent");
        fs::hard_link(built, program.path())
            .or_else(|_| fs::copy(built, program.path()).map(|_| ()))
            .expect("a link or a copy");
        program
    }

    pub fn path(&self) -> PathBuf {
        self.0.path().join("incumbent")
    }

    /// A command that runs `command` under this path, as the user `nobody`.
    pub fn as_nobody(&self, command: &Command) -> Command {
        let mut named = Command::new(self.path());
        named.args(command.get_args()).stdin(Stdio::null());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => named.env(key, value),
                None => named.env_remove(key),
            };
        }
        as_nobody(&mut named);
        named
    }
}

/// Removes the directories of root from the environment of a command.
pub fn not_of_root(command: &mut Command) -> &mut Command {
    command.env("HOME", "/").env_remove("XDG_CONFIG_HOME");
    command.env_remove("XDG_RUNTIME_DIR").env_remove("TMPDIR")
}

/// A setuid program that makes its caller root, as sudo does.
pub struct BecomeRoot {
    directory: TempDir,
}

impl BecomeRoot {
    /// `None` without setpriv, or where setuid has no effect.
    pub fn create() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("ours");
        let become_root = Self { directory };
        fs::copy("/usr/bin/setpriv", become_root.program()).ok()?;
        fs::set_permissions(become_root.program(), Permissions::from_mode(0o4755)).expect("ours");
        let mut test = Command::new(become_root.program());
        as_nobody(test.args(["--reuid=0", "id", "--real", "--user"]));
        let output = test.output().ok()?;
        (output.stdout == b"0\n").then_some(become_root)
    }

    fn program(&self) -> PathBuf {
        self.directory.path().join("become-root")
    }

    /// The start of a shell command line.
    pub fn prefix(&self) -> String {
        format!("{} --reuid=0", self.program().display())
    }
}

/// A control group delegated to the user `nobody`, as systemd does with `Delegate=yes`.
pub struct Delegated(PathBuf);

impl Delegated {
    /// `None` without a writable hierarchy of version 2.
    pub fn create() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mount = mounts.find(|fields| fields.get(2) == Some(&"cgroup2"))?;
        let group = tempfile::Builder::new().prefix("incumbent-test-").tempdir_in(mount[1]);
        let delegated = Self(group.ok()?.keep());
        for path in ["", "cgroup.procs", "cgroup.subtree_control"] {
            chown(delegated.0.join(path), Some(NOBODY), Some(NOBODY)).ok()?;
        }
        delegated.0.join("cgroup.kill").is_file().then_some(delegated)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A shell script that runs its arguments in this group as the user `nobody`.
    pub fn shell(&self) -> String {
        let group = self.0.display();
        format!(
            "echo $$ > {group}/cgroup.procs; \
             exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups \"$@\""
        )
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        let _ = fs::remove_dir(&self.0);
    }
}
