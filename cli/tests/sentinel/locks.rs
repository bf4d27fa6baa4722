//! The other locks.

use std::process::Command;

use incumbent_test_support::{KubeServer, PostgresServer, REQUESTS};
use rustix::process::Signal;

use crate::env::{Candidate, incumbent};
use crate::setup::{INTRODUCE, Watch, Wrapped, won};

/// A lease that no test waits for.
const LEASE: [&str; 2] = ["--lease", "10m"];

/// A place of elections, with its environment.
struct Lock<'a> {
    args: &'a [&'a str],
    variables: &'a [(&'a str, &'a str)],
}

impl Lock<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = incumbent();
        command.args(words).args(self.args).envs(self.variables.iter().copied());
        command
    }

    fn campaign(&self, identity: &str) -> Command {
        let mut command = self.command(&["campaign", "my-app", "--identity", identity]);
        command.args(LEASE);
        command
    }

    /// Kills a leader under a sentinel, whose standby then leads.
    async fn check_takeover(&self) {
        let campaign = self.campaign("first");
        let mut command = self.command(&["sentinel"]);
        command.args(["--", "sh", "-c", INTRODUCE, "sh"]);
        command.arg(campaign.get_program()).args(campaign.get_args());
        let mut first = Wrapped::start(command).await;
        let mut second = Candidate::start(self.campaign("second"));
        second.wait_for_line("leader: first").await;
        let mut watch = Watch::of(self.command(&["election", "watch", "my-app"])).await;
        // An observer of a lock that keeps its last entry alone would miss the vacancy.
        second.signal(Signal::STOP);
        first.kill_program(Signal::KILL);
        assert_eq!(watch.cause().await, "crashed");
        second.signal(Signal::CONT);
        won(&mut second).await;
        assert_eq!(first.candidate.exit_code().await, Some(128 + 9));
        assert_eq!(first.candidate.stderr(), "");
        self.check_run(&mut second).await;
    }

    /// Kills the process of `incumbent run`, whose standby then leads. Nothing is left of its
    /// command.
    async fn check_run(&self, before: &mut Candidate) {
        before.signal(Signal::TERM);
        before.exit().await;
        let mut run = self.command(&["run", "my-app", "--identity", "first"]);
        run.args(LEASE).args(["--", "sh", "-c", "echo up; exec sleep 1000"]);
        let mut first = Candidate::start(run);
        first.wait_for_line("up").await;
        let mut second = Candidate::start(self.campaign("second"));
        second.wait_for_line("leader: first").await;
        first.signal(Signal::KILL);
        won(&mut second).await;
        assert_eq!(first.descendants(), [""; 0]);
    }
}

#[tokio::test]
async fn sqlite_file_is_released() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    Lock { args: &["--lock", &url], variables: &[] }.check_takeover().await;
}

#[tokio::test]
async fn postgres_database_is_released() {
    let server = PostgresServer::start(&[]).await;
    let url = server.url("postgres");
    Lock { args: &["--lock", &url], variables: &[] }.check_takeover().await;
}

#[tokio::test]
async fn kubernetes_lease_is_released() {
    let server = KubeServer::start(&[]).await;
    let config = server.kubeconfig().display().to_string();
    let args = ["--lock", "kubernetes", "--namespace", "default"];
    let lock = Lock { args: &args, variables: &[("KUBECONFIG", &config)] };
    // Its first leader does not wait out a lease.
    let mut create = lock.command(&["election", "create", "my-app"]);
    let created = create.envs([REQUESTS]).output().expect("it starts");
    assert!(created.status.success(), "{created:?}");
    lock.check_takeover().await;
    let mut for_life = lock.command(&["sentinel", "--kind", "for-life"]);
    let output = for_life.args(["--", "true"]).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
    assert!(text.contains("for-life"), "{text}");
}
