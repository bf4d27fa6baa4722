//! `--keep-running`: a command that runs in every state, with signals for wins and losses.

use incumbent_test_support::eventually;
use rustix::process::Signal;

use crate::env::{Candidate, TestEnv, read_deadline};

const LISTEN: &str = "trap 'echo won' USR1; trap 'echo lost' USR2; echo listening; \
                      while :; do sleep 0.01; done";

#[tokio::test]
async fn kept_command_is_signalled_on_each_win_and_loss() {
    let env = TestEnv::start().await;
    let script =
        format!("echo $$; echo $INCUMBENT_DEADLINE_FILE; echo \"<$INCUMBENT_TOKEN>\"; {LISTEN}");
    let mut first = env.run("my_app", &["--keep-running"], &script);
    let pid = first.line().await;
    let file = first.line().await;
    assert_eq!(first.line().await, "<>");
    first.wait_for_line("won").await;
    let (_, token) = read_deadline(&file);
    assert_ne!(token, "0");
    let mut second = env.run("my_app", &["--keep-running"], LISTEN);
    second.wait_for_line("listening").await;
    assert!(second.is_silent(), "the command runs and received no signal");
    env.evict("my_app").await;
    assert_eq!(first.line().await, "lost");
    let lapsed = async || (read_deadline(&file) == (0.0, "0".to_owned())).then_some(());
    eventually("the deadline file reports the loss", lapsed).await;
    second.wait_for_line("won").await;
    second.signal(Signal::TERM);
    assert_eq!(second.exit_code().await, Some(128 + 15));
    first.wait_for_line("won").await;
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists(), "the same process");
    first.signal(Signal::TERM);
    assert_eq!(first.exit_code().await, Some(128 + 15));
    assert_eq!(first.descendants(), [""; 0]);
    assert_eq!(env.holder("my_app").await, None);
}

/// The default action of the signal would kill a command without a handler.
#[tokio::test]
async fn signal_is_delayed_until_its_handler_exists() {
    let env = TestEnv::start().await;
    let mut command = env.command(
        "my_app",
        &["--keep-running"],
        &["sh", "-c", &format!("echo $INCUMBENT_DEADLINE_FILE; read go; {LISTEN}")],
    );
    command.stdin(std::process::Stdio::piped());
    let mut run = Candidate::start(command);
    let file = run.line().await;
    let leads = async || Some(read_deadline(&file).0).filter(|deadline| *deadline > 0.0);
    let won = eventually("the candidate leads", leads).await;
    eventually("the candidate renews", async || leads().await.filter(|later| *later > won)).await;
    run.write("go\n");
    assert_eq!(run.line().await, "listening");
    assert_eq!(run.line().await, "won");
}

#[tokio::test]
async fn kept_command_dies_with_a_killed_candidate() {
    let env = TestEnv::start().await;
    let mut run = env.run_without_cgroup(
        "my_app",
        &["--keep-running"],
        "setsid sleep 1000 & echo up; exec sleep 1000",
    );
    run.wait_for_line("up").await;
    run.signal(Signal::KILL);
    run.wait_for_no_descendants().await;
}

#[tokio::test]
async fn exit_code_of_the_kept_command_is_returned() {
    let env = TestEnv::start().await;
    assert_eq!(env.run("my_app", &["--keep-running"], "exit 5").exit_code().await, Some(5));
    let mut run = env.run("my_app", &["--keep-running", "--on-exit", "restart"], "echo again");
    run.wait_for_line("again").await;
    run.wait_for_line("again").await;
}
