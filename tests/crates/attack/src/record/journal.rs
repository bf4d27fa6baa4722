//! The journal that all processes of a run write to: one line of JSON an event, appended by one
//! write each.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use incumbent::clock::{BootClock, Clock, Instant};
use serde::{Deserialize, Serialize};

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// When: `CLOCK_BOOTTIME` in nanoseconds.
    pub t: u64,
    pub who: String,
    /// The number of this process among those of its name: process ids are used again.
    pub life: u32,
    /// Empty where the event is of the process, not of an election.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub election: String,
    #[serde(flatten)]
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A process takes part in an election: with this library, or else as Choria's do.
    Started { ours: bool },
    /// It got the callback that it leads.
    Won { token: u64 },
    /// At this instant its work was allowed. The instant is read *before* the check.
    Work { token: u64 },
    /// At this instant it reported that it leads, to a check outside of its work. The instant is
    /// read before.
    Claim { token: u64 },
    /// The fenced store answered a write. `leads`: the writer led after the answer, at the instant
    /// of this line.
    Fenced { token: u64, accepted: bool, greatest: u64, leads: bool },
    /// It got the callback that its term is over. `cause` is a word, `why` a sentence.
    Lost {
        token: u64,
        cause: String,
        #[serde(default)]
        why: String,
    },
    /// What the process takes up now.
    Cost(Cost),
    /// It stopped in order.
    Stopped,
    /// The harness killed it.
    Killed,
    /// The harness begins a fault.
    Begin { fault: String },
    /// There is a leader again, and the fault is over.
    End,
}

/// What one process, or all together, take up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    pub tasks: u64,
    pub fds: u64,
    /// Allocated and not freed.
    pub heap_kib: u64,
    /// Resident.
    pub rss_kib: u64,
}

/// The end of the journal that writes, for one process and one of its elections.
#[derive(Debug, Clone)]
pub struct Writer {
    file: Arc<File>,
    who: Arc<str>,
    life: u32,
    election: Arc<str>,
}

impl Writer {
    pub fn open(path: &Path, who: &str, life: u32) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file: Arc::new(file), who: who.into(), life, election: "".into() })
    }

    pub fn of_election(&self, election: &str) -> Self {
        Self { election: election.into(), ..self.clone() }
    }

    /// Appends an event that happens now.
    pub fn write(&self, event: Event) {
        self.write_at(now(), event);
    }

    /// Appends an event that happened at `t`.
    pub fn write_at(&self, t: u64, event: Event) {
        self.append(&Line {
            t,
            who: self.who.to_string(),
            life: self.life,
            election: self.election.to_string(),
            event,
        });
    }

    /// Appends that the harness killed a process.
    pub fn write_killed(&self, who: &str, life: u32) {
        let (who, election) = (who.to_owned(), String::new());
        self.append(&Line { t: now(), who, life, election, event: Event::Killed });
    }

    fn append(&self, line: &Line) {
        let mut text = serde_json::to_string(line).expect("a line of plain values");
        text.push('\n');
        let mut file = &*self.file;
        let written = file.write(text.as_bytes()).expect("a journal that can be written");
        assert_eq!(written, text.len(), "a line of the journal in one piece");
    }
}

/// The time now, as the journal counts it.
pub fn now() -> u64 {
    nanos(BootClock.now())
}

pub fn nanos(instant: Instant) -> u64 {
    u64::try_from(instant.since_origin().as_nanos()).unwrap_or(u64::MAX)
}

/// The end of the journal that reads, following it.
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
