//! The sentinel as the first process of a container.

use std::fs;
use std::process::{Command, Stdio};

use incumbent_test_support::not_run;
use rustix::process::{Pid, Signal, kill_process};

use crate::env::{Candidate, TestEnv};
use crate::setup::{INTRODUCE, LONG_LEASE, campaign, registered, standby, won, wrapped};

/// Runs `command` as process 1 of its own namespaces; `None` without the permission to create
/// them.
fn contained(command: &Command) -> Option<Command> {
    let flags = ["--pid", "--fork", "--mount-proc", "--kill-child=KILL"];
    let mut test = Command::new("unshare");
    test.args(flags).arg("true").stdout(Stdio::null()).stderr(Stdio::null());
    if !test.status().is_ok_and(|status| status.success()) {
        not_run("the sentinel as process 1", "this user cannot create a PID namespace");
        return None;
    }
    let mut contained = Command::new("unshare");
    contained.args(flags).arg(command.get_program()).args(command.get_args());
    contained.env_remove("NATS_URL").stdin(Stdio::piped());
    Some(contained)
}

/// The process that `unshare` starts as process 1, or the first child of that.
fn child(pid: Pid) -> Pid {
    let id = pid.as_raw_pid();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let children = children.expect("the kernel lists children");
    let first = children.split_whitespace().next().expect("a child");
    Pid::from_raw(first.parse().expect("an id")).expect("an id")
}

#[tokio::test]
async fn first_process_reaps_and_forwards() {
    let env = TestEnv::with_ttl(LONG_LEASE).await;
    let script = "echo $PPID; orphan=$(sleep 0 >/dev/null & echo $!); \
                  while [ -e /proc/$orphan ]; do sleep 0.01; done; echo reaped; \
                  trap 'echo TERM; exit 9' TERM; echo up; while :; do sleep 0.01; done";
    let Some(command) = contained(&wrapped(&env, script, &[])) else { return };
    let mut container = Candidate::start(command);
    assert_eq!(container.line().await, "1");
    assert_eq!(container.line().await, "reaped");
    container.wait_for_line("up").await;
    kill_process(child(container.pid()), Signal::TERM).expect("it runs");
    container.wait_for_line("TERM").await;
    assert_eq!(container.exit_code().await, Some(9));
}

#[tokio::test]
async fn killed_leader_in_a_container_is_replaced() {
    let env = TestEnv::with_ttl(LONG_LEASE).await;
    let command = wrapped(&env, INTRODUCE, &campaign(&env, "my_app", "first"));
    let Some(command) = contained(&command) else { return };
    let mut first = Candidate::start(command);
    let address = first.line().await;
    won(&mut first).await;
    registered(&address, 1).await;
    let mut second = standby(&env).await;
    // From outside, as the kernel does when memory is short.
    kill_process(child(child(first.pid())), Signal::KILL).expect("it runs");
    won(&mut second).await;
    assert_eq!(first.exit_code().await, Some(128 + 9));
}
