//! A command that becomes another user, so that the guard may not signal it although it runs.

use std::process::Command;

use rustix::process::{Signal, kill_process};

use crate::env::{Candidate, TestEnv};
use crate::root::{BecomeRoot, Delegated, SharedProgram, is_root, not_of_root};

/// A candidate whose command runs as root.
fn command_of_root(env: &TestEnv, become_root: &BecomeRoot) -> Command {
    let prefix = become_root.prefix();
    let script = format!("exec {prefix} sh -c 'echo up; exec sleep 1000 2>/dev/null'");
    // The stop signal does not reach it, so its grace is waited for.
    env.command("my_app", &["--grace", "500ms"], &["sh", "-c", &script])
}

#[tokio::test]
async fn command_of_another_user_is_not_considered_ended() {
    let Some(become_root) = is_root().then(BecomeRoot::create).flatten() else { return };
    let env = TestEnv::calm().await;
    let program = SharedProgram::create();
    let mut run = Candidate::start(program.as_nobody(&command_of_root(&env, &become_root)));
    run.wait_for_line("up").await;
    run.signal(Signal::TERM);
    assert_eq!(run.exit_code().await, Some(1));
    let stderr = run.stderr();
    assert!(stderr.contains("runs as another user and cannot be signalled"), "{stderr}");
    assert!(env.holder("my_app").await.is_some(), "not released: the command still runs");
    assert_eq!(run.descendants().len(), 1, "the command still runs");
}

/// The program does not wait for it forever.
#[tokio::test]
async fn foreign_command_of_a_killed_guard_ends_the_program() {
    let Some(become_root) = is_root().then(BecomeRoot::create).flatten() else { return };
    let env = TestEnv::calm().await;
    let program = SharedProgram::create();
    let mut run = Candidate::start(program.as_nobody(&command_of_root(&env, &become_root)));
    run.wait_for_line("up").await;
    kill_process(run.guard(), Signal::KILL).expect("a guard");
    assert_eq!(run.exit_code().await, Some(1));
    let stderr = run.stderr();
    assert!(stderr.contains("runs as another user and cannot be signalled"), "{stderr}");
    assert!(env.holder("my_app").await.is_some(), "not released: the command still runs");
}

/// Killing the group needs no permission to signal its processes.
#[tokio::test]
async fn control_group_kills_a_command_of_another_user() {
    let Some(become_root) = is_root().then(BecomeRoot::create).flatten() else { return };
    let Some(group) = Delegated::create() else { return };
    let env = TestEnv::calm().await;
    let program = SharedProgram::create();
    let command = command_of_root(&env, &become_root);
    let mut in_group = Command::new("sh");
    in_group.args(["-c", &group.shell(), "sh"]).arg(program.path()).args(command.get_args());
    not_of_root(&mut in_group).env_remove("NATS_URL").env_remove("NATS_CREDS");
    let mut run = Candidate::start(in_group);
    run.wait_for_line("up").await;
    env.evict("my_app").await;
    run.wait_for_line("up").await;
    let descendants = run.descendants();
    assert_eq!(descendants.len(), 1, "one at a time: {descendants:?}");
    run.signal(Signal::TERM);
    assert_eq!(run.exit_code().await, Some(128 + 15));
    assert_eq!(run.descendants(), [""; 0]);
    assert_eq!(env.holder("my_app").await, None, "released");
}
