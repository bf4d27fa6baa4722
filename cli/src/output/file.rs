//! Files that commands read and write.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tempfile::NamedTempFile;

use crate::error::{CliError, Code};

/// Reads a file of at most this many bytes, whatever its length is said to be.
pub fn read_text(file: File, max: u64) -> io::Result<String> {
    let mut text = String::new();
    file.take(max + 1).read_to_string(&mut text)?;
    match text.len() as u64 <= max {
        true => Ok(text),
        false => Err(io::Error::other(format!("it is larger than {max} bytes"))),
    }
}

/// The directory of a file.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The permissions of a file that all users may read, as far as the umask allows it.
pub const READABLE: u32 = 0o644;
/// The permissions of a file of this user alone.
pub const PRIVATE: u32 = 0o600;

/// A new file beside `path`. It is removed when it is dropped.
#[cfg_attr(not(unix), allow(unused_variables))]
pub fn temporary_beside(path: &Path, mode: u32) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".incumbent-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(mode));
    }
    builder.tempfile_in(directory_of(path))
}

/// Replaces a file: a reader sees what it was before, or all that `write` writes. If that fails,
/// the file is as it was.
pub fn replace_file(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    if path.file_name().is_none() {
        return Err(io::Error::other("it is a directory"));
    }
    let mut new = temporary_beside(path, mode)?;
    write(new.as_file_mut())?;
    new.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// The error of a write.
pub fn unwritten(path: &Path, why: impl Display) -> CliError {
    CliError::new(Code::Failed, format!("cannot write {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    #[test]
    fn failed_write_leaves_the_file_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        replace_file(&path, READABLE, |file| file.write_all(b"one")).unwrap();
        let failed = replace_file(&path, READABLE, |file| {
            file.write_all(b"two")?;
            Err(io::Error::other("the disk is full"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "the disk is full");
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        fs::create_dir(place.path().join("directory")).unwrap();
        for directory in ["directory", "directory/..", "absent/file"] {
            replace_file(&place.path().join(directory), PRIVATE, |_| Ok(())).unwrap_err();
        }
        let left = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut left: Vec<_> = left.collect();
        left.sort();
        assert_eq!(left, ["directory", "file"]);
    }
}
