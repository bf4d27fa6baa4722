//! The machine's boot, and the time since it: the same for every process of the machine.

use std::path::Path;
use std::time::Duration;

#[cfg(target_os = "linux")]
use crate::time::clock::{BootClock, Clock};

/// An instant that the processes of one machine can compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Moment {
    pub boot: String,
    pub ms: i64,
}

/// Returns the present instant; `None` if the system provides no clock that processes share. The
/// clock runs during suspension, setting a wall clock does not change it, and another boot has
/// another identifier.
pub(super) fn now() -> Option<Moment> {
    #[cfg(target_os = "linux")]
    {
        let boot = boot()?;
        let since = BootClock.now().since_origin();
        // The clock of a container may have been shifted by this offset.
        let since = i64::try_from(since.as_millis()).ok()?.checked_sub(offset_ms())?;
        Some(Moment { boot, ms: since })
    }
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(target_os = "linux")]
fn boot() -> Option<String> {
    let file = Path::new("/proc/sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned()).filter(|boot| !boot.is_empty())
}

#[cfg(target_os = "linux")]
fn offset_ms() -> i64 {
    let text = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("boottime"));
    let numbers: Vec<i64> =
        line.into_iter().flat_map(str::split_whitespace).filter_map(|n| n.parse().ok()).collect();
    match numbers[..] {
        [seconds, nanos] => seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000),
        _ => 0,
    }
}

/// Returns whether `then` is longer ago than `span`; `None` if unknown.
pub(super) fn is_past(then: Option<&Moment>, span: Duration, now: Option<&Moment>) -> Option<bool> {
    let (then, now) = (then?, now?);
    // A container may have an identifier of its own, and the machine that the disk was in may still
    // run.
    if then.boot != now.boot {
        return None;
    }
    let ago = u64::try_from(now.ms.checked_sub(then.ms)?).ok()?;
    Some(Duration::from_millis(ago) > span)
}

/// Returns the kind of a file system that is not known to be local to this machine.
pub(super) fn doubtful_file_system(path: &Path) -> Option<String> {
    #[cfg(target_os = "linux")]
    {
        let Ok(stats) = rustix::fs::statfs(path) else { return Some("an unknown one".to_owned()) };
        #[allow(clippy::useless_conversion, reason = "its type is another on other architectures")]
        let kind = u64::try_from(stats.f_type).unwrap_or_default() & 0xffff_ffff;
        if LOCAL.contains(&kind) {
            return None;
        }
        let known = SHARED.iter().find(|(number, _)| *number == kind);
        Some(known.map_or_else(|| format!("one of type {kind:#x}"), |(_, name)| (*name).to_owned()))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        None
    }
}

/// File systems on a disk, or in the memory, of one machine, by the number that `statfs` returns.
#[cfg(target_os = "linux")]
const LOCAL: &[u64] = &[
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0x2fc1_2fc1, // ZFS
    0xca45_1a4e, // bcachefs
    0xf2f5_2010, // F2FS
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x794c_7630, // overlayfs, whose upper layer cannot be on a network file system
    0x3153_464a, // JFS
    0x5265_4973, // ReiserFS
    0x3434,      // NILFS2
    0x2405_1905, // UBIFS
    0x4d44,      // FAT
    0x2011_bab0, // exFAT
    0x7366_746e, // NTFS
];

/// Some of the others, which several machines may share.
#[cfg(target_os = "linux")]
const SHARED: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0x0102_1997, "9P"),
    (0x6573_5546, "FUSE"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x0bd0_0bd0, "Lustre"),
    (0x1983_0326, "BeeGFS"),
    (0x4750_4653, "GPFS"),
    (0x786f_4256, "a shared folder of VirtualBox"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(boot: &str, ms: i64) -> Moment {
        Moment { boot: boot.to_owned(), ms }
    }

    #[test]
    fn the_clock_and_not_the_boot_id_says_that_a_span_is_past() {
        let lease = Duration::from_secs(5);
        let past = |then: &Moment, now: &Moment| is_past(Some(then), lease, Some(now));
        let then = moment("a", 70_000);
        assert_eq!(past(&then, &moment("a", 75_000)), Some(false));
        assert_eq!(past(&then, &moment("a", 75_001)), Some(true));
        assert_eq!(past(&then, &moment("b", 1_000)), None, "another container's, maybe");
        assert_eq!(past(&then, &moment("b", 75_001)), None);
        assert_eq!(past(&then, &moment("a", 1_000)), None, "which cannot be");
        assert_eq!(is_past(None, lease, Some(&then)), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_system_not_known_to_be_local_is_doubtful() {
        assert_eq!(doubtful_file_system(Path::new("/dev/shm")), None);
        assert_eq!(doubtful_file_system(Path::new("/proc")).as_deref(), Some("one of type 0x9fa0"));
        assert_eq!(doubtful_file_system(Path::new("/missing")).as_deref(), Some("an unknown one"));
    }
}
