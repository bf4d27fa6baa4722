//! A disk that hangs under the deadline file: the term ends, and another candidate takes over.

use std::process::Command;

use incumbent_test_support::eventually;
use rustix::fs::{CWD, Mode, mkfifoat};

use crate::root::{Frozen, is_root};
use crate::scene::{Campaigner, Scene};

const TELL: &str = "echo $INCUMBENT_DEADLINE_FILE; echo up; exec sleep 1000";

/// From now on whoever writes the file waits for ever, as on a disk that hangs: nobody reads from the pipe that it opens.
async fn hang(file: &str) {
    eventually("no write is under way", async || {
        mkfifoat(CWD, format!("{file}.new"), Mode::RUSR | Mode::WUSR).ok()
    })
    .await;
}

#[tokio::test]
async fn a_term_ends_when_its_deadline_cannot_be_written() {
    let scene = Scene::start().await;
    let mut first = scene.run("my_app", &[], TELL);
    let file = first.line().await;
    first.says("up").await;
    let mut second = scene.run("my_app", &[], TELL);
    hang(&file).await;
    second.says("up").await;
    assert_eq!(first.descendants(), [""; 0], "nothing is left when the next one starts");
    assert_eq!(first.exit_code().await, Some(1));
    let line = first.errors();
    assert!(line.contains("cannot write the deadline file"), "{line}");
}

#[tokio::test]
async fn a_command_that_always_runs_is_told_of_the_end() {
    let scene = Scene::start().await;
    let script = "trap 'echo won' USR1; trap 'echo lost' USR2; echo $INCUMBENT_DEADLINE_FILE; \
                  while :; do sleep 0.01; done";
    let mut first = scene.run("my_app", &["--keep-running"], script);
    let file = first.line().await;
    first.says("won").await;
    let mut second = scene.run("my_app", &[], TELL);
    hang(&file).await;
    first.says("lost").await;
    second.says("up").await;
    assert_eq!(first.exit_code().await, Some(1));
    let line = first.errors();
    assert!(line.contains("cannot write the deadline file"), "{line}");
}

/// A real one, where a file system may be made and frozen.
#[tokio::test]
async fn a_file_system_that_is_frozen_ends_the_term() {
    let Some(disk) = is_root().then(Frozen::make).flatten() else { return };
    let scene = Scene::start().await;
    let mut command: Command = scene.command("my_app", &[], &["sh", "-c", TELL]);
    command.env("TMPDIR", disk.path()).env_remove("XDG_RUNTIME_DIR");
    let mut first = Campaigner::start(command);
    assert!(first.line().await.starts_with(&disk.path().display().to_string()));
    first.says("up").await;
    let mut second = scene.run("my_app", &[], TELL);
    disk.freeze();
    second.says("up").await;
    assert_eq!(first.descendants(), [""; 0], "nothing is left when the next one starts");
    disk.thaw();
    assert_eq!(first.exit_code().await, Some(1));
}
