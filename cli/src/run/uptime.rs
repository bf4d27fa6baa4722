//! Whether `/proc/uptime` can be compared with a deadline.

use std::fs;

use incumbent::clock::{BootClock, Clock};

use crate::output;

/// The tolerance between both reads, in seconds.
const APART: f64 = 1.0;

/// Warns if it cannot: lxcfs shows the uptime of the container.
pub fn check() {
    let Some(shown) = fs::read_to_string("/proc/uptime").ok().and_then(|line| seconds(&line))
    else {
        return;
    };
    let real = BootClock.now().since_origin().as_secs_f64();
    if (shown - real).abs() > APART {
        output::note(format!(
            "incumbent: /proc/uptime is {shown:.0}s, CLOCK_BOOTTIME is {real:.0}s, as in a container with lxcfs: \
             COMMAND must compare its deadline with clock_gettime(CLOCK_BOOTTIME)"
        ));
    }
}

fn seconds(line: &str) -> Option<f64> {
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_is_read() {
        assert_eq!(seconds("12.34 5.6\n"), Some(12.34));
        assert_eq!(seconds(""), None);
    }
}
