//! client-go's candidates, as processes of their own.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use incumbent_test_support::go_program;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::conformance::soon;
use crate::env::{Kind, OBJECT, TestEnv};

/// The lease of these candidates: longer than a busy machine stands still, after which their work
/// continues for a moment.
pub const LEASE: Duration = Duration::from_secs(15);

pub struct Peer {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    /// Starts a candidate with ReleaseOnCancel and the timing 15 s, 12 s, 3 s.
    pub async fn start<K: Kind>(env: &TestEnv<K>, identity: &str) -> Self {
        Self::start_with(env, &env.kubeconfig, identity).await
    }

    pub async fn start_with<K: Kind>(env: &TestEnv<K>, kubeconfig: &Path, identity: &str) -> Self {
        Self::start_timed(env, kubeconfig, identity, ["15s", "12s", "3s"]).await
    }

    /// With this LeaseDuration, RenewDeadline and RetryPeriod.
    pub async fn start_timed<K: Kind>(
        env: &TestEnv<K>,
        kubeconfig: &Path,
        identity: &str,
        [lease, deadline, retry]: [&str; 3],
    ) -> Self {
        let program = tokio::task::spawn_blocking(|| go_program("clientgo")).await.unwrap();
        let mut process = Command::new(program)
            .arg("-kubeconfig")
            .arg(kubeconfig)
            .args(["-namespace", &env.namespace, "-name", OBJECT, "-identity", identity])
            .args(["-lease", lease, "-renew-deadline", deadline, "-retry", retry])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("client-go's candidate");
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// Its process, and its output.
    pub fn into_parts(self) -> (Child, Lines<BufReader<ChildStdout>>) {
        (self.process, self.lines)
    }

    /// Waits for this line.
    pub async fn wait_for_line(&mut self, wanted: &str) {
        soon(&format!("client-go says {wanted:?}"), async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line == wanted {
                    return;
                }
            }
            panic!("client-go's candidate has ended before it said {wanted:?}");
        })
        .await;
    }

    /// Ends it as an operator does; it releases its lock.
    pub async fn stop(mut self) {
        self.signal("TERM").await;
        soon("client-go's candidate ends", self.process.wait()).await.unwrap();
    }

    /// Kills it.
    pub async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }

    pub async fn signal(&self, signal: &str) {
        let id = self.process.id().expect("it runs").to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &*id]).status().await;
        assert!(sent.unwrap().success());
    }
}
