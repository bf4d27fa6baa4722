//! How the command ends, and what the program makes of it.

use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use incumbent_test_support::eventually;
use rustix::process::Signal;

use crate::scene::{Scene, incumbent};

fn without_server(args: &[&str]) -> Output {
    incumbent().args(args).args(["-s", "nats://127.0.0.1:1"]).output().expect("it starts")
}

#[tokio::test]
async fn its_exit_code_is_the_commands_and_the_office_is_released() {
    let scene = Scene::start().await;
    let mut run = scene.run("my_app", &[], "exit 7");
    assert_eq!(run.exit_code().await, Some(7));
    assert_eq!(scene.holder("my_app").await, None);
    assert_eq!(scene.run("my_app", &[], "exit 0").exit_code().await, Some(0));
    let killed = scene.run("my_app", &[], "kill -KILL $$").exit().await;
    assert_eq!((killed.code(), killed.signal()), (Some(128 + 9), None));
}

#[tokio::test]
async fn what_it_leaves_behind_is_stopped() {
    let scene = Scene::start().await;
    let mut run = scene.run("my_app", &[], "setsid sleep 1000 & exit 3");
    assert_eq!(run.exit_code().await, Some(3));
    assert_eq!(run.descendants(), [""; 0]);
}

#[tokio::test]
async fn all_that_it_started_is_asked_to_stop() {
    let scene = Scene::start().await;
    let below = "trap 'echo asked; exit' TERM; echo up; while :; do sleep 0.05; done";
    let script = format!("sh -c 'setsid sh -c \"{below}\"; :' & exec sleep 1000");
    let mut run = scene.run(
        "my_app",
        &["--grace", "2s"],
        &script.replace("'echo asked; exit'", "\\\"echo asked; exit\\\""),
    );
    run.says("up").await;
    run.signal(Signal::TERM);
    run.says("asked").await;
    assert_eq!(run.exit_code().await, Some(128 + 15));
}

#[tokio::test]
async fn it_is_started_again_in_the_same_term() {
    let scene = Scene::start().await;
    let mut run = scene.run("my_app", &["--on-exit", "restart"], "echo $INCUMBENT_TOKEN; exit 1");
    let token = run.line().await;
    assert_eq!(run.line().await, token);
    run.signal(Signal::TERM);
    assert_eq!(run.exit_code().await, Some(128 + 15));
    assert_eq!(scene.holder("my_app").await, None);
}

#[tokio::test]
async fn it_may_leave_without_releasing_the_office() {
    let scene = Scene::with_ttl(std::time::Duration::from_secs(10)).await;
    let flags = ["--on-exit", "stop", "--identity", "gone"];
    assert_eq!(scene.run("my_app", &flags, "exit 9").exit_code().await, Some(9));
    assert_eq!(scene.holder("my_app").await.as_deref(), Some("gone"));
}

#[tokio::test]
async fn another_signal_may_ask_it_to_stop() {
    let scene = Scene::start().await;
    let script = "trap 'echo asked; exit 0' INT; echo up; while :; do sleep 0.01; done";
    let mut run = scene.run("my_app", &["--signal", "SIGUSR2"], &script.replace("INT", "USR2"));
    run.says("up").await;
    run.signal(Signal::TERM);
    run.says("asked").await;
    assert_eq!(run.exit_code().await, Some(128 + 15));
}

/// Known before standing for office: there is not even a server.
#[test]
fn a_command_that_cannot_run_is_one_clear_line() {
    for (command, code, line) in [
        ("no-such-command", 127, "incumbent: no command no-such-command on PATH\n"),
        ("/no/such", 127, "incumbent: no command /no/such\n"),
        (
            "/etc/passwd",
            126,
            "incumbent: /etc/passwd is not executable: run chmod +x, or use its interpreter\n",
        ),
    ] {
        let output = incumbent().args(["run", "my_app", "--", command]).output().expect("runs");
        assert_eq!(String::from_utf8_lossy(&output.stderr), line);
        assert_eq!(output.status.code(), Some(code));
        assert_eq!(output.stdout, b"");
    }
}

#[tokio::test]
async fn wrong_flags_are_one_clear_line() {
    assert_eq!(without_server(&["run", "my_app"]).status.code(), Some(2), "no command");
    let output = incumbent()
        .args(["run", "my_app", "-s", "nats://127.0.0.1:1", "--timeout", "5s", "--", "true"])
        .output();
    assert_eq!(output.expect("it starts").status.code(), Some(4));
    let scene = Scene::start().await;
    let mut run = scene.run("my_app", &["--grace", "3900ms"], "true");
    assert_eq!(run.exit_code().await, Some(2));
    let line = run.errors();
    assert!(line.contains("a grace of 3s 900ms is too long for a lease of 4s"), "{line}");
}

/// No sum of times is out of bounds.
#[tokio::test]
async fn a_grace_of_ages_is_one_clear_line() {
    const AGES: &str = "18446744073709551615s";
    let scene = Scene::with_ttl(std::time::Duration::from_secs(60)).await;
    let mut run = scene.run("my_app", &["--grace", AGES], "true");
    assert_eq!(run.exit_code().await, Some(2));
    let line = run.errors();
    assert!(line.contains("is too long for a lease of 1m") && line.lines().count() == 1, "{line}");
    let output = incumbent().args(["life", "my_app", "--grace", AGES, "--", "true"]).output();
    let output = output.expect("it starts");
    let line = String::from_utf8_lossy(&output.stderr);
    assert!(line.contains("more than a year"), "{line}");
    assert_eq!(output.status.code(), Some(2));
}

/// Whoever starts it with signals ignored, as nohup does, means it.
#[tokio::test]
async fn a_hangup_that_is_ignored_stays_ignored() {
    let scene = Scene::start().await;
    let program = env!("CARGO_BIN_EXE_incumbent");
    let script = format!(
        "trap '' HUP; exec {program} run my_app -s {} -- sh -c 'echo up; exec cat'",
        scene.server.url()
    );
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]).stdin(std::process::Stdio::piped());
    let mut run = crate::scene::Campaigner::start(command);
    run.says("up").await;
    run.signal(Signal::HUP);
    run.write("still here\n");
    run.says("still here").await;
    run.signal(Signal::TERM);
    assert_eq!(run.exit_code().await, Some(128 + 15));
    eventually("released", async || scene.holder("my_app").await.is_none().then_some(())).await;
}
