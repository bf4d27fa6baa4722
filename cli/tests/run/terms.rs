//! The command runs while its campaigner leads, and knows what it needs to.

use std::process::Stdio;

use incumbent_test_support::eventually;
use rustix::process::Signal;

use crate::scene::{Campaigner, LEASE, Scene, deadline, now};

const SERVE: &str = "echo up; exec sleep 1000";

#[tokio::test]
async fn it_starts_when_elected_and_the_next_one_when_that_is_terminated() {
    let scene = Scene::start().await;
    let mut first = scene.run("my_app", &["--identity", "first"], SERVE);
    first.says("up").await;
    let mut second = scene.run("my_app", &["--identity", "second"], SERVE);
    assert_eq!(scene.holder("my_app").await.as_deref(), Some("first"));
    first.signal(Signal::TERM);
    second.says("up").await;
    assert_eq!(first.descendants(), [""; 0], "it was stopped before the office was released");
    assert_eq!(scene.holder("my_app").await.as_deref(), Some("second"));
    assert_eq!(first.exit_code().await, Some(128 + 15));
    assert_eq!(first.errors(), "", "quiet in a pipe");
    second.signal(Signal::INT);
    assert_eq!(second.exit_code().await, Some(128 + 2));
    assert_eq!(scene.holder("my_app").await, None);
    assert_eq!(second.errors(), "", "quiet in a pipe, and while waiting");
}

#[tokio::test]
async fn it_is_stopped_and_started_again_when_the_entry_is_deleted() {
    let scene = Scene::start().await;
    let mut only = scene.run("my_app", &[], "echo $INCUMBENT_TOKEN; exec sleep 1000");
    let first: u64 = only.line().await.parse().expect("a token");
    scene.evict("my_app").await;
    let second: u64 = only.line().await.parse().expect("a token");
    assert!(second > first);
    assert_eq!(only.descendants().len(), 1, "one at a time");
}

#[tokio::test]
async fn the_command_of_a_campaigner_that_is_killed_dies_before_the_next_one_starts() {
    let scene = Scene::start().await;
    let mut first = scene.run_without_cgroup(
        "my_app",
        &[],
        "trap '' TERM; setsid sleep 1000 & ( ( sleep 1000 & ) & ); echo up; sleep 1000",
    );
    first.says("up").await;
    let mut second = scene.run("my_app", &[], SERVE);
    first.signal(Signal::KILL);
    second.says("up").await;
    assert_eq!(first.descendants(), [""; 0]);
}

#[tokio::test]
async fn it_sees_what_it_runs_under_and_its_deadline_moves() {
    let scene = Scene::start().await;
    let flags = ["--identity", "c1.example.net"];
    let script = "echo $INCUMBENT_ELECTION; echo $INCUMBENT_IDENTITY; echo $INCUMBENT_TOKEN; \
                  echo $INCUMBENT_DEADLINE_FILE; exec sleep 1000";
    let mut run = scene.run("my_app", &flags, script);
    assert_eq!(run.line().await, "my_app");
    assert_eq!(run.line().await, "c1.example.net");
    let token = run.line().await;
    let file = run.line().await;
    let (first, in_file) = deadline(&file);
    assert_eq!(in_file, token);
    assert!(first - now() < LEASE.as_secs_f64(), "within a lease: {first}");
    let later = eventually("the deadline moves", async || {
        let (later, in_file) = deadline(&file);
        assert_eq!(in_file, token);
        (later > first).then_some(later)
    });
    assert!(later.await - now() < LEASE.as_secs_f64());
    run.signal(Signal::TERM);
    run.exit().await;
    assert!(!std::path::Path::new(&file).exists(), "nothing is left behind");
}

#[tokio::test]
async fn standard_input_is_the_commands() {
    let scene = Scene::start().await;
    let mut command = scene.command("my_app", &[], &["cat"]);
    command.stdin(Stdio::piped());
    let mut run = Campaigner::start(command);
    run.write("one\n");
    assert_eq!(run.line().await, "one");
    run.write("two\n");
    assert_eq!(run.line().await, "two");
}
