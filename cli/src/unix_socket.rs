//! Unix sockets to listen at, below a path.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::process::umask;

use crate::error::{CliError, Code};

/// The file of a socket, removed when this is dropped.
pub struct SocketFile(pub PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A new socket at this path with this mode. One that a killed process left is replaced; `other`
/// names the process that may listen there.
pub fn bind(path: &Path, mode: u32, other: &str) -> Result<UnixListener, CliError> {
    let failed = |error: io::Error| {
        let message = format!("cannot listen at {}: {error}", path.display());
        CliError::new(Code::Failed, message)
    };
    let is_socket = fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    if is_socket {
        match UnixStream::connect(path) {
            // Left by a killed one.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
            Ok(_) => {
                let message = format!("{}: another {other} listens there", path.display());
                return Err(CliError::new(Code::Failed, message));
            }
        }
    }
    // No moment at which others may connect.
    let before = umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    umask(before);
    let listener = listener.map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)?;
    Ok(listener)
}
