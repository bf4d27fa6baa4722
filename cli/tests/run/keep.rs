//! A command that always runs, and is told.

use incumbent_test_support::eventually;
use rustix::process::Signal;

use crate::scene::{Scene, deadline};

const LISTEN: &str = "trap 'echo won' USR1; trap 'echo lost' USR2; echo listening; \
                      while :; do sleep 0.01; done";

#[tokio::test]
async fn it_is_told_of_every_win_and_loss_and_goes_on() {
    let scene = Scene::start().await;
    let script =
        format!("echo $$; echo $INCUMBENT_DEADLINE_FILE; echo \"<$INCUMBENT_TOKEN>\"; {LISTEN}");
    let mut first = scene.run("my_app", &["--keep-running"], &script);
    let pid = first.line().await;
    let file = first.line().await;
    assert_eq!(first.line().await, "<>");
    first.says("won").await;
    let (_, token) = deadline(&file);
    assert_ne!(token, "0");
    let mut second = scene.run("my_app", &["--keep-running"], LISTEN);
    second.says("listening").await;
    assert!(second.is_silent(), "it runs, and was told of nothing");
    scene.evict("my_app").await;
    assert_eq!(first.line().await, "lost");
    let lapsed = async || (deadline(&file) == (0.0, "0".to_owned())).then_some(());
    eventually("the file says so, too", lapsed).await;
    second.says("won").await;
    second.signal(Signal::TERM);
    assert_eq!(second.exit_code().await, Some(128 + 15));
    first.says("won").await;
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists(), "the same process");
    first.signal(Signal::TERM);
    assert_eq!(first.exit_code().await, Some(128 + 15));
    assert_eq!(first.descendants(), [""; 0]);
    assert_eq!(scene.holder("my_app").await, None);
}

/// The signal would kill a command that has no handler yet.
#[tokio::test]
async fn a_signal_waits_for_its_handler() {
    let scene = Scene::start().await;
    let mut command = scene.command(
        "my_app",
        &["--keep-running"],
        &["sh", "-c", &format!("echo $INCUMBENT_DEADLINE_FILE; read go; {LISTEN}")],
    );
    command.stdin(std::process::Stdio::piped());
    let mut run = crate::scene::Campaigner::start(command);
    let file = run.line().await;
    let leads = async || Some(deadline(&file).0).filter(|deadline| *deadline > 0.0);
    let won = eventually("it leads", leads).await;
    eventually("it renews", async || leads().await.filter(|later| *later > won)).await;
    run.write("go\n");
    assert_eq!(run.line().await, "listening");
    assert_eq!(run.line().await, "won");
}

#[tokio::test]
async fn it_dies_with_a_campaigner_that_is_killed() {
    let scene = Scene::start().await;
    let mut run = scene.run_without_cgroup(
        "my_app",
        &["--keep-running"],
        "setsid sleep 1000 & echo up; exec sleep 1000",
    );
    run.says("up").await;
    run.signal(Signal::KILL);
    run.nothing_is_left().await;
}

#[tokio::test]
async fn its_exit_is_the_programs() {
    let scene = Scene::start().await;
    assert_eq!(scene.run("my_app", &["--keep-running"], "exit 5").exit_code().await, Some(5));
    let mut run = scene.run("my_app", &["--keep-running", "--on-exit", "restart"], "echo again");
    run.says("again").await;
    run.says("again").await;
}
