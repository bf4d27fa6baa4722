//! `incumbent doctor` of a sentinel.

use std::path::Path;
use std::process::Command;

use incumbent_test_support::{Server, eventually};
use rustix::process::Signal;

use crate::env::{BUCKET, Candidate, TestEnv, incumbent, operator};
use crate::listening::{Listening, wait_for_socket};
use crate::setup::{counts, won};

/// The lines about the sentinel.
fn findings(command: &mut Command) -> Vec<String> {
    let output = command.output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().filter(|line| line.split_whitespace().nth(1) == Some("sentinel"));
    lines.map(str::to_owned).collect()
}

fn doctor(env: &TestEnv) -> Command {
    let mut command = operator();
    command.args(["doctor", "--server", &env.server.url()]).env_remove("INCUMBENT_SENTINEL");
    command
}

fn doctor_of(env: &TestEnv, path: &Path) -> String {
    let mut found = findings(doctor(env).arg("--sentinel").arg(path));
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[tokio::test]
async fn sentinel_is_checked_if_one_is_given() {
    let env = TestEnv::calm().await;
    assert_eq!(findings(&mut doctor(&env)), [""; 0]);
    assert_eq!(findings(doctor(&env).env("INCUMBENT_SENTINEL", "")), [""; 0]);
    let mut listening = Listening::start(&env).await;
    let _leader = listening.leader(&env, "my_app", 1).await;
    let line = "ok       sentinel    responds; processes: 1, terms: 1";
    counts(listening.address()).await; // its lock responds
    assert_eq!(doctor_of(&env, &listening.path), line);
    assert_eq!(findings(doctor(&env).env("INCUMBENT_SENTINEL", &listening.path)), [line]);
    listening.sentinel.signal(Signal::TERM);
    listening.sentinel.exit().await;
    let line = doctor_of(&env, &listening.path);
    let none = format!("warning  sentinel    none at {}, so after a crash", listening.address());
    assert!(line.starts_with(&none) && line.contains("start it as this user"), "{line}");
    let line = doctor_of(&env, Path::new("@incumbent-no-such-sentinel"));
    assert!(line.contains("the address must be the absolute path of a socket"), "{line}");
}

#[tokio::test]
async fn sentinel_that_cannot_release_is_a_warning() {
    let env = TestEnv::calm().await;
    let empty = Server::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("own/socket");
    let mut command = incumbent();
    command.args(["sentinel", "--server", &empty.url(), "--listen"]).arg(&path);
    let _sentinel = Candidate::start(command);
    wait_for_socket(&path).await;
    let line = eventually("its lock responds in time", async || {
        let line = doctor_of(&env, &path);
        line.contains("bucket CHORIA_LEADER_ELECTION does not exist").then_some(line)
    })
    .await;
    assert!(line.starts_with("warning  sentinel    it cannot release, so after a crash"), "{line}");
    assert!(line.ends_with("the credentials of the programs"), "{line}");
}

/// It may read every entry, and release none.
#[tokio::test]
async fn sentinel_that_may_not_write_is_reported() {
    let users = r#"authorization: { users: [
        { user: admin, password: admin },
        { user: a, password: a, permissions: { publish: { deny: ["$KV.>"] } } },
    ] }"#;
    let server = Server::builder().config(users).start().await;
    let admin = ["--server", &server.url_as("admin", "admin")];
    let folder = tempfile::tempdir().expect("a folder");
    let (path, log) = (folder.path().join("own/socket"), folder.path().join("log"));
    let script = r#"log=$1; shift; exec "$@" 2>"$log""#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(&log).arg(env!("CARGO_BIN_EXE_incumbent"));
    command.args(["sentinel", "--server", &server.url_as("a", "a"), "--listen"]).arg(&path);
    let mut leader = incumbent();
    leader.args(["campaign", "my_app"]).args(admin);
    leader.env("INCUMBENT_SENTINEL", &path);
    let _sentinel = Candidate::start(command);
    wait_for_socket(&path).await;
    let mut leader = Candidate::start(leader);
    won(&mut leader).await;
    let refused = async || {
        let mut command = operator();
        command.args(["doctor", "--sentinel"]).arg(&path).args(admin);
        findings(&mut command).pop().filter(|line| line.contains("it cannot release"))
    };
    let line = eventually("the missing permission is found", refused).await;
    assert!(line.contains(&format!("$KV.{BUCKET}.my_app")), "{line}");
    let log = std::fs::read_to_string(log).expect("a log");
    assert!(log.contains("ERROR") && log.contains("cannot release"), "{log}");
}
