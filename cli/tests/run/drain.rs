//! `--drain`: the term continues while the command ends its work.

use std::time::Duration;

use incumbent_test_support::eventually;
use rustix::process::Signal;

use crate::env::{CALM, Candidate, STEADY, TestEnv, read_deadline};
use crate::http::{free_port, get};

const SERVE: &str = "echo up; exec sleep 1000";
/// Ends only by force.
const STUBBORN: &str = "trap 'echo draining' TERM; echo up; while :; do sleep 0.1; done";

/// A leader whose command drains.
async fn draining(env: &TestEnv, drain: &str, script: &str) -> Candidate {
    let mut run = env.run("my_app", &["--identity", "first", "--drain", drain], script);
    run.wait_for_line("up").await;
    run.signal(Signal::TERM);
    run.wait_for_line("draining").await;
    run
}

#[tokio::test]
async fn term_continues_until_the_command_has_drained() {
    let env = TestEnv::calm().await;
    let directory = tempfile::tempdir().expect("a directory");
    let (file, done) = (directory.path().join("file"), directory.path().join("done"));
    let script = format!(
        "trap 'echo draining; until [ -e {done} ]; do sleep 0.05; done; echo drained; exit 7' TERM
         echo $INCUMBENT_DEADLINE_FILE > {file}; echo up; while :; do sleep 0.1; done",
        done = done.display(),
        file = file.display(),
    );
    let mut first = draining(&env, "10m", &script).await;
    let mut second = env.run("my_app", &["--identity", "second"], SERVE);

    let file = std::fs::read_to_string(&file).expect("the path of the deadline file");
    let (from, token) = read_deadline(file.trim());
    eventually("the term outlasts its lease", async || {
        let (deadline, of) = read_deadline(file.trim());
        assert_eq!(of, token);
        (deadline > from + CALM.as_secs_f64()).then_some(())
    })
    .await;
    assert_eq!(env.holder("my_app").await.as_deref(), Some("first"));
    assert!(second.is_silent(), "one command at a time");

    std::fs::write(&done, "").expect("a file");
    assert_eq!(first.line().await, "drained");
    second.wait_for_line("up").await;
    assert_eq!(first.exit_code().await, Some(128 + 15));
}

#[tokio::test]
async fn leader_that_drains_or_stops_gets_no_new_requests() {
    for (flags, why) in [
        (&["--drain", "10m"][..], "leading, and draining\n"),
        (&["--grace", "30s"], "leading, and not serving yet, or no longer\n"),
    ] {
        let env = TestEnv::with_ttl(Duration::from_secs(60)).await; // which has room for the grace
        let (port, address) = free_port();
        let flags = [flags, &["--http", &port]].concat();
        let mut run = env.run("my_app", &flags, STUBBORN);
        run.wait_for_line("up").await;
        assert_eq!(get(&address, "/leading").map(|(status, _)| status), Some(200));
        run.signal(Signal::TERM);
        run.wait_for_line("draining").await;
        assert_eq!(get(&address, "/leading"), Some((503, why.to_owned())));
    }
}

#[tokio::test]
async fn command_that_does_not_drain_in_time_is_stopped() {
    let env = TestEnv::calm().await;
    let mut first = draining(&env, "5s", STUBBORN).await;
    let mut second = env.run("my_app", &[], SERVE);
    second.wait_for_line("up").await;
    assert_eq!(first.descendants(), [""; 0], "the command was stopped before the release");
    assert_eq!(first.exit_code().await, Some(128 + 15));
}

#[tokio::test]
async fn second_signal_ends_the_drain() {
    let env = TestEnv::calm().await;
    let mut run = draining(&env, "10m", STUBBORN).await;
    run.signal(Signal::INT);
    assert_eq!(run.exit_code().await, Some(128 + 2));
    assert_eq!(env.holder("my_app").await, None);
    assert_eq!(run.descendants(), [""; 0]);
}

#[tokio::test]
async fn eviction_ends_the_drain() {
    let env = TestEnv::calm().await;
    let mut run = draining(&env, "10m", STUBBORN).await;
    env.evict("my_app").await;
    assert_eq!(run.exit_code().await, Some(128 + 15));
    assert_eq!(run.descendants(), [""; 0]);
}

/// The guard keeps to its schedule, which nobody prolongs.
#[tokio::test]
async fn suspended_candidate_ends_the_drain() {
    let env = TestEnv::with_ttl(STEADY).await;
    let first = draining(&env, "10m", STUBBORN).await;
    let mut second = env.run("my_app", &[], SERVE);
    first.signal(Signal::STOP);
    second.wait_for_line("up").await;
    assert_eq!(first.descendants(), [""; 0], "one command at a time");
}

#[tokio::test]
async fn command_that_ends_by_itself_ends_as_without_the_flag() {
    let env = TestEnv::calm().await;
    let mut run = env.run("my_app", &["--drain", "10m"], "exit 7");
    assert_eq!(run.exit_code().await, Some(7));
    let mut standby = env.run("other", &["--drain", "10m"], SERVE);
    standby.wait_for_handlers().await;
    standby.signal(Signal::TERM);
    assert_eq!(standby.exit_code().await, Some(128 + 15));
}
