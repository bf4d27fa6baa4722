//! Notifications to systemd, received on a socket.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tokio::net::UnixDatagram;

use crate::env::{Candidate, TIMEOUT, TestEnv};

/// A socket that receives notifications instead of systemd.
struct Systemd {
    socket: UnixDatagram,
    directory: tempfile::TempDir,
}

impl Systemd {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = UnixDatagram::bind(directory.path().join("notify")).expect("a socket");
        Self { socket, directory }
    }

    fn start_service(&self, mut service: Command) -> Candidate {
        service.env("NOTIFY_SOCKET", Path::join(self.directory.path(), "notify"));
        Candidate::start(service)
    }

    /// The lines of the next notification.
    async fn receive(&self) -> Vec<String> {
        let mut bytes = [0; 4096];
        let received = tokio::time::timeout(TIMEOUT, self.socket.recv(&mut bytes)).await;
        let length = received.expect("a notification in time").expect("a notification");
        let text = String::from_utf8_lossy(&bytes[..length]);
        text.lines().map(str::to_owned).collect()
    }

    async fn wait_for_line(&self, line: &str) {
        while !self.receive().await.iter().any(|received| received == line) {}
    }
}

#[tokio::test]
async fn systemd_is_notified_of_campaign_leader_and_stop() {
    let env = TestEnv::calm().await;
    let systemd = Systemd::start();
    let script = "echo $INCUMBENT_TOKEN; echo \"<$NOTIFY_SOCKET>\"; exec sleep 1000";
    let command = ["sh", "-c", script];
    let flags = ["--identity", "c1.example.net"];
    let mut run = systemd.start_service(env.command("my_app", &flags, &command));
    assert_eq!(systemd.receive().await[0], "READY=1");
    let token = run.line().await;
    assert_eq!(run.line().await, "<>", "the command does not inherit the socket");
    systemd.wait_for_line(&format!("STATUS=leading with token {token}")).await;

    let other = Systemd::start();
    let candidate = other.start_service(env.campaign("my_app", &[]));
    assert_eq!(other.receive().await[0], "READY=1");
    other.wait_for_line("STATUS=c1.example.net leads").await;
    run.signal(Signal::TERM);
    systemd.wait_for_line("STOPPING=1").await;
    assert_eq!(run.exit_code().await, Some(128 + 15));
    loop {
        let lines = other.receive().await;
        if lines.iter().any(|line| line.starts_with("STATUS=leading with token ")) {
            break;
        }
    }
    candidate.signal(Signal::TERM);
    other.wait_for_line("STOPPING=1").await;
}

/// systemd interprets each line of a notification as an assignment.
#[tokio::test]
async fn leader_identity_cannot_inject_notifications() {
    let env = TestEnv::with_ttl(Duration::from_secs(60)).await; // in which no entry expires
    env.put("my_app", "c1\nMAINPID=1").await;
    let systemd = Systemd::start();
    let _candidate = systemd.start_service(env.campaign("my_app", &[]));
    loop {
        let lines = systemd.receive().await;
        assert!(!lines.iter().any(|line| line.starts_with("MAINPID")), "{lines:?}");
        if lines.iter().any(|line| line.ends_with("MAINPID=1 leads")) {
            break;
        }
    }
}

#[tokio::test]
async fn systemd_waits_for_a_drain() {
    let env = TestEnv::calm().await;
    let systemd = Systemd::start();
    let script = "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done";
    let command = ["sh", "-c", script];
    let mut run = systemd.start_service(env.command("my_app", &["--drain", "1m"], &command));
    run.wait_for_line("up").await;
    run.signal(Signal::TERM);
    let lines = loop {
        let lines = systemd.receive().await;
        if lines.iter().any(|line| line == "STOPPING=1") {
            break lines;
        }
    };
    let micros = lines.iter().find_map(|line| line.strip_prefix("EXTEND_TIMEOUT_USEC="));
    let micros: u64 = micros.expect("a longer timeout").parse().expect("a number");
    assert!((60_000_000..120_000_000).contains(&micros), "the drain and a lease: {micros}");
}
