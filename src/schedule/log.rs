//! The latest runs of all jobs of an election, as its checkpoint holds them: for those who look.
//! Which slot runs next is decided by the records of the jobs alone.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::job::Slot;
use crate::lock::Token;
use crate::time::timing::whole_millis;

/// The most runs that are kept.
const MAX_RUNS: usize = 32;

/// A run of a job, as the checkpoint of an election has it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedRun {
    /// Counts the runs of the election. A number that is missing is that of a run that is not
    /// there any more.
    pub number: u64,
    /// The job.
    pub job: String,
    /// The slot.
    pub slot: Slot,
    /// The term in which it ran.
    pub token: Token,
    /// What is known of its end.
    pub state: RunState,
}

/// What is known of the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunState {
    /// It has begun, and its term may continue.
    Begun,
    /// It ended.
    Ended {
        /// The exit code; zero if the run succeeded.
        code: u8,
        /// How long it ran.
        took: Duration,
    },
    /// The end of its term cut it short.
    CutShort {
        /// How long it ran; `None` if its host did not record it: nothing is recorded for that
        /// alone.
        took: Option<Duration>,
    },
}

/// The runs, and how many there ever were.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLog {
    count: u64,
    runs: Vec<Run>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    #[serde(rename = "n")]
    number: u64,
    job: String,
    slot: i64,
    token: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<u8>,
    /// `None` until it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ms: Option<u64>,
}

impl RunLog {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The runs, by the token of the term that wrote them.
    pub fn runs(&self, writer: Token) -> Vec<RecordedRun> {
        let run = |run: &Run| RecordedRun {
            number: run.number,
            job: run.job.clone(),
            slot: Slot(run.slot),
            token: Token(run.token),
            state: match (run.code, run.ms.map(Duration::from_millis)) {
                (Some(code), took) => RunState::Ended { code, took: took.unwrap_or_default() },
                (None, None) if run.token == writer.0 => RunState::Begun,
                (None, took) => RunState::CutShort { took },
            },
        };
        self.runs.iter().map(run).collect()
    }

    /// A run begins. If its slot was cut short in this term, returns after how many milliseconds.
    pub fn begin(&mut self, job: &str, slot: Slot, token: Token) -> Option<u64> {
        if let Some(run) = self.find(job, slot, token) {
            run.code = None;
            return run.ms.take();
        }
        while self.runs.len() >= MAX_RUNS {
            self.shorten();
        }
        self.count = self.count.saturating_add(1);
        let (number, job) = (self.count, job.to_owned());
        self.runs.push(Run { number, job, slot: slot.0, token: token.0, code: None, ms: None });
        None
    }

    /// Takes the beginning of a run back that did not begin. `before` is what that returned.
    pub fn take_back(&mut self, job: &str, slot: Slot, token: Token, before: Option<u64>) {
        let Some(index) = self.position(job, slot, token) else { return };
        if let (Some(_), Some(run)) = (before, self.runs.get_mut(index)) {
            run.ms = before;
            return;
        }
        // The next run has the number of the last one: none is missing.
        if self.runs.remove(index).number == self.count {
            self.count = self.count.saturating_sub(1);
        }
    }

    /// A run ended, with this exit code or cut short.
    pub fn end(&mut self, job: &str, slot: Slot, token: Token, code: Option<u8>, took: Duration) {
        if let Some(run) = self.find(job, slot, token) {
            (run.code, run.ms) = (code, Some(whole_millis(took)));
        }
    }

    fn find(&mut self, job: &str, slot: Slot, token: Token) -> Option<&mut Run> {
        let index = self.position(job, slot, token)?;
        self.runs.get_mut(index)
    }

    fn position(&self, job: &str, slot: Slot, token: Token) -> Option<usize> {
        let is_it = |run: &Run| run.job == job && run.slot == slot.0 && run.token == token.0;
        self.runs.iter().rposition(is_it)
    }

    /// Leaves out the oldest run: one that has ended, if there is one. Returns whether it left out
    /// anything, in the end the count.
    pub fn shorten(&mut self) -> bool {
        if self.runs.is_empty() {
            return std::mem::take(&mut self.count) > 0;
        }
        let ended = self.runs.iter().position(|run| run.ms.is_some());
        self.runs.remove(ended.unwrap_or(0));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Token = Token(7);

    fn states(log: &RunLog, writer: u64) -> Vec<(u64, i64, RunState)> {
        let runs = log.runs(Token(writer)).into_iter();
        runs.map(|run| (run.number, run.slot.0, run.state)).collect()
    }

    #[test]
    fn run_without_an_end_is_cut_short_once_its_term_is_over() {
        let (mut log, second) = (RunLog::default(), Duration::from_secs(1));
        for slot in 1..=4 {
            log.begin("a", Slot(slot), TOKEN);
        }
        log.end("a", Slot(1), TOKEN, Some(3), second);
        log.end("a", Slot(2), TOKEN, None, second);
        log.end("a", Slot(3), TOKEN, None, second);
        log.begin("a", Slot(3), TOKEN); // again
        let ended = RunState::Ended { code: 3, took: second };
        let mut expected = vec![
            (1, 1, ended),
            (2, 2, RunState::CutShort { took: Some(second) }),
            (3, 3, RunState::Begun),
            (4, 4, RunState::Begun),
        ];
        assert_eq!(states(&log, 7), expected);
        expected[2].2 = RunState::CutShort { took: None };
        expected[3].2 = RunState::CutShort { took: None };
        assert_eq!(states(&log, 8), expected);
    }

    #[test]
    fn run_that_did_not_begin_leaves_nothing() {
        let (mut log, second) = (RunLog::default(), Duration::from_secs(1));
        log.begin("a", Slot(1), TOKEN);
        log.end("a", Slot(1), TOKEN, None, second);
        log.begin("b", Slot(1), TOKEN);
        let before = log.clone();
        // Last one first.
        let again = log.begin("a", Slot(1), TOKEN);
        let new = [2, 3].map(|slot| log.begin("b", Slot(slot), TOKEN));
        log.take_back("b", Slot(3), TOKEN, new[1]);
        log.take_back("b", Slot(2), TOKEN, new[0]);
        log.take_back("a", Slot(1), TOKEN, again);
        assert_eq!(log, before);
        // The number of one that others follow is missing.
        log.begin("a", Slot(2), TOKEN);
        log.begin("b", Slot(2), TOKEN);
        log.take_back("a", Slot(2), TOKEN, None);
        let numbers: Vec<_> = states(&log, 7).iter().map(|run| run.0).collect();
        assert_eq!(numbers, [1, 2, 4]);
    }

    #[test]
    fn oldest_runs_that_ended_are_left_out_first() {
        let mut log = RunLog::default();
        for slot in 0..100 {
            log.begin("a", Slot(slot), TOKEN);
            if slot > 0 {
                log.end("a", Slot(slot), TOKEN, Some(0), Duration::ZERO);
            }
        }
        let numbers: Vec<_> = states(&log, 7).iter().map(|run| run.0).collect();
        let latest = (101 - (MAX_RUNS as u64 - 1))..=100;
        assert_eq!(numbers, std::iter::once(1).chain(latest).collect::<Vec<_>>());
    }
}
