//! Moves of the leadership between commands.

use incumbent_test_support::eventually;
use rustix::process::Signal;

use crate::env::{Candidate, STEADY, TestEnv, incumbent, operator, read_deadline};
use crate::http::{free_port, get};

const SERVE: &str = "echo up; exec sleep 1000";

/// `incumbent election move my_app --to identity`.
fn start_move(env: &TestEnv, identity: &str) -> Candidate {
    let mut command = operator();
    command.args(["election", "move", "my_app", "--to", identity]);
    command.args(["--server", &env.server.url()]);
    Candidate::start(command)
}

/// A move to this candidate that the leader has accepted: on a busy machine an answer may be late.
pub async fn moves_to(env: &TestEnv, identity: &str) -> Candidate {
    eventually("the successor takes part", async || {
        let mut moved = start_move(env, identity);
        let line = moved.line_or_exit().await.ok()?;
        assert_eq!(line, format!("handing over to {identity}"));
        Some(moved)
    })
    .await
}

#[tokio::test]
async fn command_drains_before_the_successor_leads() {
    let env = TestEnv::calm().await;
    let directory = tempfile::tempdir().expect("a directory");
    let (file, done) = (directory.path().join("file"), directory.path().join("done"));
    let script = format!(
        "trap 'echo draining; until [ -e {done} ]; do sleep 0.05; done; echo drained; exit 7' TERM
         echo $INCUMBENT_DEADLINE_FILE > {file}; echo up; while :; do sleep 0.1; done",
        done = done.display(),
        file = file.display(),
    );
    let mut first = env.run("my_app", &["--identity", "first", "--drain", "30m"], &script);
    first.wait_for_line("up").await;
    let mut second = env.run("my_app", &["--identity", "second"], SERVE);
    second.wait_for_handlers().await;
    let mut moved = moves_to(&env, "second").await;
    first.wait_for_line("draining").await;

    let file = std::fs::read_to_string(&file).expect("the path of the deadline file");
    let (from, token) = read_deadline(file.trim());
    eventually("the term continues", async || {
        let (deadline, of) = read_deadline(file.trim());
        assert_eq!(of, token);
        (deadline > from + STEADY.as_secs_f64()).then_some(())
    })
    .await;
    assert_eq!(env.holder("my_app").await.as_deref(), Some("first"));
    assert!(second.is_silent() && moved.is_silent(), "one command at a time");

    std::fs::write(&done, "").expect("a file");
    assert_eq!(first.line().await, "drained");
    second.wait_for_line("up").await;
    assert!(moved.line().await.starts_with("second leads after "));
    assert_eq!(moved.exit_code().await, Some(0));

    let mut back = moves_to(&env, "first").await;
    assert_eq!(back.exit_code().await, Some(0), "it campaigns again");
    first.wait_for_line("up").await;
    assert_eq!(second.descendants(), [""; 0]);
}

/// One that stands aside leads rather than nobody.
#[tokio::test]
async fn candidate_that_stands_aside_leads_until_another_is_there() {
    let env = TestEnv::with_ttl(STEADY).await;
    let (port, address) = free_port();
    let flags = ["--identity", "first", "--stand-aside", "--priority", "9", "--http", &port];
    let mut first = env.run("my_app", &flags, SERVE);
    first.wait_for_line("up").await;
    let (status, line) = get(&address, "/readyz").expect("it listens");
    assert!(status == 200 && line.ends_with("; standing aside\n"), "{status} {line}");
    let mut second = env.run("my_app", &["--identity", "second"], SERVE);
    second.wait_for_line("up").await;
    assert_eq!(first.descendants(), [""; 0]);
}

#[tokio::test]
async fn preferred_candidate_takes_the_leadership() {
    let env = TestEnv::with_ttl(STEADY).await;
    let mut first = env.run("my_app", &["--identity", "first", "--priority", "1"], SERVE);
    first.wait_for_line("up").await;
    let flags = ["--identity", "second", "--priority", "2", "--prefer-after", "100ms"];
    let mut second = env.run("my_app", &flags, SERVE);
    second.wait_for_line("up").await;
    second.signal(Signal::TERM);
    first.wait_for_line("up").await;
}

#[test]
fn contradictory_flags_are_refused() {
    for flags in [
        &["--prefer"][..],
        &["--prefer-after", "1m"],
        &["--priority", "256"],
        &["--check", " "],
        &["--check", "http://u:p@c1"],
        &["--check-interval", "1s"],
        &["--check-failures", "2"],
        &["--check", "true", "--check-interval", "1ms"],
        &["--check", "true", "--check-interval", "2h"],
        &["--check", "true", "--check-failures", "0"],
        &["--site", ""],
    ] {
        let mut run = incumbent();
        run.args(["run", "my_app", "--lock", "memory:"]).args(flags);
        let output = run.args(["--", "true"]).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {output:?}");
    }
}

/// The term of a leader without work needs no drain.
#[tokio::test]
async fn leader_that_waits_for_a_restart_hands_over_at_once() {
    let env = TestEnv::calm().await;
    let script = |then| format!("cut -d' ' -f1 /proc/uptime; {then}");
    let flags = ["--identity", "first", "--drain", "30m", "--on-exit", "restart"];
    let mut first = env.run("my_app", &flags, &script("exit 1"));
    first.line().await;
    let mut second = env.run("my_app", &["--identity", "second"], &script("exec sleep 1000"));
    let mut start = String::new();
    // After pauses of 1, 2, 4, 8 and 16 s.
    for _ in 0..5 {
        start = first.line().await;
    }
    eventually("it hands over", async || {
        let mut moved = start_move(&env, "second");
        (moved.exit_code().await == Some(0)).then_some(())
    })
    .await;
    let seconds = |line: String| line.parse::<f64>().expect("seconds");
    let waited = seconds(second.line().await) - seconds(start);
    assert!(waited < 30.0, "not after the pause of 30s: {waited}");
}
