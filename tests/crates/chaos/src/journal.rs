//! The log that all processes of a run write to: one line of JSON an event, appended by one write
//! each.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use incumbent::clock::{BootClock, Clock};
use serde::{Deserialize, Serialize};

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// When: `CLOCK_BOOTTIME` in nanoseconds.
    pub t: u64,
    /// Whose.
    pub who: String,
    /// Which process of that name: its process id.
    pub life: u32,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A process takes part in an election.
    Started {
        /// The election.
        election: String,
        /// Whether it is one of ours: else it behaves as Choria's do.
        ours: bool,
    },
    /// It got the callback that it leads.
    Won {
        /// Of which term.
        token: u64,
    },
    /// At this instant its work had the right to go on. The instant is read *before* the right is
    /// looked at.
    Work {
        /// Of which term.
        token: u64,
    },
    /// At this instant it reported that it leads, to a check outside of its work. The instant is
    /// read before.
    Claim {
        /// Of which term.
        token: u64,
    },
    /// The fenced store answered a write.
    Fenced {
        /// Of which term.
        token: u64,
        /// Whether it was taken.
        accepted: bool,
        /// The greatest token that the store has seen.
        greatest: u64,
        /// Whether the writer had the right to lead after the answer, at the instant of this line.
        leads: bool,
    },
    /// It got the callback that its term is over.
    Lost {
        /// Of which term.
        token: u64,
        /// Why, in a word.
        cause: String,
        /// Why, in a sentence.
        #[serde(default)]
        why: String,
    },
    /// It stopped in order.
    Stopped,
    /// The harness killed it.
    Killed,
    /// The harness begins a fault.
    Begin {
        /// Which.
        fault: String,
    },
    /// The harness has healed the fault.
    Healed,
    /// There is a leader again, and the fault is over.
    End,
}

/// The end of the log that writes.
#[derive(Debug, Clone)]
pub struct Writer {
    file: Arc<File>,
    who: Arc<str>,
    life: u32,
}

impl Writer {
    /// Opens the log for the process that is the `life`th of its name. Process ids are used again.
    ///
    /// # Errors
    ///
    /// Those of opening the file.
    pub fn open(path: &Path, who: &str, life: u32) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file: Arc::new(file), who: who.into(), life })
    }

    /// Appends an event that happens now.
    pub fn write(&self, event: Event) {
        self.write_at(now(), event);
    }

    /// Appends an event that happened at `t`.
    pub fn write_at(&self, t: u64, event: Event) {
        self.write_of(t, &self.who, self.life, event);
    }

    /// Appends an event of another process.
    ///
    /// # Panics
    ///
    /// Where the log cannot be written: then nothing that is seen counts.
    pub fn write_of(&self, t: u64, who: &str, life: u32, event: Event) {
        let line = Line { t, who: who.to_owned(), life, event };
        let mut text = serde_json::to_string(&line).expect("a line of plain values");
        text.push('\n');
        let mut file = &*self.file;
        let written = file.write(text.as_bytes()).expect("a log that can be written");
        assert_eq!(written, text.len(), "a line of the log in one piece");
    }
}

/// The time now, as the log counts it.
pub fn now() -> u64 {
    u64::try_from(BootClock.now().since_origin().as_nanos()).unwrap_or(u64::MAX)
}

/// The end of the log that reads, following it.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    read: u64,
    partial: Vec<u8>,
}

impl Tail {
    /// From the beginning of a file that may not be there yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), read: 0, partial: Vec::new() }
    }

    /// The lines that were completed since the last call.
    ///
    /// # Errors
    ///
    /// Those of reading, and lines that are none of the log's.
    pub fn lines(&mut self) -> io::Result<Vec<Line>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(self.read))?;
        self.read += u64::try_from(file.read_to_end(&mut self.partial)?).unwrap_or(0);
        let Some(end) = self.partial.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Vec::new());
        };
        let rest = self.partial.split_off(end + 1);
        let complete = std::mem::replace(&mut self.partial, rest);
        let lines = complete.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).map_err(io::Error::from)).collect()
    }
}
