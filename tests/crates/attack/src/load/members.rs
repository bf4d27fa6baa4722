//! The processes that take part in many elections, and what is done to them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, fs, io};

use incumbent_test_support::{FaultProxy, Process};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::judge::Judge;
use crate::record::journal::{Tail, Writer};

/// What can happen to a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// SIGKILL.
    Killed,
    /// SIGTERM: it stops in order.
    Stopped,
    /// SIGSTOP, and SIGCONT later.
    Paused,
    /// What it sends and receives arrives late.
    Partitioned,
    /// Another one joins.
    Added,
}

impl FaultKind {
    pub const ALL: [Self; 5] =
        [Self::Killed, Self::Stopped, Self::Paused, Self::Partitioned, Self::Added];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Stopped => "stopped",
            Self::Paused => "paused",
            Self::Partitioned => "partitioned",
            Self::Added => "added",
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

struct Running {
    identity: String,
    process: Process,
    proxies: Vec<FaultProxy>,
    /// Until when it is paused or partitioned.
    away: Option<(FaultKind, Instant)>,
    /// Since when it is to have ended.
    ending: Option<Instant>,
}

/// The processes of a run that take part in many elections.
pub struct Members {
    program: PathBuf,
    running: Vec<Running>,
    started: usize,
    directory: TempDir,
    journal: Writer,
    tail: Tail,
    pub judge: Judge,
    /// What they did that they should not.
    pub odd: Vec<String>,
}

impl Members {
    pub fn new(program: &Path) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("incumbent-attack-").tempdir()?;
        let journal = directory.path().join("journal");
        Ok(Self {
            program: program.to_owned(),
            running: Vec::new(),
            started: 0,
            journal: Writer::open(&journal, "harness", 1)?,
            tail: Tail::new(&journal),
            directory,
            judge: Judge::default(),
            odd: Vec::new(),
        })
    }

    /// Starts one more, and returns its identity. `role`: the command that it is.
    pub fn add(
        &mut self,
        role: &str,
        urls: &[String],
        elections: usize,
        lease: u64,
        proxies: Vec<FaultProxy>,
    ) -> io::Result<String> {
        self.started += 1;
        let identity = format!("member-{}", self.started);
        let process = Process::spawn(&self.program, &self.file("log"), |command| {
            command.args([role, "--identity", &identity, "--urls", &urls.join(",")]);
            command.args(["--elections", &elections.to_string(), "--lease", &lease.to_string()]);
            command.arg("--journal").arg(self.file("journal"));
        })?;
        let (away, ending) = (None, None);
        self.running.push(Running { identity: identity.clone(), process, proxies, away, ending });
        Ok(identity)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Reads what is new in the journal.
    pub fn glance(&mut self) -> io::Result<()> {
        for line in self.tail.lines()? {
            self.judge.feed(&line);
        }
        Ok(())
    }

    /// Those to which nothing happens at the moment.
    pub fn healthy(&self) -> Vec<String> {
        let healthy = |member: &&Running| member.away.is_none() && member.ending.is_none();
        self.running.iter().filter(healthy).map(|member| member.identity.clone()).collect()
    }

    /// How many run, paused or not.
    pub fn count(&self) -> usize {
        self.running.iter().filter(|member| member.ending.is_none()).count()
    }

    /// Whether a pause, a partition or a stop is under way.
    pub fn is_disturbed(&self) -> bool {
        self.running.iter().any(|member| member.away.is_some() || member.ending.is_some())
    }

    /// Does this to a member; `lasts` is how long a pause or a partition takes.
    pub fn strike(&mut self, identity: &str, kind: FaultKind, lasts: Duration) {
        let Some(at) = self.running.iter().position(|member| member.identity == identity) else {
            return;
        };
        let member = &mut self.running[at];
        match kind {
            FaultKind::Killed => {
                drop(self.running.remove(at));
                self.journal.write_killed(identity, 1);
            }
            FaultKind::Stopped => {
                member.process.signal(Signal::TERM);
                member.ending = Some(Instant::now());
            }
            FaultKind::Paused => {
                member.process.pause();
                member.away = Some((kind, Instant::now() + lasts));
            }
            FaultKind::Partitioned => {
                member.proxies.iter().for_each(FaultProxy::hold);
                member.away = Some((kind, Instant::now() + lasts));
            }
            FaultKind::Added => {}
        }
    }

    /// Ends the pauses and partitions that are over, and finds out which members have ended.
    pub fn advance(&mut self, stop_within: Duration) {
        let now = Instant::now();
        let odd = &mut self.odd;
        for member in &mut self.running {
            if let Some((kind, until)) = member.away
                && now >= until
            {
                match kind {
                    FaultKind::Paused => member.process.resume(),
                    _ => member.proxies.iter().for_each(FaultProxy::release),
                }
                member.away = None;
            }
        }
        self.running.retain_mut(|member| {
            let identity = &member.identity;
            match (member.process.ended(), member.ending) {
                (None, Some(since)) if now > since + stop_within => {
                    odd.push(format!("{identity} has not stopped within {stop_within:?}"));
                    false
                }
                (None, _) => true,
                (Some(status), Some(_)) if status.success() => false,
                (Some(status), _) => {
                    odd.push(format!("{identity} ended with {status}"));
                    false
                }
            }
        });
    }

    /// Asks all of them to stop.
    pub fn stop_all(&mut self) {
        for member in &mut self.running {
            member.process.signal(Signal::TERM);
            member.ending.get_or_insert(Instant::now());
        }
    }

    /// What they have complained of.
    pub fn complaints(&self) -> Vec<String> {
        let log = fs::read_to_string(self.file("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }
}
