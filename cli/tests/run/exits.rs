//! How the program ends: with the exit code of the command, by signals, and when it hangs.

use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use incumbent_test_support::{FreezableDisk, eventually};
use rustix::process::Signal;

use crate::env::{Candidate, STEADY, TestEnv, incumbent};

fn without_server(args: &[&str]) -> Output {
    incumbent().args(args).args(["-s", "nats://127.0.0.1:1"]).output().expect("it starts")
}

#[tokio::test]
async fn exit_code_is_returned_and_the_lock_released() {
    let env = TestEnv::calm().await;
    let mut run = env.run("my_app", &[], "exit 7");
    assert_eq!(run.exit_code().await, Some(7));
    assert_eq!(env.holder("my_app").await, None);
    assert_eq!(env.run("my_app", &[], "exit 0").exit_code().await, Some(0));
    let killed = env.run("my_app", &[], "kill -KILL $$").exit().await;
    assert_eq!((killed.code(), killed.signal()), (Some(128 + 9), None));
}

#[tokio::test]
async fn remaining_processes_are_stopped() {
    let env = TestEnv::calm().await;
    let mut run = env.run("my_app", &[], "setsid sleep 1000 & exit 3");
    assert_eq!(run.exit_code().await, Some(3));
    assert_eq!(run.descendants(), [""; 0]);
}

#[tokio::test]
async fn all_descendants_receive_the_stop_signal() {
    let env = TestEnv::calm().await;
    let below = "trap 'echo stopping; exit' TERM; echo up; while :; do sleep 0.05; done";
    let script = format!("sh -c 'setsid sh -c \"{below}\"; :' & exec sleep 1000");
    let script = script.replace("'echo stopping; exit'", "\\\"echo stopping; exit\\\"");
    let mut run = env.run("my_app", &[], &script);
    run.wait_for_line("up").await;
    run.signal(Signal::TERM);
    run.wait_for_line("stopping").await;
    assert_eq!(run.exit_code().await, Some(128 + 15));
}

#[tokio::test]
async fn command_restarts_in_the_same_term() {
    let env = TestEnv::calm().await;
    let mut run = env.run("my_app", &["--on-exit", "restart"], "echo $INCUMBENT_TOKEN; exit 1");
    let token = run.line().await;
    assert_eq!(run.line().await, token);
    run.signal(Signal::TERM);
    assert_eq!(run.exit_code().await, Some(128 + 15));
    assert_eq!(env.holder("my_app").await, None);
}

#[tokio::test]
async fn program_may_exit_without_a_release() {
    let env = TestEnv::calm().await;
    let flags = ["--on-exit", "stop", "--identity", "gone"];
    assert_eq!(env.run("my_app", &flags, "exit 9").exit_code().await, Some(9));
    assert_eq!(env.holder("my_app").await.as_deref(), Some("gone"));
}

#[tokio::test]
async fn stop_signal_is_configurable() {
    let env = TestEnv::calm().await;
    let script = "trap 'echo stopping; exit 0' INT; echo up; while :; do sleep 0.01; done";
    let mut run = env.run("my_app", &["--signal", "SIGUSR2"], &script.replace("INT", "USR2"));
    run.wait_for_line("up").await;
    run.signal(Signal::TERM);
    run.wait_for_line("stopping").await;
    assert_eq!(run.exit_code().await, Some(128 + 15));
}

/// The command is checked before the program campaigns: there is no server here.
#[test]
fn command_that_cannot_run_is_reported_in_one_line() {
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
async fn invalid_flags_are_reported_in_one_line() {
    assert_eq!(without_server(&["run", "my_app"]).status.code(), Some(2), "no command");
    let output = incumbent()
        .args(["run", "my_app", "-s", "nats://127.0.0.1:1", "--timeout", "5s", "--", "true"])
        .output();
    assert_eq!(output.expect("it starts").status.code(), Some(4));
    let env = TestEnv::start().await;
    let mut run = env.run("my_app", &["--grace", "3900ms"], "true");
    assert_eq!(run.exit_code().await, Some(2));
    let line = run.stderr();
    assert!(line.contains("a grace of 3s 900ms is too long for a lease of 4s"), "{line}");
}

/// `nohup` starts a program with SIGHUP ignored.
#[tokio::test]
async fn ignored_hangup_stays_ignored() {
    let env = TestEnv::calm().await;
    let program = env!("CARGO_BIN_EXE_incumbent");
    let script = format!(
        "trap '' HUP; exec {program} run my_app -s {} -- sh -c 'echo up; exec cat'",
        env.server.url()
    );
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]).stdin(std::process::Stdio::piped());
    let mut run = Candidate::start(command);
    run.wait_for_line("up").await;
    run.signal(Signal::HUP);
    run.write("still here\n");
    run.wait_for_line("still here").await;
    run.signal(Signal::TERM);
    assert_eq!(run.exit_code().await, Some(128 + 15));
    eventually("released", async || env.holder("my_app").await.is_none().then_some(())).await;
}

/// A shell starts a program in the background with SIGINT ignored.
#[tokio::test]
async fn ignored_interrupt_stays_ignored_by_a_campaign() {
    let env = TestEnv::calm().await;
    let campaign = env.campaign("my_app", &[]);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' INT; exec \"$@\"", "sh"]).arg(campaign.get_program());
    command.args(campaign.get_args()).stdin(std::process::Stdio::null());
    let mut run = Candidate::start(command);
    while !run.line().await.starts_with("won") {}
    let status = format!("/proc/{}/status", run.pid().as_raw_pid());
    let status = std::fs::read_to_string(status).expect("it runs");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a set");
    let ignored = u64::from_str_radix(ignored.trim(), 16).expect("a set");
    assert_eq!(ignored >> (Signal::INT.as_raw() - 1) & 1, 1);
}

const LISTEN: &str = "trap 'echo HUP' HUP; trap 'echo USR1' USR1; trap 'echo USR2' USR2; echo up; \
                      while :; do sleep 0.01; done";

#[tokio::test]
async fn user_signals_reach_the_command() {
    let env = TestEnv::calm().await;
    let mut first = env.run("my_app", &["--identity", "first"], LISTEN);
    first.wait_for_line("up").await;
    let mut second = env.run("my_app", &["--identity", "second"], LISTEN);
    second.wait_for_handlers().await;
    for (signal, name) in
        [(Signal::HUP, "HUP"), (Signal::USR1, "USR1"), (Signal::USR2, "USR2"), (Signal::HUP, "HUP")]
    {
        second.signal(signal); // no command runs, so the signal has no recipient
        first.signal(signal);
        assert_eq!(first.line().await, name);
    }
    first.signal(Signal::TERM);
    assert_eq!(first.exit_code().await, Some(128 + 15));
    assert_eq!(second.line().await, "up", "the standby survived the signals");
    second.signal(Signal::TERM);
    assert_eq!(second.exit_code().await, Some(128 + 15));
}

/// The default action of the signal would kill the command.
#[tokio::test]
async fn command_without_handlers_survives_signals() {
    let env = TestEnv::calm().await;
    let script = "echo up; read line; trap 'echo HUP' HUP; echo ready; read line; echo end";
    let mut command = env.command("my_app", &[], &["sh", "-c", script]);
    command.stdin(std::process::Stdio::piped());
    let mut run = Candidate::start(command);
    run.wait_for_line("up").await;
    run.signal(Signal::USR1);
    run.write("one\n");
    run.wait_for_line("ready").await;
    run.write("two\n");
    run.wait_for_line("end").await;
    assert_eq!(run.exit_code().await, Some(0));
}

#[tokio::test]
async fn command_in_uninterruptible_sleep_does_not_hold_the_lease() {
    let Some(disk) = FreezableDisk::mount("a command that waits for a disk") else { return };
    let env = TestEnv::with_ttl(STEADY).await;
    disk.freeze();
    let script =
        format!("echo up; exec dd if=/dev/zero of={}/out 2>/dev/null", disk.path().display());
    let mut first = env.run("my_app", &[], &script);
    first.wait_for_line("up").await;
    first.wait_for_disk_sleep().await; // before this state a signal ends it
    let mut second = env.run("my_app", &[], "echo up; exec sleep 1000");
    first.signal(Signal::TERM);
    assert_eq!(first.exit_code().await, Some(1));
    let stderr = first.stderr();
    assert!(stderr.contains("(dd) was killed, and is in uninterruptible sleep"), "{stderr}");
    second.wait_for_line("up").await;
    disk.thaw();
    first.wait_for_no_descendants().await;
}
