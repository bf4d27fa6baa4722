//! What only root may do: tests that need it pass over where they are not.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Somebody who is not root.
pub const NOBODY: u32 = 65534;

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The same without the rights of root, and what goes with them.
pub fn as_nobody(command: &mut Command) -> &mut Command {
    not_of_root(command).uid(NOBODY).gid(NOBODY)
}

/// A name of the program that everybody reaches: root's builds may lie in its home directory.
pub struct ForEverybody(TempDir);

impl ForEverybody {
    pub fn make() -> Self {
        let place = tempfile::tempdir().expect("a directory");
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).expect("ours");
        let program = Self(place);
        let built = env!("CARGO_BIN_EXE_incumbent");
        fs::hard_link(built, program.path())
            .or_else(|_| fs::copy(built, program.path()).map(|_| ()))
            .expect("a link or a copy");
        program
    }

    pub fn path(&self) -> PathBuf {
        self.0.path().join("incumbent")
    }

    /// The same run by nobody, by this name.
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

/// The same without root's own places.
pub fn not_of_root(command: &mut Command) -> &mut Command {
    command.env("HOME", "/").env_remove("XDG_CONFIG_HOME");
    command.env_remove("XDG_RUNTIME_DIR").env_remove("TMPDIR")
}

fn succeeds(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    let status = command.args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// A file system of its own, which can be frozen.
pub struct Frozen {
    place: TempDir,
}

impl Frozen {
    /// Nothing where there are no loop devices, or no such programs.
    pub fn make() -> Option<Self> {
        let frozen = Self { place: tempfile::tempdir().expect("a directory") };
        let image = frozen.place.path().join("image");
        fs::File::create(&image).and_then(|file| file.set_len(16 << 20)).expect("a file");
        fs::create_dir(frozen.path()).expect("a directory");
        let (image, path) = (image.display().to_string(), frozen.path().display().to_string());
        let made = succeeds("mkfs.ext4", &["-q", &image])
            && succeeds("mount", &["-o", "loop", &image, &path])
            && succeeds("fsfreeze", &["--freeze", &path])
            && succeeds("fsfreeze", &["--unfreeze", &path]);
        fs::set_permissions(frozen.path(), Permissions::from_mode(0o777)).expect("ours");
        made.then_some(frozen)
    }

    pub fn path(&self) -> PathBuf {
        self.place.path().join("disk")
    }

    pub fn freeze(&self) {
        assert!(succeeds("fsfreeze", &["--freeze", &self.path().display().to_string()]));
    }

    pub fn thaw(&self) {
        succeeds("fsfreeze", &["--unfreeze", &self.path().display().to_string()]);
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.thaw();
        succeeds("umount", &["--lazy", &self.path().display().to_string()]);
    }
}

/// Programs that are not run as root become root by this one, as by sudo.
pub struct BecomeRoot {
    place: TempDir,
}

impl BecomeRoot {
    /// Nothing where there is no such program, or none gets other rights by its file.
    pub fn make() -> Option<Self> {
        let place = tempfile::tempdir().expect("a directory");
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).expect("ours");
        let become_root = Self { place };
        fs::copy("/usr/bin/setpriv", become_root.program()).ok()?;
        fs::set_permissions(become_root.program(), Permissions::from_mode(0o4755)).expect("ours");
        let mut test = Command::new(become_root.program());
        as_nobody(test.args(["--reuid=0", "id", "--real", "--user"]));
        let output = test.output().ok()?;
        (output.stdout == b"0\n").then_some(become_root)
    }

    fn program(&self) -> PathBuf {
        self.place.path().join("become-root")
    }

    /// As the beginning of a line for a shell.
    pub fn prefix(&self) -> String {
        format!("{} --reuid=0", self.program().display())
    }
}

/// A control group that nobody may divide further, as systemd makes one with `Delegate=yes`.
pub struct Delegated(PathBuf);

impl Delegated {
    /// Nothing where there is no hierarchy of version 2 to write to.
    pub fn make() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mount = mounts.find(|fields| fields.get(2) == Some(&"cgroup2"))?;
        let group = Path::new(mount[1]).join(format!("incumbent-test-{}", std::process::id()));
        fs::create_dir(&group).ok()?;
        let delegated = Self(group);
        for path in ["", "cgroup.procs", "cgroup.subtree_control"] {
            chown(delegated.0.join(path), Some(NOBODY), Some(NOBODY)).ok()?;
        }
        delegated.0.join("cgroup.kill").is_file().then_some(delegated)
    }

    /// A program that runs the one behind it in this group, as nobody.
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
