//! A sentinel that serves the programs of its user.

use std::path::{Path, PathBuf};
use std::process::Command;

use incumbent_test_support::eventually;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::env::{Candidate, TestEnv, incumbent};
use crate::setup::{LONG_LEASE, Watch, counts, registered, standby_of, won};

/// `incumbent sentinel --listen`.
pub struct Listening {
    pub sentinel: Candidate,
    pub path: PathBuf,
    _folder: TempDir,
}

impl Listening {
    pub async fn start(env: &TestEnv) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("own/socket");
        let sentinel = Candidate::start(logged(env, &path));
        wait_for_socket(&path).await;
        Self { sentinel, path, _folder: folder }
    }

    /// Waits until the sentinel has logged this.
    pub async fn logs(&self, text: &str) {
        let log = log_of(&self.path);
        let has_it = async || std::fs::read_to_string(&log).ok()?.contains(text).then_some(());
        eventually(text, has_it).await;
    }

    pub fn address(&self) -> &str {
        self.path.to_str().expect("text")
    }

    /// Starts it again after its end.
    pub async fn restart(&mut self, env: &TestEnv) {
        self.sentinel = Candidate::start(logged(env, &self.path));
        wait_for_socket(&self.path).await;
    }

    /// A candidate that registers here.
    pub fn campaign(&self, env: &TestEnv, name: &str, identity: &str) -> Candidate {
        let mut command = env.campaign(name, &["--identity", identity]);
        command.env("INCUMBENT_SENTINEL", &self.path);
        Candidate::start(command)
    }

    /// A candidate that leads, and whose term is registered as the last of `terms`.
    pub async fn leader(&self, env: &TestEnv, name: &str, terms: usize) -> Candidate {
        let mut leader = self.campaign(env, name, "first");
        won(&mut leader).await;
        registered(self.address(), terms).await;
        leader
    }
}

/// `incumbent sentinel --listen path`.
pub fn listen(env: &TestEnv, path: &Path) -> Command {
    let mut command = incumbent();
    command.args(["sentinel", "--server", &env.server.url(), "--listen"]).arg(path);
    command
}

/// The log beside the directory of its socket.
fn log_of(path: &Path) -> PathBuf {
    path.with_file_name("").with_extension("log")
}

/// `incumbent sentinel --listen path` that logs to [`log_of`] its path.
fn logged(env: &TestEnv, path: &Path) -> Command {
    let command = listen(env, path);
    let mut logged = Command::new("sh");
    logged.args(["-c", r#"log=$1; shift; exec "$@" -v 2>>"$log""#, "sh"]);
    logged.arg(log_of(path)).arg(command.get_program()).args(command.get_args());
    logged
}

/// Waits until something listens there.
pub async fn wait_for_socket(path: &Path) {
    let connects = async || std::os::unix::net::UnixStream::connect(path).ok().map(drop);
    eventually("the sentinel listens", connects).await;
}

#[tokio::test]
async fn only_the_elections_of_the_killed_program_are_released() {
    let env = TestEnv::with_elections(LONG_LEASE, &["my_app", "other"]).await;
    let mut listening = Listening::start(&env).await;
    let killed = listening.leader(&env, "my_app", 1).await;
    let mut living = listening.leader(&env, "other", 2).await;
    let mut second = standby_of(&env, "my_app").await;
    let mut waits = standby_of(&env, "other").await;
    killed.signal(Signal::KILL);
    won(&mut second).await;
    registered(listening.address(), 1).await;
    assert_eq!(counts(listening.address()).await, (1, 1));
    assert_eq!(env.holder("other").await.as_deref(), Some("first"));
    assert!(living.is_silent() && waits.is_silent());
    // The sentinel may end without its programs.
    listening.sentinel.signal(Signal::TERM);
    assert_eq!(listening.sentinel.exit_code().await, Some(0));
    assert!(!listening.path.exists(), "it removes its socket");
    living.signal(Signal::TERM);
    living.exit().await;
    won(&mut waits).await;
}

#[tokio::test]
async fn programs_register_again_after_a_restart() {
    let env = TestEnv::with_ttl(LONG_LEASE).await;
    let mut listening = Listening::start(&env).await;
    let first = listening.leader(&env, "my_app", 1).await;
    let mut second = standby_of(&env, "my_app").await;
    listening.sentinel.signal(Signal::KILL);
    listening.sentinel.exit().await;
    assert!(listening.path.exists(), "its socket is left");
    listening.restart(&env).await;
    registered(listening.address(), 1).await;
    first.signal(Signal::KILL);
    won(&mut second).await;
}

/// No candidate registers with a sentinel that is not there yet, and all do later.
#[tokio::test]
async fn sentinel_may_start_after_its_programs() {
    let env = TestEnv::with_ttl(LONG_LEASE).await;
    let mut listening = Listening::start(&env).await;
    listening.sentinel.signal(Signal::TERM);
    listening.sentinel.exit().await;
    let mut first = listening.campaign(&env, "my_app", "first");
    won(&mut first).await;
    let mut second = standby_of(&env, "my_app").await;
    listening.restart(&env).await;
    registered(listening.address(), 1).await;
    first.signal(Signal::KILL);
    won(&mut second).await;
}

#[tokio::test]
async fn terminated_program_is_not_reported_as_crashed() {
    let env = TestEnv::with_ttl(LONG_LEASE).await;
    let listening = Listening::start(&env).await;
    let mut first = listening.leader(&env, "my_app", 1).await;
    let mut watch = Watch::start(&env).await;
    first.signal(Signal::TERM);
    first.exit().await;
    assert_eq!(watch.cause().await, "stopped");
    registered(listening.address(), 0).await;
}
