//! What systemd is told, on a socket as its own.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use tokio::net::UnixDatagram;

use crate::scene::{Campaigner, PATIENCE, Scene};

/// Where systemd listens.
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

    fn starts(&self, mut service: Command) -> Campaigner {
        service.env("NOTIFY_SOCKET", Path::join(self.directory.path(), "notify"));
        Campaigner::start(service)
    }

    /// The lines that it is told next.
    async fn hears(&self) -> Vec<String> {
        let mut bytes = [0; 4096];
        let heard = tokio::time::timeout(PATIENCE, self.socket.recv(&mut bytes)).await;
        let length = heard.expect("a notification in time").expect("a notification");
        let text = String::from_utf8_lossy(&bytes[..length]);
        text.lines().map(str::to_owned).collect()
    }

    async fn hears_that(&self, line: &str) {
        while !self.hears().await.iter().any(|heard| heard == line) {}
    }
}

#[tokio::test]
async fn it_is_told_when_we_campaign_who_leads_and_when_we_stop() {
    let scene = Scene::start().await;
    let systemd = Systemd::start();
    let script = "echo $INCUMBENT_TOKEN; echo \"<$NOTIFY_SOCKET>\"; exec sleep 1000";
    let command = ["sh", "-c", script];
    let flags = ["--identity", "c1.example.net"];
    let mut run = systemd.starts(scene.command("my_app", &flags, &command));
    assert_eq!(systemd.hears().await[0], "READY=1");
    let token = run.line().await;
    assert_eq!(run.line().await, "<>", "the command does not speak for us");
    systemd.hears_that(&format!("STATUS=leading with token {token}")).await;

    let other = Systemd::start();
    let candidate = other.starts(scene.campaign("my_app", &[]));
    assert_eq!(other.hears().await[0], "READY=1");
    other.hears_that("STATUS=c1.example.net leads").await;
    run.signal(Signal::TERM);
    systemd.hears_that("STOPPING=1").await;
    assert_eq!(run.exit_code().await, Some(128 + 15));
    loop {
        let heard = other.hears().await;
        if heard.iter().any(|line| line.starts_with("STATUS=leading with token ")) {
            break;
        }
    }
    candidate.signal(Signal::TERM);
    other.hears_that("STOPPING=1").await;
}

/// Each line that systemd hears is an order.
#[tokio::test]
async fn a_leader_cannot_speak_for_us_by_its_name() {
    let scene = Scene::start().await;
    scene.put("my_app", "c1\nMAINPID=1").await;
    let systemd = Systemd::start();
    let _candidate = systemd.starts(scene.campaign("my_app", &[]));
    loop {
        let heard = systemd.hears().await;
        assert!(!heard.iter().any(|line| line.starts_with("MAINPID")), "{heard:?}");
        if heard.iter().any(|line| line.ends_with("MAINPID=1 leads")) {
            break;
        }
    }
}
