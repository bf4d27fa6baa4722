//! What this process uses, how close its elections are to their deadlines, and rows of figures.

#![allow(dead_code, reason = "each bench uses some of it")]

use std::io::Write;
use std::time::Duration;

use incumbent::Election;
use incumbent::clock::{BootClock, Clock};

/// A variable of the environment.
pub fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

pub fn resident_kib() -> usize {
    resident_kib_of("self")
}

/// That of a process.
pub fn resident_kib_of(process: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

/// User and system time of this process, in hundredths of a second.
pub fn cpu_ticks() -> u64 {
    cpu_ticks_of("self")
}

/// Those of a process.
pub fn cpu_ticks_of(process: &str) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("Linux");
    let fields: Vec<_> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime")
}

/// The least time to a deadline in `span`; zero if one of them did not lead.
pub async fn least_left(elections: &[Election], span: Duration) -> Duration {
    let mut least = Duration::MAX;
    let end = BootClock.now() + span;
    while BootClock.now() < end {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let now = BootClock.now();
        let left = |election: &Election| {
            election.deadline().map_or(Duration::ZERO, |at| at.saturating_since(now))
        };
        least = elections.iter().map(left).min().unwrap_or_default().min(least);
    }
    least
}

/// Appends a row to the file that `CSV` names.
pub fn append_row(cells: &[String]) {
    if let Ok(file) = std::env::var("CSV") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(file);
        writeln!(file.expect("a file"), "{}", cells.join(",")).expect("room for a row");
    }
}
