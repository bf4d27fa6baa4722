//! The socket of a sentinel of a host.

use std::fs::{self, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use incumbent_test_support::{eventually, not_run};
use rustix::process::{Signal, geteuid};

use crate::env::{Candidate, TestEnv};
use crate::host::{Host, listen, wait_for_socket};
use crate::setup::status;

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
async fn socket_of_a_killed_sentinel_is_replaced_and_that_of_a_living_one_is_not() {
    let env = TestEnv::start().await;
    let mut host = Host::start(&env).await;
    let shown = host.path.display().to_string();
    assert_eq!(
        refusal(listen(&env, &host.path)),
        format!("incumbent: {shown}: another sentinel listens there")
    );
    assert_eq!(status(host.address()).await, (0, 0, None), "the first one still serves");
    host.sentinel.signal(Signal::KILL);
    host.sentinel.exit().await;
    host.restart(&env).await;
    assert_eq!(status(host.address()).await, (0, 0, None));
}

#[tokio::test]
async fn file_of_another_kind_is_not_replaced() {
    let env = TestEnv::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    fs::write(&path, "precious").expect("written");
    let text = refusal(listen(&env, &path));
    assert!(
        text.starts_with(&format!("incumbent: cannot listen at {}: ", path.display())),
        "{text}"
    );
    assert_eq!(fs::read_to_string(&path).expect("a file"), "precious");
    let missing = folder.path().join("none/socket");
    assert!(refusal(listen(&env, &missing)).contains("No such file or directory"));
}

#[tokio::test]
async fn mode_decides_who_may_connect() {
    let env = TestEnv::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    for (flags, expected) in
        [(&[][..], 0o600), (&["--mode", "660"], 0o660), (&["--mode", "0666"], 0o666)]
    {
        let path = folder.path().join(format!("{expected:o}"));
        let mut command = listen(&env, &path);
        command.args(flags);
        let _sentinel = Candidate::start(command);
        wait_for_socket(&path).await;
        eventually("the mode", async || (mode(&path) == expected).then_some(())).await;
    }
}

/// As of a user who may not connect, but may remove the file.
#[tokio::test]
async fn socket_that_denies_access_is_not_replaced() {
    let env = TestEnv::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("rights");
    let path = folder.path().join("socket");
    let _living = UnixListener::bind(&path).expect("a socket");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("rights");
    if !geteuid().is_root() {
        not_run("a user without access to a socket", "needs root");
        return;
    }
    let command = listen(&env, &path);
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    other.arg(command.get_program()).args(command.get_args());
    let text = refusal(other);
    assert!(text.ends_with("Permission denied (os error 13)"), "{text}");
    assert!(fs::symlink_metadata(&path).is_ok_and(|data| data.file_type().is_socket()));
}

/// systemd passes a socket as file descriptor 3, and keeps it.
#[tokio::test]
async fn socket_of_systemd_is_served() {
    let env = TestEnv::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let passed = UnixListener::bind(&path).expect("a socket");
    let command = listen(&env, &path);
    let mut passes = Command::new("sh");
    passes.args(["-c", "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\" 3<&0 </dev/null", "sh"]);
    passes.arg(command.get_program()).args(command.get_args());
    passes.stdin(OwnedFd::from(passed));
    let mut sentinel = Candidate::start(passes);
    assert_eq!(status(path.to_str().expect("text")).await, (0, 0, None));
    sentinel.signal(Signal::TERM);
    assert_eq!(sentinel.exit_code().await, Some(0));
    assert!(path.exists(), "it belongs to systemd");
}
