//! The guard alone, without further messages from the candidate that started it.

use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use incumbent_test_support::eventually;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::json;

use crate::env::now;

const SPACE: usize = rustix::cmsg_space!(ScmRights(1));

/// A socket that passes a file as standard input, and its other end.
fn channel(input: &str) -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let input = std::fs::File::open(input).expect("input");
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [input.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(&ours, &[IoSlice::new(b"\n")], &mut control, SendFlags::empty()).expect("sent");
    (ours, theirs)
}

/// The schedule of a command that may run until `ask_at`, in seconds since boot.
fn schedule(ask_at: f64) -> String {
    let ask_at = (ask_at * 1e9) as u64;
    json!({"ask_at": ask_at, "kill_at": ask_at + 100_000_000}).to_string()
}

/// A guard whose command may run for a given time from now. Killed when dropped.
struct Guard {
    child: Child,
    channel: UnixStream,
    /// Until when, in seconds since boot.
    ask_at: f64,
}

impl Guard {
    fn start(may_run: Duration, script: &str) -> Self {
        let (ours, theirs) = channel("/dev/null");
        let ask_at = now() + may_run.as_secs_f64();
        let until = schedule(ask_at);
        let child = Command::new(env!("CARGO_BIN_EXE_incumbent"))
            .args(["run-guard", "100", "15", "-", "-", &until, "-", "-", "-", "null"])
            .args(["sh", "-c", script])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        Self { child, channel: ours, ask_at }
    }

    /// The output of the command.
    fn output(&mut self) -> String {
        let mut output = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut output).expect("text");
        output
    }

    /// The first line that the guard sends.
    fn report(&self) -> String {
        let mut line = String::new();
        BufReader::new(&self.channel).read_line(&mut line).expect("a line");
        line
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn command_has_a_deadline_from_its_start() {
    // A busy machine starts it in time, too.
    let mut guard = Guard::start(Duration::from_secs(15), "trap '' TERM; echo up; exec sleep 1000");
    assert_eq!(guard.output(), "up\n", "the output ends with the command");
    assert!(now() >= guard.ask_at, "the command ran until the deadline");
    assert_eq!(guard.report(), "\"expired\"\n");
    assert!(guard.child.wait().expect("it ends").success());
}

#[test]
fn expired_command_is_not_started() {
    let mut guard = Guard::start(Duration::ZERO, "echo up");
    assert_eq!(guard.output(), "");
    assert_eq!(guard.report(), "\"expired\"\n");
}

/// Its guard reports an expiry, and stops it: by itself it would look like a command that failed.
/// Or the term is renewed while the process starts on a busy machine.
#[tokio::test]
async fn command_that_is_too_late_to_start_waits_for_a_renewal() {
    let (mut ours, theirs) = channel("/proc/self/status");
    let past = json!({"ask_at": 1, "kill_at": 2}).to_string();
    let mut late = Command::new(env!("CARGO_BIN_EXE_incumbent"))
        .args(["run-exec", &std::process::id().to_string(), "-", &past, "-"])
        .args(["sh", "-c", "read -r name value && echo $name"])
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut looks = 0;
    eventually("it waits", async || {
        assert_eq!(late.try_wait().expect("a status"), None, "it ended by itself");
        looks += 1;
        (looks == 50).then_some(())
    })
    .await;
    for schedule in [past, schedule(now() + 60.0)] {
        writeln!(ours, "{schedule}").expect("it reads");
    }
    let output = late.wait_with_output().expect("an end");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Name:\n", "the input of the command");
}

/// Else the candidate would take a command for running that was never started.
#[test]
fn reaper_without_descriptors_reports_that_nothing_is_left() {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let status = Command::new("sh")
        .args(["-c", "ulimit -n 4; exec \"$0\" run-reaper - - true"])
        .arg(env!("CARGO_BIN_EXE_incumbent"))
        .stdin(OwnedFd::from(theirs))
        .stderr(Stdio::null())
        .status();
    assert_eq!(status.expect("it starts").code(), Some(1));
    let mut line = String::new();
    BufReader::new(ours).read_line(&mut line).expect("text");
    assert_eq!(line, "\"empty\"\n");
}
