//! Where an election is: a lock, and how programs are told of it.

use std::any::Any;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use incumbent_test_support::REQUESTS;
use serde_json::Value;
use tempfile::TempDir;

use crate::release::Release;

/// The one election of a place.
pub const ELECTION: &str = "upgrade";
/// The lease of members, in seconds: a busy machine renews it in time, mostly.
pub const LEASE: u64 = 6;

type Url = Box<dyn Fn(usize) -> String + Send + Sync>;

pub struct Place {
    /// The URL of the lock, for the member in a slot.
    url: Url,
    /// The URL of the lock, for who only reads.
    reading: String,
    variables: Vec<(String, String)>,
    /// The lease of its members, in seconds.
    pub lease: u64,
    /// Whether the lock carries roll calls, and so moves.
    pub calls: bool,
    /// Whether a member that is suspended while it writes lets nobody else write.
    pub one_writer: bool,
    home: TempDir,
    /// The servers.
    _keep: Vec<Box<dyn Any + Send + Sync>>,
}

impl Place {
    pub fn new(url: impl Into<String>) -> Self {
        let url = url.into();
        Self::of_members(url.clone(), move |_| url.clone())
    }

    /// Where each member has a URL of its own.
    pub fn of_members(
        reading: String,
        url: impl Fn(usize) -> String + Send + Sync + 'static,
    ) -> Self {
        let home = TempDir::with_prefix("incumbent-upgrade-").expect("a directory");
        let (variables, keep) = (Vec::new(), Vec::new());
        let url = Box::new(url);
        let (lease, calls, one_writer) = (LEASE, false, false);
        Self { url, reading, variables, lease, calls, one_writer, home, _keep: keep }
    }

    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    pub fn with_lease(mut self, seconds: u64) -> Self {
        self.lease = seconds;
        self
    }

    pub fn with_calls(mut self) -> Self {
        self.calls = true;
        self
    }

    pub fn with_one_writer(mut self) -> Self {
        self.one_writer = true;
        self
    }

    /// Has a server live as long as this.
    pub fn keep(mut self, server: impl Any + Send + Sync) -> Self {
        self._keep.push(Box::new(server));
        self
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// A program of this release, without settings of the user who runs the tests.
    pub fn command(&self, release: Release, words: &[&str]) -> Command {
        self.command_by(&[], release, words)
    }

    /// A program of this release that another program, the first of `by`, starts.
    pub fn command_by(&self, by: &[&str], release: Release, words: &[&str]) -> Command {
        let program = release.program();
        let mut command = Command::new(by.first().map_or(program, Path::new));
        command.args(by.iter().skip(1)).args((!by.is_empty()).then_some(program)).args(words);
        command.env_clear().env("HOME", self.home()).env("PATH", "/usr/bin:/bin");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.home()).stdin(Stdio::null());
        command
    }

    /// A member that is to run a command, which follows.
    pub fn run(&self, release: Release, slot: usize, flags: &[&str]) -> Command {
        let mut command = self.command(release, &["run", ELECTION, "--lock", &(self.url)(slot)]);
        command.args(flags).arg("--");
        command
    }

    /// Runs a command that administers the lock, for two minutes at most.
    pub fn output(&self, release: Release, words: &[&str]) -> Output {
        self.output_of(release, &[words, &["--lock", &self.reading]].concat())
    }

    /// Runs a command for two minutes at most. Its words name the lock, if it needs one.
    pub fn output_of(&self, release: Release, words: &[&str]) -> Output {
        let mut command = self.command_by(&["timeout", "120"], release, words);
        command.envs([REQUESTS]);
        tokio::task::block_in_place(|| command.output()).expect("timeout and the program start")
    }

    /// The result of a command as JSON; none if it fails, which is printed.
    pub fn json(&self, release: Release, words: &[&str]) -> Option<Value> {
        let output = self.output(release, &[words, &["--output", "json"]].concat());
        if !output.status.success() {
            println!("{release}: {words:?}: {output:?}");
            return None;
        }
        Some(serde_json::from_slice(&output.stdout).expect("JSON"))
    }
}
