//! Unix sockets to listen at, below a path.

use std::env;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::Mode;
#[cfg(target_os = "linux")]
use rustix::fs::OFlags;
use rustix::process::{geteuid, umask};
use tempfile::TempDir;

use crate::error::{CliError, Code};
use crate::output::directory_of;

/// The file of a socket, removed when this is dropped.
pub struct SocketFile(pub PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn failed(path: &Path, error: &io::Error) -> CliError {
    CliError::new(Code::Failed, format!("cannot listen at {}: {error}", path.display()))
}

/// A new socket with its path, in a new directory that no other user may enter, and that is removed
/// with its handle.
pub fn bind_new() -> Result<(UnixListener, PathBuf, TempDir), CliError> {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let mut bases = vec![env::temp_dir(), "/dev/shm".into()]; // the latter also without a writable disk
    bases.splice(..0, runtime.filter(|base| base.is_absolute()));
    let private = Permissions::from_mode(0o700);
    let mut builder = tempfile::Builder::new();
    builder.prefix("incumbent-").permissions(private);
    let mut reasons = Vec::new();
    for base in bases {
        let bound =
            builder.tempdir_in(&base).map_err(|error| failed(&base, &error)).and_then(|own| {
                let path = own.path().join("socket");
                Ok((bind(&path, "process")?, path, own))
            });
        match bound {
            Ok(bound) => return Ok(bound),
            Err(why) => reasons.push(why.to_string()),
        }
    }
    let message = format!("{}; set TMPDIR to a directory of this user", reasons.join("; "));
    Err(CliError::new(Code::Failed, message))
}

/// A new socket of this user at this path, in a directory that no other user may enter. Creates a
/// missing directory.
pub fn bind_private(path: &Path, other: &str) -> Result<UnixListener, CliError> {
    let directory = directory_of(path);
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => created.map_err(|error| failed(path, &error))?,
    }
    let found = fs::symlink_metadata(directory).map_err(|error| failed(path, &error))?;
    let is_ours = found.is_dir() && found.uid() == geteuid().as_raw();
    if !is_ours || found.mode() & 0o077 != 0 {
        let message = format!(
            "cannot listen at {}: other users may enter {}: name a new directory, or one of this \
             user with mode 700",
            path.display(),
            directory.display()
        );
        return Err(CliError::new(Code::Failed, message));
    }
    bind(path, other)
}

/// A new socket of this user at this path. One that a killed process left is replaced; `other`
/// names the process that may listen there.
pub fn bind(path: &Path, other: &str) -> Result<UnixListener, CliError> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    if is_socket {
        check_left(path, path, other)?;
        remove_left(path, other)?;
    }
    // No moment at which others may connect. The mask is of the process: one socket at a time.
    static MASKED: Mutex<()> = Mutex::new(());
    let masked = MASKED.lock();
    let before = umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    umask(before);
    drop(masked);
    listener.map_err(|error| failed(path, &error))
}

/// Refuses a socket at which a process listens, which is to be at `path`.
fn check_left(socket: &Path, path: &Path, other: &str) -> Result<(), CliError> {
    match connect(socket) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(failed(path, &error)),
        Ok(_) => {
            let message = format!("{}: another {other} listens there", path.display());
            Err(CliError::new(Code::Failed, message))
        }
    }
}

/// Connects, also by a path that is too long for an address: by a handle of its directory, where
/// the system has a name for that.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let error = match UnixStream::connect(socket) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => error,
        connected => return connected,
    };
    #[cfg(target_os = "linux")]
    if let Some(name) = socket.file_name() {
        use std::os::fd::AsRawFd;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(directory_of(socket), flags, Mode::empty())?;
        let short = format!("/proc/self/fd/{}", directory.as_raw_fd());
        return UnixStream::connect(Path::new(&short).join(name));
    }
    Err(error)
}

/// Removes a socket that a killed process left. Another process may have replaced it since it was
/// looked at: it is looked at again where nobody replaces it, and put back if it is of that one.
fn remove_left(path: &Path, other: &str) -> Result<(), CliError> {
    let mut aside = tempfile::Builder::new();
    aside.prefix(".incumbent-");
    let moved = aside.make_in(directory_of(path), |aside| fs::rename(path, aside));
    let moved = match moved {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()), // another one has
        moved => moved.map_err(|error| failed(path, &error))?,
    };
    check_left(moved.path(), path, other).inspect_err(|_| {
        let _ = moved.persist_noclobber(path); // an error: a third one listens there
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_of_a_killed_process_is_replaced_and_no_other() {
        replaces("socket");
    }

    /// The name that it has meanwhile is too long for an address.
    #[test]
    #[cfg(target_os = "linux")]
    fn socket_with_the_longest_path_is_replaced() {
        let most = 107 - tempfile::tempdir().unwrap().path().as_os_str().len() - 1;
        replaces(&format!("{}/s", "d".repeat(most - 2)));
    }

    fn replaces(name: &str) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        fs::create_dir_all(directory_of(&path)).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        let listener = bind(&path, "process").unwrap();
        for refused in [bind(&path, "process").map(drop), remove_left(&path, "process")] {
            assert!(refused.unwrap_err().to_string().contains("another process listens there"));
            connect(&path).unwrap();
        }
        drop(listener);
        remove_left(&path, "process").unwrap();
        assert_eq!(fs::read_dir(directory_of(&path)).unwrap().count(), 0);
    }
}
