//! Sets of signals of a process, in its `status` file.

use rustix::process::Signal;

/// Whether the signal is in the set of this field of a `status` file.
pub fn is_in(status: &str, field: &str, signal: Signal) -> bool {
    let set = status.lines().find_map(|line| line.strip_prefix(field));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    set >> (signal.as_raw() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_signals_are_read() {
        let status = "Name:\tx\nSigIgn:\t0000000000000001\nSigCgt:\t0000000000000a00\n";
        assert!(is_in(status, "SigIgn:", Signal::HUP));
        assert!(is_in(status, "SigCgt:", Signal::USR1) && is_in(status, "SigCgt:", Signal::USR2));
        assert!(!is_in(status, "SigCgt:", Signal::TERM) && !is_in("", "SigIgn:", Signal::HUP));
    }
}
