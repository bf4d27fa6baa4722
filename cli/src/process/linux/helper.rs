//! What a candidate and its helper processes, such as the guard, tell each other.

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::Duration;

use incumbent::clock::{BootClock, Instant};
use incumbent::sentinel::encode;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// When work is stopped without a later request: by a request to end, and by force. All processes
/// of a machine read the same clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopTimes {
    #[serde(serialize_with = "to_nanos", deserialize_with = "from_nanos")]
    pub ask_at: Instant,
    #[serde(serialize_with = "to_nanos", deserialize_with = "from_nanos")]
    pub kill_at: Instant,
}

pub fn to_nanos<S: Serializer>(instant: &Instant, to: S) -> Result<S::Ok, S::Error> {
    u64::try_from(instant.since_origin().as_nanos()).unwrap_or(u64::MAX).serialize(to)
}

pub fn from_nanos<'d, D: Deserializer<'d>>(from: D) -> Result<Instant, D::Error> {
    u64::deserialize(from).map(|nanos| Instant::from_origin(Duration::from_nanos(nanos)))
}

/// Waits until the instant; forever without one. Cancel safe.
pub async fn sleep_until(until: impl Into<Option<Instant>>) {
    match until.into() {
        Some(until) => incumbent::clock::sleep_until(BootClock, until).await,
        None => std::future::pending().await,
    }
}

/// The arguments with what variables and the file with options add.
static ARGUMENTS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Sets the arguments of this process, once.
pub fn set_own_arguments(arguments: Vec<OsString>) {
    let _ = ARGUMENTS.set(arguments);
}

/// The arguments of this process before those of a command, and `rest`, as JSON; `None` if they are
/// not text. They may have secrets of variables: the list of processes must not show them.
pub fn own_arguments(rest: &[&str]) -> Option<String> {
    let args = ARGUMENTS.get()?.iter().take_while(|arg| *arg != "--");
    let args = args.map(|arg| arg.clone().into_string().ok()).collect::<Option<Vec<_>>>()?;
    serde_json::to_string(&[args, rest.iter().map(|arg| (*arg).to_owned()).collect()].concat()).ok()
}

/// What ends the arguments of this program where a command is required after them.
pub const NO_COMMAND: [&str; 2] = ["--", "true"];

/// Why a message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsent {
    /// The other process does not read. A part of the message may have been sent, which makes the
    /// rest of the channel unreadable.
    NotRead,
    /// It is gone, which whoever reads its messages notices too.
    Gone,
}

/// Sends a message without waiting: a suspended process does not read.
pub fn send(mut channel: &UnixStream, message: &impl Serialize) -> Result<(), Unsent> {
    let message = encode(message);
    match channel.write(&message) {
        Ok(written) if written == message.len() => Ok(()),
        Ok(_) => Err(Unsent::NotRead),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Unsent::NotRead),
        Err(_) => Err(Unsent::Gone),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_of_a_message_counts_as_a_full_channel() {
        let (ours, other) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        assert_eq!(send(&ours, &"a small message"), Ok(()));
        let large = "x".repeat(8 << 20);
        assert_eq!(send(&ours, &large), Err(Unsent::NotRead), "more than a channel can take");
        assert_eq!(send(&ours, &"another one"), Err(Unsent::NotRead));
        drop(other);
        // A child that another test starts has the other end, until it executes its program.
        let is_gone = || {
            std::thread::sleep(std::time::Duration::from_millis(10));
            send(&ours, &"to nobody") == Err(Unsent::Gone)
        };
        assert!((0..6_000).any(|_| is_gone()));
    }
}
