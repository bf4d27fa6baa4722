//! The messages between candidate and guard, one per line, as JSON.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use incumbent::clock::Instant;
use incumbent::sentinel::SentinelMessage;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::process::{StopTimes, from_nanos, to_nanos};

/// A request to the guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardRequest {
    /// Replaces the schedule by a later one.
    RunUntil(StopTimes),
    /// Send the stop signal now, and SIGKILL at this instant.
    Stop {
        #[serde(serialize_with = "to_nanos", deserialize_with = "from_nanos")]
        kill_at: Instant,
    },
    /// Send the stop signal now, and keep to the schedule.
    Drain,
    /// Send this signal, which the candidate received, to the command once it has a handler.
    PassOn(i32),
    /// Be the sentinel of the candidate, which has these arguments, as JSON.
    Sentinel(String),
    /// A term to release if the candidate dies began, or one is over.
    Term(SentinelMessage),
    /// Stop the command's process group until the reaper continues it, as a terminal does.
    Suspend,
}

/// An event of the guard, or of its reaper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardEvent {
    /// The command ended with this exit code, as a shell reports it.
    Ended { code: u8 },
    /// The command was stopped by this signal.
    Stopped(i32),
    /// The command's process group received this signal.
    Interrupted(i32),
    /// The schedule has passed: the tree is being stopped, or was not started.
    Expired,
    /// No process of the tree is left: its subreaper has no child to wait for.
    Empty,
    /// These processes were killed, and have not ended yet.
    Left(String),
    /// The watchdog of the machine is disarmed.
    Disarmed,
    /// Acknowledges a request. Acknowledgements are in order.
    Received,
}

const SPACE: usize = rustix::cmsg_space!(ScmRights(1));

pub fn send_fd(channel: &UnixStream, fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(channel, &[IoSlice::new(b"\n")], &mut control, SendFlags::empty())?;
    Ok(())
}

pub fn receive_fd(channel: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(channel, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let received = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    received.ok_or_else(|| io::Error::other("the parent passed no standard input"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use incumbent::sentinel::encode;

    use super::*;
    use crate::process::reaper;

    #[test]
    fn every_message_is_parsed() {
        let at = |ms| Instant::from_origin(Duration::from_millis(ms));
        for request in [
            GuardRequest::RunUntil(StopTimes { ask_at: at(1), kill_at: at(2) }),
            GuardRequest::Stop { kill_at: at(3) },
            GuardRequest::Sentinel(r#"["run", "a b"]"#.to_owned()),
        ] {
            assert_eq!(
                serde_json::from_slice::<GuardRequest>(&encode(&request)).ok(),
                Some(request)
            );
        }
        let left = "process 7 (a \"b\") was killed";
        for (report, event) in [
            (reaper::EMPTY.to_owned(), GuardEvent::Empty),
            (reaper::left(left), GuardEvent::Left(left.to_owned())),
        ] {
            assert_eq!(serde_json::from_str::<GuardEvent>(&report).ok(), Some(event));
        }
        assert!(serde_json::from_str::<GuardEvent>(r#"{"ended":{"code":256}}"#).is_err());
    }
}
