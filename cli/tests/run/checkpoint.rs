//! `run --checkpoint`: what one leader leaves to the next, as a file.

use incumbent_test_support::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::env::{TestEnv, incumbent, operator};

/// Appends a word to the checkpoint.
const APPEND: &str = "cat \"$INCUMBENT_CHECKPOINT\"; echo; \
    { cat \"$INCUMBENT_CHECKPOINT\"; printf one,; } > \"$INCUMBENT_CHECKPOINT.new\"; \
    mv \"$INCUMBENT_CHECKPOINT.new\" \"$INCUMBENT_CHECKPOINT\"";

fn info(env: &TestEnv) -> Value {
    let output = operator()
        .args(["election", "info", "my_app", "--output", "json", "--server", &env.server.url()])
        .output()
        .expect("it runs");
    let row = |found: Value| found["elections"][0]["checkpoint"].clone();
    row(serde_json::from_slice(&output.stdout).expect("JSON"))
}

#[tokio::test]
async fn checkpoint_is_what_the_last_leader_left() {
    let env = TestEnv::calm().await;
    let directory = tempfile::tempdir().expect("a directory");
    let run = |host: &str, script: &str| {
        let file = directory.path().join(host);
        let flags = ["--identity", host, "--checkpoint", file.to_str().expect("UTF-8")];
        env.run("my_app", &flags, script)
    };
    let mut first = run("first", APPEND);
    assert_eq!(first.line().await, "");
    assert_eq!(first.exit_code().await, Some(0));
    // Also if the command fails, or is stopped.
    let mut second = run("second", &format!("{APPEND}; exit 3"));
    assert_eq!(second.line().await, "one,");
    assert_eq!(second.exit_code().await, Some(3));
    let mut third = run("third", &format!("{APPEND}; echo; exec sleep 1000"));
    assert_eq!(third.line().await, "one,one,");
    assert_eq!(third.line().await, "");
    third.signal(Signal::TERM);
    assert_eq!(third.exit_code().await, Some(128 + 15));
    let mut last = run("last", "cat \"$INCUMBENT_CHECKPOINT\"; echo; exec sleep 1000");
    assert_eq!(last.line().await, "one,one,one,");
    let shown = info(&env);
    assert_eq!(shown["bytes"], 12);
    assert!(shown["saved"].is_string() && shown["token"].is_u64(), "{shown}");
}

#[tokio::test]
async fn checkpoint_is_saved_upon_a_signal() {
    let env = TestEnv::calm().await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("checkpoint");
    let flags = ["--checkpoint", file.to_str().expect("UTF-8")];
    let script = "trap 'echo forwarded' USR2; echo $INCUMBENT_PID; \
        while :; do sleep 1000 & wait $!; done";
    let mut run = env.run("my_app", &flags, script);
    let pid: i32 = run.line().await.parse().expect("a number");
    assert_eq!(Pid::from_raw(pid), Some(run.pid()));
    for data in ["first", "second one"] {
        std::fs::write(&file, data).expect("a file");
        kill_process(run.pid(), Signal::USR2).expect("a signal");
        eventually("it is saved", async || (info(&env)["bytes"] == data.len()).then_some(())).await;
    }
    assert!(run.is_silent(), "the command does not get the signal");
    run.signal(Signal::KILL); // what is saved outlives it
    let mut next = env.run("my_app", &flags, "cat \"$INCUMBENT_CHECKPOINT\"; echo");
    assert_eq!(next.line().await, "second one");
}

#[tokio::test]
async fn checkpoint_that_cannot_be_saved_fails_the_run() {
    let env = TestEnv::calm().await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("checkpoint");
    let flags = ["--checkpoint", file.to_str().expect("UTF-8")];
    let script = "head -c 5000 /dev/zero > \"$INCUMBENT_CHECKPOINT\"";
    let mut run = env.run("my_app", &flags, script);
    assert_eq!(run.exit_code().await, Some(1));
    let message = run.stderr();
    assert!(message.contains("is not saved") && message.contains("4096"), "{message}");
    assert_eq!(info(&env)["bytes"], 0);
}

#[tokio::test]
async fn checkpoint_that_no_term_could_write_is_refused() {
    let env = TestEnv::calm().await;
    let directory = tempfile::tempdir().expect("a directory");
    let nowhere = directory.path().join("missing/checkpoint");
    for (path, expected) in [
        (nowhere.as_path(), "cannot write to"),
        (directory.path(), "it is a directory: name a file"),
    ] {
        let flags = ["--checkpoint", path.to_str().expect("UTF-8")];
        let mut run = env.run("my_app", &flags, "echo runs");
        assert_eq!(run.exit_code().await, Some(2));
        let message = run.stderr();
        assert!(message.contains(expected) && message.lines().count() == 1, "{message}");
    }
}

#[test]
fn flags_that_seats_do_not_take_are_refused() {
    for flags in [&["--checkpoint", "/tmp/x"][..], &["--ready-when-leading", "--http", "0"]] {
        let output = incumbent()
            .args(["run", "my_app", "--seats", "2"])
            .args(flags)
            .args(["--", "true"])
            .output()
            .expect("it runs");
        assert_eq!(output.status.code(), Some(2));
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        let expected = format!("{} cannot be used with --seats", flags[0]);
        assert!(message.contains(&expected), "{message}");
    }
}
