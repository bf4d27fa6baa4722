//! `--try` and `--wait`: a command that does not wait forever for its term.

use std::time::Duration;

use incumbent_test_support::eventually;
use rustix::process::Signal;

use crate::env::{Candidate, STEADY, TRY, TestEnv, incumbent};
use crate::http::{free_port, get};

const SERVE: &str = "echo up; exec sleep 1000";

/// The exit code and standard error of a candidate that must not run its command.
async fn without_command(mut candidate: Candidate) -> (Option<i32>, String) {
    let code = candidate.exit_code().await;
    assert!(candidate.is_silent(), "the command ran");
    (code, candidate.stderr())
}

async fn leader(env: &TestEnv) -> Candidate {
    let mut leader = env.run("my_app", &["--identity", "c1"], SERVE);
    leader.wait_for_line("up").await;
    leader
}

#[tokio::test]
async fn conflict_has_its_own_exit_code() {
    let env = TestEnv::calm().await;
    for flags in [&TRY[..], &["--wait", "1m"], &["--wait", "0s", "--timeout", "30s"]] {
        let mut free = env.run("my_app", flags, "echo $INCUMBENT_TOKEN; exit 7");
        assert!(free.line().await.parse::<u64>().is_ok_and(|token| token > 0));
        assert_eq!(free.exit_code().await, Some(7), "{flags:?}");
    }
    let _leader = leader(&env).await;
    let leads = "incumbent: my_app: c1 leads: COMMAND was not run\n";
    let still = "incumbent: my_app: c1 still leads after 20s: COMMAND was not run\n";
    for (flags, code, line) in [
        (&["--try"][..], 1, leads),
        (&["--try", "--conflict-exit-code", "75"], 75, leads),
        (&["--try", "--conflict-exit-code", "0", "--quiet"], 0, ""),
        (&["--wait", "0s"], 1, leads),
        (&["--wait", "20s", "--conflict-exit-code", "75"], 75, still),
    ] {
        let limited = [flags, &TRY[1..]].concat();
        let (exit, text) = without_command(env.run("my_app", &limited, "echo ran")).await;
        assert_eq!((exit, &*text), (Some(code), line), "{flags:?}");
    }
    assert_eq!(env.holder("my_app").await.as_deref(), Some("c1"), "it still leads");
}

#[tokio::test]
async fn term_that_comes_within_the_wait_is_served() {
    let env = TestEnv::calm().await;
    let leader = leader(&env).await;
    let (port, address) = free_port();
    let mut standby = env.run("my_app", &["--wait", "1h", "--http", &port], "echo ran; exit 7");
    eventually("it takes part", async || {
        get(&address, "/readyz").filter(|(status, _)| *status == 200)
    })
    .await;
    assert!(standby.is_silent());
    leader.signal(Signal::TERM);
    standby.wait_for_line("ran").await;
    assert_eq!(standby.exit_code().await, Some(7));
}

#[tokio::test]
async fn signal_ends_the_wait() {
    let env = TestEnv::calm().await;
    let _leader = leader(&env).await;
    let standby = env.run("my_app", &["--wait", "1h"], "echo ran");
    standby.wait_for_handlers().await;
    standby.signal(Signal::TERM);
    assert_eq!(without_command(standby).await.0, Some(128 + 15));
}

/// Nobody else can lead while a winner cools down.
#[tokio::test]
async fn cool_down_is_no_conflict() {
    let env = TestEnv::with_ttl(STEADY).await;
    // An entry that somebody deletes says nothing about how long its holder leads.
    env.put("my_app", "theirs").await;
    env.evict("my_app").await;
    let mut winner = env.run("my_app", &[&TRY[..], &["-v"]].concat(), "echo ran; exit 7");
    winner.wait_for_line("ran").await;
    assert_eq!(winner.exit_code().await, Some(7));
    let log = winner.stderr();
    assert!(log.contains("cooling down before leading"), "{log}");
}

#[tokio::test]
async fn cool_down_has_to_end_within_the_wait() {
    let env = TestEnv::with_ttl(Duration::from_secs(60)).await;
    env.put("my_app", "theirs").await;
    env.evict("my_app").await;
    let winner = env.run("my_app", &["--wait", "20s"], "echo ran");
    let (code, line) = without_command(winner).await;
    let expected = "elected, but still cooling down after 20s: COMMAND was not run\n";
    assert!(line.ends_with(expected), "{line}");
    assert_eq!(code, Some(1));
    assert_eq!(env.holder("my_app").await, None, "the entry is released");
}

#[tokio::test]
async fn command_of_a_lost_term_does_not_run_again() {
    let env = TestEnv::calm().await;
    let flags = ["--wait", "1h", "--conflict-exit-code", "75"];
    let mut run = env.run("my_app", &flags, SERVE);
    run.wait_for_line("up").await;
    env.evict("my_app").await;
    assert_eq!(run.exit_code().await, Some(1));
    let line = run.stderr();
    assert!(line.starts_with("incumbent: lost my_app: "), "{line}");
    assert!(line.ends_with("; not campaigning again\n") && line.lines().count() == 1, "{line}");
    assert_eq!(run.descendants(), [""; 0]);
}

#[tokio::test]
async fn unreachable_lock_is_no_conflict() {
    let run = |server: &str, flags: &[&str]| {
        let mut command = incumbent();
        command.args(["run", "my_app", "-s", server, "--conflict-exit-code", "75"]).args(flags);
        command.args(["--", "echo", "ran"]);
        Candidate::start(command)
    };
    let env = TestEnv::start().await;
    env.server.pause();
    let (absent, silent) = ("nats://127.0.0.1:1", env.server.url());
    for (server, flags, end) in [
        (absent, &["--try"][..], ""),
        (absent, &["--wait", "1s"], "(tried for 1s)"),
        (absent, &["--wait", "1s", "--timeout", "100ms"], "(tried for 1s)"),
        (&silent, &["--try", "--timeout", "300ms"], ""),
        (&silent, &["--wait", "1s"], ""),
    ] {
        let (code, line) = without_command(run(server, flags)).await;
        assert!(line.starts_with("incumbent: ") && line.lines().count() == 1, "{flags:?}: {line}");
        assert!(line.trim_end().ends_with(end), "{flags:?}: {line}");
        assert_eq!(code, Some(4), "{flags:?}: {line}");
    }
}

/// The lock was reached, and does not answer when the wait is over.
#[tokio::test]
async fn lock_that_fails_during_the_wait_is_no_conflict() {
    // The entry is over within the wait: the request that follows fails.
    let env = TestEnv::start().await;
    let _leader = leader(&env).await;
    let (port, address) = free_port();
    let flags = ["--wait", "40s", "--http", &port];
    let standby = env.run("my_app", &flags, "echo ran");
    eventually("it takes part", async || {
        get(&address, "/readyz").filter(|(status, _)| *status == 200)
    })
    .await;
    env.server.pause();
    let (code, line) = without_command(standby).await;
    assert!(line.contains("COMMAND was not run; check the lock"), "{line}");
    assert_eq!((code, line.lines().count()), (Some(4), 1), "{line}");
    env.server.resume();
}

#[test]
fn contradictory_flags_are_refused() {
    for flags in [
        &["--try", "--wait", "1s"][..],
        &["--conflict-exit-code", "7"],
        &["--try", "--conflict-exit-code", "256"],
        &["--wait", "18446744073709551615s"],
    ] {
        let run = incumbent().args(["run", "my_app"]).args(flags).args(["--", "true"]).output();
        let output = run.expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {output:?}");
    }
}
