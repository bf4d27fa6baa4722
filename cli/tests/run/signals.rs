//! Signals that `incumbent run` forwards to its command.

use rustix::process::Signal;

use crate::env::{Candidate, TestEnv};

const LISTEN: &str = "trap 'echo HUP' HUP; trap 'echo USR1' USR1; trap 'echo USR2' USR2; echo up; \
                      while :; do sleep 0.01; done";

#[tokio::test]
async fn user_signals_reach_the_command() {
    let env = TestEnv::start().await;
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
    let env = TestEnv::start().await;
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
