//! Whether `/proc/uptime` can be compared with a deadline.

use std::fs;

use incumbent::clock::{BootClock, Clock};

use crate::output;

/// How far apart they may be read.
const APART: f64 = 1.0;

/// Warns where it cannot: lxcfs shows a container how long it has been up itself.
pub fn check() {
    let Some(shown) = fs::read_to_string("/proc/uptime").ok().and_then(|line| seconds(&line))
    else {
        return;
    };
    let real = BootClock.now().since_origin().as_secs_f64();
    if (shown - real).abs() > APART {
        output::note(format!(
            "incumbent: /proc/uptime says {shown:.0}s where CLOCK_BOOTTIME says {real:.0}s, as in a container with lxcfs: \
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
