//! The histories of a run: every process of ours writes down what its protocol took in and
//! returned, and after the run the protocol must return the same once more.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use incumbent::history::{Replay, ReplayError};
use incumbent::protocol::Action;

use crate::record::journal::nanos;

/// The most bytes that a process writes.
const MAX_BYTES: usize = 64 << 20;
/// The last line of a history that would have become longer.
const CUT: &str = "\"cut\"";

/// Where a process writes its history: beside the journal of the run.
pub fn path(journal: &Path, who: &str, life: u32) -> PathBuf {
    journal.with_file_name(format!("history-{who}-{life}"))
}

/// Creates the history of this process. What is returned appends a line by one write each.
pub fn writer(journal: &Path, who: &str, life: u32) -> io::Result<impl FnMut(&str) + Send + use<>> {
    let path = path(journal, who, life);
    Ok(lines_into(OpenOptions::new().append(true).create_new(true).open(path)?, MAX_BYTES))
}

/// Appends lines to a file, as long as they are not more than `max` bytes.
pub fn lines_into(mut file: File, max: usize) -> impl FnMut(&str) + Send + use<> {
    let mut left = Some(max);
    move |line: &str| {
        let Some(room) = left else { return };
        left = room.checked_sub(line.len() + 1);
        let line = if left.is_some() { line } else { CUT };
        file.write_all(format!("{line}\n").as_bytes()).expect("a history that can be written");
    }
}

/// What the replay of a history came to.
#[derive(Debug, Default)]
pub struct Replayed {
    /// The election.
    pub election: String,
    /// Events that the protocol took in.
    pub events: u64,
    /// Actions that it returned, the same as recorded.
    pub actions: u64,
    /// The terms that began: the token, and the last deadline in nanoseconds.
    pub terms: Vec<(u64, u64)>,
    /// How it ends.
    pub end: End,
}

/// How a history ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum End {
    /// With the end of the campaign.
    Finished,
    /// While the campaign continued.
    #[default]
    Open,
    /// In the middle of a line.
    Torn,
    /// Where it became too long.
    Cut,
}

/// Why a history was not replayed to its end.
#[derive(Debug)]
pub struct Difference {
    /// The line, counted from 1.
    pub line: u64,
    /// The instant of the line, or of the one before, in nanoseconds.
    pub t: u64,
    /// What is wrong.
    pub error: ReplayError,
}

/// Replays the history in a file.
pub fn replay_file(path: &Path) -> io::Result<Result<Replayed, Difference>> {
    // A line may be torn between two bytes of a character.
    Ok(replay(&String::from_utf8_lossy(&fs::read(path)?)))
}

/// Replays a history.
pub fn replay(text: &str) -> Result<Replayed, Difference> {
    let mut replayed = Replayed::default();
    let mut replay = None;
    for (line, number) in text.split_inclusive('\n').zip(1..) {
        let Some(line) = line.strip_suffix('\n') else {
            replayed.end = End::Torn;
            break;
        };
        if line == CUT {
            replayed.end = End::Cut;
            break;
        }
        let Some(playing) = &mut replay else {
            let made =
                Replay::new(line).map_err(|error| Difference { line: number, t: 0, error })?;
            replayed.election = made.election().to_owned();
            replay = Some(made);
            continue;
        };
        let stepped = playing.step(line);
        let t = nanos(playing.now());
        let actions = stepped.map_err(|error| Difference { line: number, t, error })?;
        replayed.events += 1;
        for (_, action) in actions {
            replayed.take(&action);
        }
    }
    Ok(replayed)
}

impl Replayed {
    fn take(&mut self, action: &Action) {
        self.actions += 1;
        match action {
            Action::Begin { token, deadline } => self.terms.push((token.0, nanos(*deadline))),
            Action::Extend { deadline } => {
                if let Some((_, end)) = self.terms.last_mut() {
                    *end = nanos(*deadline);
                }
            }
            Action::Finished => self.end = End::Finished,
            _ => {}
        }
    }
}
