//! The socket of a sentinel.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use incumbent::sentinel::connect;
use incumbent_test_support::not_run;
use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use crate::env::{Candidate, TestEnv};
use crate::listening::{Listening, listen, wait_for_socket};
use crate::root::{SharedProgram, is_root};
use crate::setup::counts;

/// Runs a sentinel that must refuse to start. Returns its one line.
fn refusal(mut command: Command) -> String {
    let output = command.output().expect("it starts");
    let text = String::from_utf8(output.stderr).expect("text");
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    text.trim_end().to_owned()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("a socket").permissions().mode() & 0o777
}

#[tokio::test]
async fn only_the_socket_of_a_killed_sentinel_is_replaced() {
    let env = TestEnv::start().await;
    let mut listening = Listening::start(&env).await;
    let shown = listening.path.display().to_string();
    assert_eq!(
        refusal(listen(&env, &listening.path)),
        format!("incumbent: {shown}: another sentinel listens there")
    );
    assert_eq!(counts(listening.address()).await, (0, 0), "the first one still serves");
    listening.sentinel.signal(Signal::KILL);
    listening.sentinel.exit().await;
    listening.restart(&env).await;
    assert_eq!(counts(listening.address()).await, (0, 0));
}

#[tokio::test]
async fn file_of_another_kind_is_not_replaced() {
    let env = TestEnv::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).expect("permissions");
    let path = folder.path().join("file");
    fs::write(&path, "precious").expect("written");
    let text = refusal(listen(&env, &path));
    assert!(
        text.starts_with(&format!("incumbent: cannot listen at {}: ", path.display())),
        "{text}"
    );
    assert_eq!(fs::read_to_string(&path).expect("a file"), "precious");
    let missing = folder.path().join("none/none/socket");
    assert!(refusal(listen(&env, &missing)).contains("No such file or directory"));
}

#[tokio::test]
async fn no_other_user_may_enter_the_directory_of_the_socket() {
    let env = TestEnv::start().await;
    let listening = Listening::start(&env).await;
    let directory = listening.path.parent().expect("a directory");
    assert_eq!((mode(directory), mode(&listening.path)), (0o700, 0o600));
    let folder = tempfile::tempdir().expect("a folder");
    for open in [0o755, 0o770, 0o701] {
        fs::set_permissions(folder.path(), Permissions::from_mode(open)).expect("permissions");
        let text = refusal(listen(&env, &folder.path().join("socket")));
        assert!(text.contains("other users may enter"), "{text}");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }
}

/// A user who reaches the socket all the same, as root does.
#[tokio::test]
async fn process_of_another_user_is_refused_on_both_sides() {
    if !is_root() {
        not_run("a sentinel of another user", "needs root");
        return;
    }
    let env = TestEnv::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("permissions");
    let path = folder.path().join("own/socket");
    let program = SharedProgram::create();
    let _sentinel = Candidate::start(program.as_nobody(&listen(&env, &path)));
    wait_for_socket(&path).await;
    let why = connect(&path).await.expect_err("its owner is another user").to_string();
    assert!(why.contains("another user listens there"), "{why}");
    let mut stream = UnixStream::connect(&path).await.expect("it listens");
    let mut refused = String::new();
    stream.read_to_string(&mut refused).await.expect("a reply");
    assert!(refused.contains("it serves its own user only"), "{refused}");
}
