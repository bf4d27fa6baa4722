//! `incumbent doctor` of a sentinel.

use std::path::Path;
use std::process::Command;

use incumbent_test_support::Server;
use rustix::process::Signal;

use crate::env::{Candidate, LEASE, TestEnv, incumbent};
use crate::listening::{Listening, wait_for_socket};

/// The lines about the sentinel.
fn findings(command: &mut Command) -> Vec<String> {
    let output = command.output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().filter(|line| line.split_whitespace().nth(1) == Some("sentinel"));
    lines.map(str::to_owned).collect()
}

fn doctor(env: &TestEnv) -> Command {
    let mut command = incumbent();
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
    let env = TestEnv::with_ttl(LEASE).await;
    assert_eq!(findings(&mut doctor(&env)), [""; 0]);
    assert_eq!(findings(doctor(&env).env("INCUMBENT_SENTINEL", "")), [""; 0]);
    let mut listening = Listening::start(&env).await;
    let _leader = listening.leader(&env, "my_app", 1).await;
    let line = doctor_of(&env, &listening.path);
    assert_eq!(line, "ok       sentinel    responds; processes: 1, terms: 1");
    assert_eq!(findings(doctor(&env).env("INCUMBENT_SENTINEL", &listening.path)), [line]);
    listening.sentinel.signal(Signal::TERM);
    listening.sentinel.exit().await;
    let line = doctor_of(&env, &listening.path);
    let none = format!("warning  sentinel    none at {}, so after a crash", listening.address());
    assert!(line.starts_with(&none) && line.contains("start it with"), "{line}");
    let line = doctor_of(&env, Path::new("@incumbent-no-such-sentinel"));
    assert!(line.contains("the address must be the absolute path of a socket"), "{line}");
}

#[tokio::test]
async fn sentinel_that_cannot_release_is_a_warning() {
    let env = TestEnv::with_ttl(LEASE).await;
    let empty = Server::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("own/socket");
    let mut command = incumbent();
    command.args(["sentinel", "--server", &empty.url(), "--listen"]).arg(&path);
    let _sentinel = Candidate::start(command);
    wait_for_socket(&path).await;
    let line = doctor_of(&env, &path);
    assert!(line.starts_with("warning  sentinel    it cannot release, so after a crash"), "{line}");
    assert!(line.contains("bucket CHORIA_LEADER_ELECTION does not exist"), "{line}");
    assert!(line.ends_with("the credentials of the programs"), "{line}");
}
