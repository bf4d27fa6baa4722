//! Lookup of the command before campaigning: a candidate without a command should not lead.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::fs::{Access, access};

use crate::error::{CliError, Code};

/// Exit codes of shells.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// The exit code of shells for a command that could not be executed.
pub fn exit_code(error: &io::Error) -> u8 {
    match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }
}

/// Reports a command that cannot be run. Returns the exit code then.
pub fn refuse(program: &OsStr) -> Option<ExitCode> {
    let Missing { code, message } = check(program).err()?;
    CliError::new(Code::Failed, message).report();
    Some(ExitCode::from(code))
}

/// The error of a missing command, with the exit code of shells.
#[derive(Debug, PartialEq, Eq)]
struct Missing {
    code: u8,
    message: String,
}

fn check(program: &OsStr) -> Result<(), Missing> {
    let name = program.display();
    let is_path = program.as_bytes().contains(&b'/');
    let candidates: Vec<PathBuf> = if is_path {
        vec![program.into()]
    } else {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).map(|directory| directory.join(program)).collect()
    };
    if candidates.iter().any(|file| is_executable(file)) {
        return Ok(());
    }
    // A directory is found by its path only.
    let found = candidates.iter().find(|file| file.is_file() || is_path && file.exists());
    let (code, message) = match found {
        Some(file) if file.is_dir() => {
            (NOT_EXECUTABLE, format!("{} is a directory", file.display()))
        }
        Some(file) => (
            NOT_EXECUTABLE,
            format!("{} is not executable: run chmod +x, or use its interpreter", file.display()),
        ),
        None if is_path => (NOT_FOUND, format!("no command {name}")),
        None => (NOT_FOUND, format!("no command {name} on PATH")),
    };
    Err(Missing { code, message })
}

fn is_executable(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(program: &str) -> Option<u8> {
        check(OsStr::new(program)).err().map(|missing| missing.code)
    }

    #[test]
    fn commands_are_found_as_by_a_shell() {
        assert_eq!(code("sh"), None);
        assert_eq!(code("/bin/sh"), None);
        assert_eq!(code("/etc/passwd"), Some(126));
        assert_eq!(code("/etc"), Some(126));
        assert_eq!(code("/no/such/command"), Some(127));
        assert_eq!(code("no-such-command"), Some(127));
        assert_eq!(code(""), Some(127));
    }
}
