//! A leader under a sentinel, its standby, and what the sentinel knows.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use incumbent::sentinel::{SentinelMessage, SentinelReply, connect, encode, read_message};
use incumbent_test_support::{REQUESTS, eventually, jetstream_on};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::io::{AsyncWriteExt, BufReader};

use crate::env::{BUCKET, Candidate, TestEnv, incumbent};

/// A lease that no test waits for: a takeover within a wait of a test is not by its end.
pub const LONG_LEASE: Duration = Duration::from_secs(600);
/// Prints the address of the sentinel and the process id, and becomes the command.
pub const INTRODUCE: &str = r#"echo "$INCUMBENT_SENTINEL"; echo $$; exec "$@""#;

/// The condition of a sentinel: processes, terms, and its problem.
pub async fn status(address: &str) -> (usize, usize, Option<String>) {
    let mut stream = connect(Path::new(address)).await.expect("it listens");
    stream.write_all(&encode(&SentinelMessage::Status)).await.expect("it reads");
    match read_message(&mut BufReader::new(stream), &mut Vec::new()).await {
        Ok(SentinelReply::Status { processes, terms, problem }) => (processes, terms, problem),
        other => panic!("no status: {other:?}"),
    }
}

/// The processes and terms of a sentinel, whose lock may respond too late on a busy machine.
pub async fn counts(address: &str) -> (usize, usize) {
    eventually("its lock responds", async || match status(address).await {
        (processes, terms, None) => Some((processes, terms)),
        (_, _, Some(_)) => None,
    })
    .await
}

/// Waits until this many terms are registered with a sentinel.
pub async fn registered(address: &str, expected: usize) {
    let what = format!("{expected} registered terms");
    eventually(&what, async || (status(address).await.1 == expected).then_some(())).await;
}

/// Waits until a candidate leads.
pub async fn won(candidate: &mut Candidate) {
    while !candidate.line().await.starts_with("won") {}
}

/// The arguments of a candidate that is `incumbent campaign`.
pub fn campaign(env: &TestEnv, name: &str, identity: &str) -> Vec<String> {
    let words = [env!("CARGO_BIN_EXE_incumbent"), "campaign", name, "--identity", identity];
    let server = ["--server".to_owned(), env.server.url()];
    words.map(str::to_owned).into_iter().chain(server).collect()
}

/// `incumbent sentinel -- sh -c script`, with more arguments of the script.
pub fn wrapped(env: &TestEnv, script: &str, args: &[String]) -> Command {
    let mut command = incumbent();
    command.args(["sentinel", "--server", &env.server.url(), "--", "sh", "-c", script, "sh"]);
    command.args(args);
    command
}

/// A leader under a sentinel of its own.
pub struct Wrapped {
    pub candidate: Candidate,
    pub address: String,
    /// The program.
    pub pid: Pid,
}

impl Wrapped {
    /// Starts it, and waits until its term is registered. The script prints as `INTRODUCE`.
    pub async fn start(command: Command) -> Self {
        let mut candidate = Candidate::start(command);
        let address = candidate.line().await;
        let pid = candidate.line().await.parse().ok().and_then(Pid::from_raw).expect("an id");
        won(&mut candidate).await;
        registered(&address, 1).await;
        Self { candidate, address, pid }
    }

    /// `incumbent campaign` under a sentinel.
    pub async fn campaign(env: &TestEnv) -> Self {
        Self::start(wrapped(env, INTRODUCE, &campaign(env, "my_app", "first"))).await
    }

    pub fn kill_program(&self, signal: Signal) {
        kill_process(self.pid, signal).expect("it runs");
    }
}

/// A candidate that waits for `first` to go.
pub async fn standby(env: &TestEnv) -> Candidate {
    standby_of(env, "my_app").await
}

pub async fn standby_of(env: &TestEnv, name: &str) -> Candidate {
    let mut standby = Candidate::start(env.campaign(name, &["--identity", "standby"]));
    standby.wait_for_line("leader: first").await;
    standby
}

/// The revision of the entry of `my_app`, which grows with each write.
pub async fn revision(env: &TestEnv) -> u64 {
    let context = jetstream_on(env.server.connect().await);
    let store = context.get_key_value(BUCKET).await.expect("the bucket");
    store.entry("my_app").await.expect("a response").expect("an entry").revision
}

/// Whether there is a process with this id that has not ended.
pub fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()));
    let is_zombie = stat
        .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')));
    test_kill_process(pid).is_ok() && !is_zombie
}

/// Reports how terms of one election end, as an observer sees it.
pub struct Watch(Candidate);

impl Watch {
    pub async fn start(env: &TestEnv) -> Self {
        let mut command = incumbent();
        command.args(["election", "watch", "my_app", "--server", &env.server.url()]);
        Self::of(command).await
    }

    /// `command`: `incumbent election watch` with the election and its lock.
    pub async fn of(mut command: Command) -> Self {
        command.args(["-o", "json"]).envs([REQUESTS]);
        let mut watch = Self(Candidate::start(command));
        watch.next("leader").await;
        watch
    }

    async fn next(&mut self, event: &str) -> String {
        loop {
            let line = self.0.line().await;
            if line.contains(&format!(r#""event":"{event}""#)) {
                return line;
            }
        }
    }

    /// Why there is no leader any more.
    pub async fn cause(&mut self) -> String {
        let line = self.next("vacant").await;
        let (_, rest) = line.split_once(r#""cause":""#).expect("a cause");
        rest.split_once('"').expect("a text").0.to_owned()
    }
}
