//! Signals that are not for the program are for its command.

use rustix::process::Signal;

use crate::scene::Scene;

const LISTEN: &str = "trap 'echo HUP' HUP; trap 'echo USR1' USR1; trap 'echo USR2' USR2; echo up; \
                      while :; do sleep 0.01; done";

#[tokio::test]
async fn signals_of_users_reach_the_command() {
    let scene = Scene::start().await;
    let mut first = scene.run("my_app", &["--identity", "first"], LISTEN);
    first.says("up").await;
    let mut second = scene.run("my_app", &["--identity", "second"], LISTEN);
    second.listens().await;
    for (signal, name) in
        [(Signal::HUP, "HUP"), (Signal::USR1, "USR1"), (Signal::USR2, "USR2"), (Signal::HUP, "HUP")]
    {
        second.signal(signal); // no command runs that it could be for
        first.signal(signal);
        assert_eq!(first.line().await, name);
    }
    first.signal(Signal::TERM);
    assert_eq!(first.exit_code().await, Some(128 + 15));
    assert_eq!(second.line().await, "up", "it stood by, and lives");
    second.signal(Signal::TERM);
    assert_eq!(second.exit_code().await, Some(128 + 15));
}

/// It has no handler: as with any program it would die of it.
#[tokio::test]
async fn a_command_that_does_not_listen_goes_on() {
    let scene = Scene::start().await;
    let script = "echo up; read line; trap 'echo HUP' HUP; echo ready; read line; echo end";
    let mut command = scene.command("my_app", &[], &["sh", "-c", script]);
    command.stdin(std::process::Stdio::piped());
    let mut run = crate::scene::Campaigner::start(command);
    run.says("up").await;
    run.signal(Signal::USR1);
    run.write("one\n");
    run.says("ready").await;
    run.write("two\n");
    run.says("end").await;
    assert_eq!(run.exit_code().await, Some(0));
}

/// To a command that always runs they mean that it was elected, or lost.
#[tokio::test]
async fn nobody_else_tells_a_command_that_it_leads() {
    let scene = Scene::start().await;
    let mut leader = scene.run("my_app", &[], "echo up; exec sleep 1000");
    leader.says("up").await;
    let mut run = scene.run("my_app", &["--keep-running"], LISTEN);
    run.says("up").await;
    run.signal(Signal::USR1);
    run.signal(Signal::USR2);
    run.signal(Signal::HUP);
    assert_eq!(run.line().await, "HUP");
    assert!(run.is_silent());
    leader.signal(Signal::TERM);
    assert_eq!(run.line().await, "USR1", "it is elected");
}
