//! The file behind a path, and its other names: SQLite keeps a log for each name of a file, so a
//! process that uses another name does not see what is written under this one.

use std::io;
#[cfg(target_os = "linux")]
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The identity of a file, independent of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id(u64, u64);

/// A file as its directory lists it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named {
    pub id: Id,
    /// Whether it is a file, and not a directory or a device.
    regular: bool,
    /// The number of its names on its file system.
    names: u64,
    /// Whether it is a mount point here, and so has another name elsewhere.
    mounted: bool,
}

impl Named {
    /// Returns why no election may be held under this name, if so.
    pub fn unfit(&self) -> Option<String> {
        if !self.regular {
            return Some("is not a regular file: name a file in a directory".to_owned());
        }
        if self.mounted {
            let what = "is a mount point, and its log is not beside the file itself: mount the directory instead";
            return Some(what.to_owned());
        }
        (self.names > 1).then(|| {
            let names = self.names;
            format!("has {names} names (hard links), each with a log of its own: remove the others")
        })
    }
}

/// Inspects the file without opening it: closing it would end the locks that SQLite has on it.
#[cfg(target_os = "linux")]
pub(super) fn inspect(path: &Path) -> io::Result<Named> {
    use rustix::fs::{AtFlags, CWD, FileType, StatxAttributes, StatxFlags, statx};
    let stats = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS)?;
    let device = (u64::from(stats.stx_dev_major) << 32) | u64::from(stats.stx_dev_minor);
    let mounted = match stats.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        true => stats.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        // Before Linux 5.8.
        false => {
            let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
            is_mounted(path, &mounts)
        }
    };
    Ok(Named {
        id: Id(device, stats.stx_ino),
        regular: FileType::from_raw_mode(stats.stx_mode.into()) == FileType::RegularFile,
        names: u64::from(stats.stx_nlink),
        mounted,
    })
}

#[cfg(all(unix, not(target_os = "linux")))]
pub(super) fn inspect(path: &Path) -> io::Result<Named> {
    use std::os::unix::fs::MetadataExt;
    let stats = std::fs::metadata(path)?;
    Ok(Named {
        id: Id(stats.dev(), stats.ino()),
        regular: stats.is_file(),
        names: stats.nlink(),
        mounted: false,
    })
}

/// On other systems an open file cannot be deleted.
#[cfg(not(unix))]
pub(super) fn inspect(path: &Path) -> io::Result<Named> {
    let stats = std::fs::metadata(path)?;
    Ok(Named { id: Id(0, 0), regular: stats.is_file(), names: 1, mounted: false })
}

/// Whether a connection that this process opens now would have to do with files that are not, or no
/// longer, those of the file of this name: `beside` are the names of its log and its index.
///
/// The connections of a process share the index of a file, a deleted one too, and open the log each
/// by its name. To close one of these files ends all locks that the process has on it.
#[cfg(target_os = "linux")]
pub(super) fn uses_others(path: &Path, beside: &[PathBuf]) -> io::Result<bool> {
    let current = inspect(path).ok().map(|named| named.id);
    let (mut has_current, mut has_beside, mut has_deleted) = (false, false, false);
    let is_listed = for_each_opened(|link, id| {
        let deleted = link.strip_suffix(b" (deleted)");
        let is = |path: &Path| link == path.as_os_str().as_bytes();
        let was = |path: &Path| deleted == Some(path.as_os_str().as_bytes());
        if is(path) || was(path) {
            // A name may come back.
            has_current |= id() == current;
        } else if beside.iter().any(|beside| is(beside)) {
            has_beside = true;
        } else if beside.iter().any(|beside| was(beside)) {
            has_deleted = true;
        }
    })?;
    Ok(is_listed && (has_deleted || (has_beside && !has_current)))
}

/// Whether this process has all of these files open, under whatever name.
#[cfg(target_os = "linux")]
pub(super) fn has_open(files: &[Id]) -> io::Result<bool> {
    let mut missing = files.to_vec();
    let is_listed = for_each_opened(|_, id| {
        if let Some(id) = id() {
            missing.retain(|file| *file != id);
        }
    })?;
    Ok(!is_listed || missing.is_empty())
}

/// Calls `look` with the name of each file that this process has open, and with what finds its
/// identity. Returns false where there is no `/proc`.
#[cfg(target_os = "linux")]
fn for_each_opened(mut look: impl FnMut(&[u8], &dyn Fn() -> Option<Id>)) -> io::Result<bool> {
    let descriptors = match std::fs::read_dir("/proc/self/fd") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        found => found?,
    };
    for descriptor in descriptors {
        let descriptor = descriptor?.path();
        let Ok(link) = std::fs::read_link(&descriptor) else { continue };
        // Others are sockets and pipes.
        if link.is_absolute() {
            let id = || inspect(&descriptor).ok().map(|named| named.id);
            look(link.as_os_str().as_bytes(), &id);
        }
    }
    Ok(true)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn uses_others(_path: &Path, _beside: &[PathBuf]) -> io::Result<bool> {
    Ok(false)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn has_open(_files: &[Id]) -> io::Result<bool> {
    Ok(true)
}

/// Whether `path` is a mount point, by `/proc/self/mountinfo`: the fifth word of a line, in which
/// special bytes are written in octal.
#[cfg(target_os = "linux")]
fn is_mounted(path: &Path, mounts: &[u8]) -> bool {
    let points = mounts.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut words = line.split(|byte| *byte == b' ');
        words.nth(4)
    });
    points.into_iter().any(|point| unescaped(point) == path.as_os_str().as_bytes())
}

#[cfg(target_os = "linux")]
fn unescaped(word: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(word.len()), word);
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn files_of_another_database_are_found_until_they_are_closed() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().canonicalize().unwrap();
        let (path, log) = (directory.join("a b"), directory.join("a b-wal"));
        let open = |path| std::fs::File::create(path).unwrap();
        let uses_others = || uses_others(&path, std::slice::from_ref(&log)).unwrap();
        let files = [open(&path), open(&log)];
        assert!(!uses_others());

        std::fs::remove_file(&log).unwrap();
        assert!(uses_others(), "a deleted log");
        std::fs::write(&log, []).unwrap();
        assert!(uses_others(), "a deleted log, and another one");
        drop(files);
        assert!(!uses_others());

        let files = [open(&path), open(&log)];
        let backup = directory.join("backup");
        std::fs::hard_link(&path, &backup).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, []).unwrap();
        assert!(uses_others(), "the log is of an earlier file");
        std::fs::rename(&backup, &path).unwrap();
        assert!(!uses_others(), "the earlier file is back");
        let id = |path| inspect(path).unwrap().id;
        let ids = [id(&path), id(&log)];
        assert!(has_open(&ids).unwrap());
        std::fs::rename(&log, directory.join("elsewhere")).unwrap();
        assert!(has_open(&ids).unwrap(), "under another name");
        std::fs::write(&log, []).unwrap();
        assert!(!has_open(&[id(&path), id(&log)]).unwrap());
        drop(files);
    }

    #[test]
    fn a_mount_point_is_found_in_mountinfo() {
        let mounts = b"21 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            40 21 8:1 /a /data/my\\040elections.db rw - ext4 /dev/sda1 rw\n";
        assert!(is_mounted(Path::new("/data/my elections.db"), mounts));
        assert!(is_mounted(Path::new("/"), mounts));
        for other in ["/data/elections.db", "/data/my\\040elections.db", "/data"] {
            assert!(!is_mounted(Path::new(other), mounts), "{other}");
        }
        assert_eq!(unescaped(b"a\\9\\"), b"a\\9\\");
    }
}
