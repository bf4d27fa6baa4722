//! The lines in which members write down what they do: one file for all of them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How often a leader works.
pub const TICK: Duration = Duration::from_millis(20);

/// CLOCK_MONOTONIC, which all processes of a machine share.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// A line of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    /// The member led the shard at this time.
    Tick { ns: u64, shard: usize, token: u64, member: &'a str },
    /// The member's term is over, and its work has stopped.
    Lost { shard: usize, cause: &'a str },
}

impl<'a> Line<'a> {
    /// Reads a line; `None` if it is none.
    pub fn read(line: &'a str) -> Option<Self> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        match (kind, words.next()?, words.next()?, words.next(), words.next()) {
            ("T", ns, shard, Some(token), Some(member)) => Some(Self::Tick {
                ns: ns.parse().ok()?,
                shard: shard.parse().ok()?,
                token: token.parse().ok()?,
                member,
            }),
            ("L", shard, cause, None, None) => {
                Some(Self::Lost { shard: shard.parse().ok()?, cause })
            }
            _ => None,
        }
    }
}

/// The file, as a member writes it. What it holds survives the kill of its writer.
#[derive(Debug)]
pub struct TickLog {
    file: File,
    member: String,
}

impl TickLog {
    /// Appends to a file.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn open(path: &Path, member: &str) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Self { file, member: member.to_owned() })
    }

    /// Writes that the member works on a shard, if it leads it. The time is read first: a process
    /// that is paused after the check writes the line late, and states a time at which it led.
    pub fn tick(&self, shard: u32, token: u64, leads: impl FnOnce() -> bool) {
        let ns = monotonic_ns();
        if leads() {
            self.write(&format!("T {ns} {shard} {token} {}\n", self.member));
        }
    }

    /// Writes that a term is over.
    pub fn lost(&self, shard: u32, cause: &str) {
        self.write(&format!("L {shard} {cause}\n"));
    }

    /// One write per line: those of several processes do not mix.
    fn write(&self, line: &str) {
        if let Err(error) = (&self.file).write_all(line.as_bytes()) {
            eprintln!("FAULT: {}: cannot write a line: {error}", self.member);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ticks");
        let log = TickLog::open(&path, "m1").unwrap();
        log.tick(3, 7, || true);
        log.tick(3, 7, || false);
        log.lost(3, "handed_over");
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<_> = text.lines().map(Line::read).collect();
        assert!(matches!(
            lines[..],
            [
                Some(Line::Tick { shard: 3, token: 7, member: "m1", .. }),
                Some(Line::Lost { shard: 3, cause: "handed_over" }),
            ]
        ));
        assert_eq!(Line::read("T 1 2"), None);
    }
}
