//! The runs of the jobs of an election: what `election history --runs` shows.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use incumbent::Token;
use incumbent::schedule::{RecordedRun, RunState};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::output::time_format::{millis, rfc3339, span};

/// What is known of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownRun {
    /// Counts the runs of the election.
    pub number: u64,
    pub job: String,
    pub slot: OffsetDateTime,
    pub token: Token,
    /// `None`: it has ended, and nobody saw how.
    pub state: Option<RunState>,
    /// When that was learned.
    pub learned: OffsetDateTime,
    /// Who led in its term.
    pub leader: Option<String>,
}

/// A line of the history of runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunLine {
    Run(KnownRun),
    /// How many runs nobody recorded; `None` if it is not known.
    Unknown(Option<u64>),
}

/// The runs of an election.
#[derive(Debug)]
pub struct RunHistory {
    election: String,
    lines: Vec<RunLine>,
}

/// The runs of one job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobStatistics {
    pub succeeded: u64,
    pub failed: u64,
    pub cut_short: u64,
    /// Those of which the end is not known, and one that has not ended.
    pub others: u64,
    pub longest: Option<Duration>,
}

impl KnownRun {
    /// What the checkpoint of an election says of a run, at a time.
    pub fn read(run: RecordedRun, learned: OffsetDateTime) -> Self {
        let slot = OffsetDateTime::from_unix_timestamp(run.slot.unix_seconds());
        Self {
            number: run.number,
            job: run.job,
            slot: slot.unwrap_or(OffsetDateTime::UNIX_EPOCH), // never: it is of a calendar
            token: run.token,
            state: Some(run.state),
            learned,
            leader: None,
        }
    }

    /// Its state in a word, its exit code, and how long it ran.
    pub fn end(&self) -> (&'static str, Option<u8>, Option<Duration>) {
        match self.state {
            Some(RunState::Begun) => ("begun", None, None),
            Some(RunState::Ended { code, took }) => ("ended", Some(code), Some(took)),
            Some(RunState::CutShort { took }) => ("cut_short", None, took),
            _ => ("unknown", None, None),
        }
    }
}

impl JobStatistics {
    fn count(&mut self, run: &KnownRun) {
        let (_, code, took) = run.end();
        let count = match (run.state, code) {
            (Some(RunState::CutShort { .. }), _) => &mut self.cut_short,
            (_, Some(0)) => &mut self.succeeded,
            (_, Some(_)) => &mut self.failed,
            (_, None) => &mut self.others,
        };
        *count += 1;
        self.longest = self.longest.max(took);
    }
}

impl RunHistory {
    /// The runs in the order in which they began, of slots since a time.
    pub fn new(election: &str, mut runs: Vec<KnownRun>, since: Option<OffsetDateTime>) -> Self {
        // Runs of a job do not overlap, nor do terms: what a later one follows has ended.
        let (mut jobs, last_token) = (HashSet::new(), runs.last().map(|last| last.token));
        for run in runs.iter_mut().rev() {
            let is_last = jobs.insert(run.job.clone()) && last_token == Some(run.token);
            run.state = run.state.filter(|state| is_last || *state != RunState::Begun);
        }
        let (mut lines, mut last) = (Vec::new(), None);
        for run in runs {
            let between = last.replace(run.number).map(|last| run.number.checked_sub(last));
            if since.is_some_and(|since| run.slot < since) {
                continue;
            }
            match between {
                None | Some(Some(1)) => {}
                Some(Some(more @ 2..)) => lines.push(RunLine::Unknown(Some(more - 1))),
                // The numbers begin again, as when the checkpoint is deleted.
                Some(None | Some(_)) => lines.push(RunLine::Unknown(None)),
            }
            lines.push(RunLine::Run(run));
        }
        Self { election: election.to_owned(), lines }
    }

    pub fn lines(&self) -> &[RunLine] {
        &self.lines
    }

    fn runs(&self) -> impl DoubleEndedIterator<Item = &KnownRun> {
        self.lines.iter().filter_map(|line| match line {
            RunLine::Run(run) => Some(run),
            RunLine::Unknown(_) => None,
        })
    }

    /// Of the runs, by job.
    pub fn statistics(&self) -> BTreeMap<&str, JobStatistics> {
        let mut jobs = BTreeMap::<_, JobStatistics>::new();
        self.runs().for_each(|run| jobs.entry(&*run.job).or_default().count(run));
        jobs
    }

    /// How the runs ended, and the last one, in a line; `None` without runs.
    pub fn summary(&self) -> Option<String> {
        let last = self.runs().next_back()?;
        let mut all = JobStatistics::default();
        self.runs().for_each(|run| all.count(run));
        let (state, code, took) = last.end();
        let code = code.map(|code| format!(" with code {code}")).unwrap_or_default();
        let took = took.map(|took| format!(" after {}", span(took))).unwrap_or_default();
        Some(format!(
            "{} succeeded, {} failed, {} cut short; last {} {}, {}{code}{took}",
            all.succeeded,
            all.failed,
            all.cut_short,
            last.job,
            rfc3339(last.slot),
            state.replace('_', " "),
        ))
    }

    pub fn json(&self) -> Value {
        let lines: Vec<_> = self.lines.iter().map(line_json).collect();
        let jobs: Vec<_> = self.statistics().into_iter().map(job_json).collect();
        json!({ "election": self.election, "runs": lines, "jobs": jobs })
    }
}

fn line_json(line: &RunLine) -> Value {
    match line {
        RunLine::Run(run) => {
            let (state, code, took) = run.end();
            json!({
                "kind": "run",
                "job": run.job,
                "slot": rfc3339(run.slot),
                "state": state,
                "exit_code": code,
                "duration_ms": took.map(millis),
                "leader": run.leader,
                "token": run.token.0,
                "learned": rfc3339(run.learned),
            })
        }
        RunLine::Unknown(count) => json!({ "kind": "unknown", "count": count }),
    }
}

fn job_json((job, of): (&str, JobStatistics)) -> Value {
    json!({
        "job": job,
        "succeeded": of.succeeded,
        "failed": of.failed,
        "cut_short": of.cut_short,
        "others": of.others,
        "longest_ms": of.longest.map(millis),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(number: u64, job: &str, token: u64, state: RunState) -> KnownRun {
        KnownRun {
            number,
            job: job.to_owned(),
            slot: OffsetDateTime::UNIX_EPOCH,
            token: Token(token),
            state: Some(state),
            learned: OffsetDateTime::UNIX_EPOCH,
            leader: None,
        }
    }

    fn words(history: &RunHistory) -> Vec<String> {
        let words = |line: &RunLine| match line {
            RunLine::Run(run) => format!("{} {}", run.job, run.end().0),
            RunLine::Unknown(count) => format!("{count:?}"),
        };
        history.lines().iter().map(words).collect()
    }

    #[test]
    fn run_that_a_later_one_follows_has_ended_unseen() {
        use RunState::Begun;
        let runs = [("a", 1), ("a", 2), ("b", 2), ("a", 2)];
        let runs = runs.into_iter().zip(1..).map(|((job, token), n)| run(n, job, token, Begun));
        let history = RunHistory::new("e", runs.collect(), None);
        assert_eq!(words(&history), ["a unknown", "a unknown", "b begun", "a begun"]);
        assert_eq!(history.statistics()["a"].others, 3);
    }

    #[test]
    fn missing_numbers_are_runs_that_nobody_recorded() {
        let ended = RunState::Ended { code: 0, took: Duration::from_secs(1) };
        let runs = [5, 6, 10, 1, 1].map(|number| run(number, "a", 1, ended));
        let history = RunHistory::new("e", runs.into(), None);
        let expected =
            ["a ended", "a ended", "Some(3)", "a ended", "None", "a ended", "None", "a ended"];
        assert_eq!(words(&history), expected);
    }

    #[test]
    fn run_before_the_requested_time_is_none_that_is_missing() {
        let begun = |number: u64, second: i64| KnownRun {
            slot: OffsetDateTime::from_unix_timestamp(second).unwrap(),
            ..run(number, &number.to_string(), 1, RunState::Begun)
        };
        // The slot of the second one was missed, and runs late.
        let runs = vec![begun(4, 90), begun(5, 10), begun(7, 20), begun(8, 99), begun(11, 100)];
        let since = OffsetDateTime::from_unix_timestamp(90).ok();
        let history = RunHistory::new("e", runs, since);
        assert_eq!(words(&history), ["4 begun", "8 begun", "Some(2)", "11 begun"]);
    }

    #[test]
    fn runs_are_counted_by_how_they_ended() {
        let ended = |code, ms| RunState::Ended { code, took: Duration::from_millis(ms) };
        let cut = |ms: Option<u64>| RunState::CutShort { took: ms.map(Duration::from_millis) };
        let states = [ended(0, 5), ended(3, 9), cut(None), cut(Some(70)), RunState::Begun];
        let runs = states.into_iter().zip(1..).map(|(state, n)| run(n, "a", 1, state));
        let history = RunHistory::new("e", runs.collect(), None);
        let expected = JobStatistics {
            succeeded: 1,
            failed: 1,
            cut_short: 2,
            others: 1,
            longest: Some(Duration::from_millis(70)),
        };
        assert_eq!(history.statistics()["a"], expected);
        let summary = "1 succeeded, 1 failed, 2 cut short; last a 1970-01-01T00:00:00Z, begun";
        assert_eq!(history.summary().as_deref(), Some(summary));
    }
}
