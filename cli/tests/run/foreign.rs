//! A command that becomes another user: nothing may signal it, which is not that it has ended.

use std::process::Command;

use rustix::process::Signal;

use crate::root::{BecomeRoot, Delegated, ForEverybody, is_root, not_of_root};
use crate::scene::{Campaigner, Scene};

#[tokio::test]
async fn one_that_may_not_be_signalled_ends_the_term_at_once_and_loudly() {
    let Some(become_root) = is_root().then(BecomeRoot::make).flatten() else { return };
    let scene = Scene::start().await;
    let script = format!("echo up; {} sleep 1000 2>/dev/null", become_root.prefix());
    let program = ForEverybody::make();
    let command = scene.command("my_app", &[], &["sh", "-c", &script]);
    let mut run = Campaigner::start(program.as_nobody(&command));
    run.says("up").await;
    assert_eq!(run.exit_code().await, Some(1));
    let told = run.errors();
    assert!(told.contains("runs as another user and cannot be signalled"), "{told}");
    assert!(told.contains("(sleep) runs as another user and cannot be signalled"), "{told}");
    assert_eq!(run.descendants().len(), 1, "it goes on");
    assert!(scene.holder("my_app").await.is_some(), "not released: it still works");
}

/// The same by a signal that ends the program before anybody has looked.
#[tokio::test]
async fn one_that_may_not_be_signalled_is_not_taken_for_ended() {
    let Some(become_root) = is_root().then(BecomeRoot::make).flatten() else { return };
    let scene = Scene::start().await;
    let script =
        format!("exec {} sh -c 'echo up; exec sleep 1000 2>/dev/null'", become_root.prefix());
    let program = ForEverybody::make();
    let command = scene.command("my_app", &[], &["sh", "-c", &script]);
    let mut run = Campaigner::start(program.as_nobody(&command));
    run.says("up").await;
    run.signal(Signal::TERM);
    assert_eq!(run.exit_code().await, Some(1));
    let told = run.errors();
    assert!(told.contains("runs as another user and cannot be signalled"), "{told}");
    assert!(scene.holder("my_app").await.is_some(), "not released: it still works");
}

/// Killing the group asks for no rights.
#[tokio::test]
async fn a_control_group_ends_it() {
    let Some(become_root) = is_root().then(BecomeRoot::make).flatten() else { return };
    let Some(group) = Delegated::make() else { return };
    let scene = Scene::start().await;
    let script =
        format!("exec {} sh -c 'echo up; exec sleep 1000 2>/dev/null'", become_root.prefix());
    let program = ForEverybody::make();
    let command = scene.command("my_app", &[], &["sh", "-c", &script]);
    let mut in_group = Command::new("sh");
    in_group.args(["-c", &group.shell(), "sh"]).arg(program.path()).args(command.get_args());
    not_of_root(&mut in_group).env_remove("NATS_URL").env_remove("NATS_CREDS");
    let mut run = Campaigner::start(in_group);
    run.says("up").await;
    scene.evict("my_app").await;
    run.says("up").await;
    let descendants = run.descendants();
    assert_eq!(descendants.len(), 1, "one at a time: {descendants:?}");
    run.signal(Signal::TERM);
    assert_eq!(run.exit_code().await, Some(128 + 15));
    assert_eq!(run.descendants(), [""; 0]);
    assert_eq!(scene.holder("my_app").await, None, "released");
}
