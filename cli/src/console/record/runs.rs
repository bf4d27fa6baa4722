//! Reads the runs of jobs from the checkpoints of elections.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use incumbent::lock::StoredCheckpoint;
use incumbent::schedule::{RecordedRun, recorded_runs};
use time::OffsetDateTime;
use tokio::time::Instant;

use crate::console::history::{ElectionRun, KnownRun};
use crate::error::{CliError, Code};
use crate::lock::elections::Elections;
use crate::output;
use crate::output::time_format::until;

/// How often the checkpoint of a schedule is read: it has up to 32 runs.
const INTERVAL: Duration = Duration::from_secs(5);
/// The longest pause before an election is looked at again of which the checkpoint cannot be read.
const MAX_FAILING: Duration = Duration::from_secs(60);
/// The longest one if it runs no jobs. Then it is looked at when its leader changes.
const MAX_IDLE: Duration = Duration::from_secs(600);
/// How many checkpoints are read at the same time.
const READS: usize = 8;

type Read = (String, Result<Option<StoredCheckpoint>, CliError>);

/// The reads of a recorder.
pub struct RunReads<'e> {
    elections: &'e Elections,
    states: HashMap<String, ElectionReads>,
    /// The elections that are not being read, by when they are.
    due: BTreeSet<(Instant, String)>,
    reading: FuturesUnordered<BoxFuture<'e, Read>>,
    /// The election of a failure that was noted.
    failing: Option<String>,
}

struct ElectionReads {
    /// When it is read; `None`: it is being read.
    due: Option<Instant>,
    pause: Duration,
    /// What was read last.
    runs: Vec<RecordedRun>,
}

impl<'e> RunReads<'e> {
    /// Reads those of the named elections, and of all that [`look`](Self::look) names.
    ///
    /// # Errors
    /// The lock stores no checkpoints.
    pub fn new(elections: &'e Elections, names: &[String]) -> Result<Self, CliError> {
        if !elections.store_checkpoints() {
            let message = "--runs: this lock stores no checkpoints, and so no runs of jobs";
            return Err(CliError::new(Code::Usage, message));
        }
        let mut reads = Self {
            elections,
            states: HashMap::new(),
            due: BTreeSet::new(),
            reading: FuturesUnordered::new(),
            failing: None,
        };
        names.iter().for_each(|name| reads.look(name));
        Ok(reads)
    }

    /// Reads the runs of an election soon.
    pub fn look(&mut self, election: &str) {
        let now = Instant::now();
        if let Some(state) = self.states.get_mut(election) {
            state.pause = INTERVAL;
            let Some(due) = state.due.replace(now) else {
                state.due = None; // it is being read, and again after the pause
                return;
            };
            self.due.remove(&(due, election.to_owned()));
        } else {
            let state = ElectionReads { due: Some(now), pause: INTERVAL, runs: Vec::new() };
            self.states.insert(election.to_owned(), state);
        }
        self.due.insert((now, election.to_owned()));
    }

    /// What was learned of the runs of an election.
    ///
    /// # Cancel safety
    /// Reads continue with the next call.
    pub async fn next(&mut self) -> Vec<ElectionRun> {
        loop {
            self.start_due();
            let has_room = self.reading.len() < READS;
            let next = self.due.first().map(|(due, _)| *due).filter(|_| has_room);
            tokio::select! {
                Some(read) = self.reading.next() => return self.take(read),
                () = until(next) => {}
            }
        }
    }

    fn start_due(&mut self) {
        while self.reading.len() < READS
            && self.due.first().is_some_and(|(due, _)| *due <= Instant::now())
        {
            let Some((_, name)) = self.due.pop_first() else { return };
            if let Some(state) = self.states.get_mut(&name) {
                state.due = None;
            }
            let elections = self.elections;
            self.reading.push(Box::pin(async move {
                let read = elections.read_checkpoint(&name).await;
                (name, read)
            }));
        }
    }

    fn take(&mut self, (election, read): Read) -> Vec<ElectionRun> {
        self.note(&election, read.as_ref().err());
        let Some(state) = self.states.get_mut(&election) else { return Vec::new() };
        let twice = state.pause.saturating_mul(2);
        let mut learned = Vec::new();
        match read.map(|stored| stored.as_ref().and_then(recorded_runs)) {
            Ok(Some(runs)) => {
                state.pause = INTERVAL;
                let known = std::mem::replace(&mut state.runs, runs);
                learned.extend(state.runs.iter().filter(|run| !known.contains(run)).cloned());
            }
            Ok(None) if state.pause >= MAX_IDLE => {
                self.states.remove(&election);
                return Vec::new();
            }
            Ok(None) => state.pause = twice.min(MAX_IDLE),
            Err(_) => state.pause = twice.min(MAX_FAILING),
        }
        let due = Instant::now() + state.pause;
        state.due = Some(due);
        self.due.insert((due, election.clone()));
        let now = OffsetDateTime::now_utc();
        let run = |run| ElectionRun { election: election.clone(), run: KnownRun::read(run, now) };
        learned.into_iter().map(run).collect()
    }

    /// Notes the first failure, and that it has passed.
    fn note(&mut self, election: &str, failure: Option<&CliError>) {
        match (failure, &self.failing) {
            (Some(failure), None) => {
                output::note(format!("the runs of {election} cannot be read: {failure}"));
                self.failing = Some(election.to_owned());
            }
            (None, Some(failing)) if failing == election => {
                output::note(format!("the runs of {election} are read again"));
                self.failing = None;
            }
            _ => {}
        }
    }
}
