//! When a process started: with its id, this is unique until the next boot.

use std::fs;

/// When the process started, in clock ticks since the boot; this process, if `pid` is `None`.
///
/// `None` if there is no such process, or where the system does not show it.
pub fn start_time(pid: Option<i32>) -> Option<u64> {
    let pid = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The fields follow the name, which is in parentheses and may contain any character.
fn parse(stat: &[u8]) -> Option<u64> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_follows_any_name() {
        let stat = b"7 (a) b (c) S 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        assert_eq!(parse(stat), Some(4711));
        assert_eq!(parse(b"7 (a"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_one_start_time() {
        let pid = i32::try_from(std::process::id()).ok();
        assert!(start_time(None).is_some());
        assert_eq!(start_time(None), start_time(pid));
    }
}
