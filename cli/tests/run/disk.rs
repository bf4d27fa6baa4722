//! A disk that hangs under the deadline file: the term ends, and another candidate takes over.

use std::process::Command;

use incumbent_test_support::eventually;
use rustix::fs::{CWD, Mode, mkfifoat};

use crate::env::{Candidate, TestEnv};
use crate::root::{FreezableDisk, is_root};

const SERVE: &str = "echo $INCUMBENT_DEADLINE_FILE; echo up; exec sleep 1000";

/// Blocks every later write of the file, as a disk that hangs does: the writer opens a pipe without
/// a reader.
async fn hang(file: &str) {
    eventually("no write is under way", async || {
        mkfifoat(CWD, format!("{file}.new"), Mode::RUSR | Mode::WUSR).ok()
    })
    .await;
}

#[tokio::test]
async fn term_ends_when_its_deadline_cannot_be_written() {
    let env = TestEnv::start().await;
    let mut first = env.run("my_app", &[], SERVE);
    let file = first.line().await;
    first.wait_for_line("up").await;
    let mut second = env.run("my_app", &[], SERVE);
    hang(&file).await;
    second.wait_for_line("up").await;
    assert_eq!(first.descendants(), [""; 0], "no descendant runs when the next command starts");
    assert_eq!(first.exit_code().await, Some(1));
    let line = first.stderr();
    assert!(line.contains("cannot write the deadline file"), "{line}");
}

/// With a real file system, where the machine permits creating and freezing one.
#[tokio::test]
async fn frozen_file_system_ends_the_term() {
    let Some(disk) = is_root().then(FreezableDisk::create).flatten() else { return };
    let env = TestEnv::start().await;
    let mut command: Command = env.command("my_app", &[], &["sh", "-c", SERVE]);
    command.env("TMPDIR", disk.path()).env_remove("XDG_RUNTIME_DIR");
    let mut first = Candidate::start(command);
    assert!(first.line().await.starts_with(&disk.path().display().to_string()));
    first.wait_for_line("up").await;
    let mut second = env.run("my_app", &[], SERVE);
    disk.freeze();
    second.wait_for_line("up").await;
    assert_eq!(first.descendants(), [""; 0], "no descendant runs when the next command starts");
    disk.thaw();
    assert_eq!(first.exit_code().await, Some(1));
}
