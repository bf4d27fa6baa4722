//! The guard by itself: who started it is stopped before it could say anything more.

use std::io::{BufRead, BufReader, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::scene::now;

const SPACE: usize = rustix::cmsg_space!(ScmRights(1));

/// A guard of a command that may run from now on for so long. Killed when dropped.
struct Guard {
    child: Child,
    channel: UnixStream,
}

impl Guard {
    fn start(may_run: Duration, script: &str) -> Self {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let input = std::fs::File::open("/dev/null").expect("no input");
        let mut space = [MaybeUninit::uninit(); SPACE];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [input.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(&ours, &[IoSlice::new(b"\n")], &mut control, SendFlags::empty()).expect("sent");
        let ask_at = ((now() + may_run.as_secs_f64()) * 1e9) as u128;
        let kill_at = ask_at + 100_000_000;
        let child = Command::new(env!("CARGO_BIN_EXE_incumbent"))
            .args(["run-guard", "100", "15", "-", "-", &format!("{ask_at} {kill_at}")])
            .args(["sh", "-c", script])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        Self { child, channel: ours }
    }

    /// What the command said.
    fn output(&mut self) -> String {
        let mut said = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
        said
    }

    /// What it tells first.
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
fn a_command_has_a_deadline_from_its_start() {
    let mut guard = Guard::start(Duration::from_secs(1), "trap '' TERM; echo up; exec sleep 1000");
    let begun = now();
    assert_eq!(guard.output(), "up\n", "its output ends with it");
    assert!(now() - begun >= 0.5, "it ran until then");
    assert_eq!(guard.report(), "expired\n");
    assert!(guard.child.wait().expect("it ends").success());
}

#[test]
fn a_command_whose_time_is_over_is_not_started() {
    let mut guard = Guard::start(Duration::ZERO, "echo up");
    assert_eq!(guard.output(), "");
    assert_eq!(guard.report(), "expired\n");
}
