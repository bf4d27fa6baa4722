//! Which start of which machine this is, and how long ago it was: what every process of it agrees on.

use std::path::Path;
use std::time::Duration;

#[cfg(target_os = "linux")]
use crate::clock::{BootClock, Clock};

/// An instant that the processes of one machine can compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Moment {
    pub boot: String,
    pub ms: i64,
}

/// Now; `None` where the system tells nothing that processes share. It runs through suspension, no setting of a wall clock moves
/// it, and another start of the machine has another name.
pub(super) fn now() -> Option<Moment> {
    #[cfg(target_os = "linux")]
    {
        let boot = boot()?;
        let since = BootClock.now().since_origin();
        // A container may have been given a clock that is off by this.
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

/// Whether what was written at `then` is longer ago than `span`; `None` if that cannot be told. What an earlier start of the
/// machine wrote has ended with it, `alone` meaning that no other machine writes here.
pub(super) fn is_past(
    then: Option<&Moment>,
    span: Duration,
    now: Option<&Moment>,
    alone: bool,
) -> Option<bool> {
    let (then, now) = (then?, now?);
    if then.boot != now.boot {
        return alone.then_some(true);
    }
    let ago = u64::try_from(now.ms.checked_sub(then.ms)?).ok()?;
    Some(Duration::from_millis(ago) > span)
}

/// The name of a file system that other machines may write to as well.
pub(super) fn shared_file_system(path: &Path) -> Option<&'static str> {
    #[cfg(target_os = "linux")]
    {
        #[allow(clippy::useless_conversion, reason = "its type is another on other architectures")]
        let kind = u64::try_from(rustix::fs::statfs(path).ok()?.f_type).ok()? & 0xffff_ffff;
        Some(match kind {
            0x6969 => "NFS",
            0x517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB",
            0x0102_1997 => "9P",
            0x6573_5546 => "FUSE",
            0x00c3_6400 => "Ceph",
            0x5346_414f => "AFS",
            0x0116_1970 => "GFS2",
            0x7461_636f => "OCFS2",
            0x0bd0_0bd0 => "Lustre",
            0x1983_0326 => "BeeGFS",
            _ => return None,
        })
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(boot: &str, ms: i64) -> Moment {
        Moment { boot: boot.to_owned(), ms }
    }

    #[test]
    fn a_span_is_past_by_the_clock_of_the_machine_and_by_its_next_start() {
        let lease = Duration::from_secs(5);
        let past =
            |then: &Moment, now: &Moment, alone| is_past(Some(then), lease, Some(now), alone);
        let then = moment("a", 70_000);
        assert_eq!(past(&then, &moment("a", 75_000), true), Some(false));
        assert_eq!(past(&then, &moment("a", 75_001), true), Some(true));
        // Right after a start the clock says less than before it.
        assert_eq!(past(&then, &moment("b", 1_000), true), Some(true));
        assert_eq!(past(&then, &moment("b", 71_000), true), Some(true));
        assert_eq!(past(&then, &moment("b", 1_000), false), None, "another machine's, maybe");
        assert_eq!(past(&then, &moment("a", 1_000), true), None, "which cannot be");
        assert_eq!(is_past(None, lease, Some(&then), true), None);
    }
}
