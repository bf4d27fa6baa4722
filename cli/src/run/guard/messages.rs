//! The messages between candidate and guard, one per line.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use incumbent::clock::Instant;

use crate::process::reaper::{EMPTY, LEFT};

/// When the tree is stopped without a later request: by the stop signal, and by SIGKILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopTimes {
    pub ask_at: Instant,
    pub kill_at: Instant,
}

/// A request to the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardRequest {
    /// Replaces the schedule by a later one.
    RunUntil(StopTimes),
    /// Send the stop signal now, and SIGKILL at this instant.
    Stop { kill_at: Instant },
    /// Send the stop signal now, and keep to the schedule.
    Drain,
    /// Send this signal to the command once it has a handler.
    Signal(i32),
    /// The same for a signal that the candidate received.
    PassOn(i32),
    /// Be the sentinel of the candidate, which has these arguments, as JSON.
    Sentinel(String),
    /// The candidate's terms to release if it dies, as JSON. They replace those of earlier
    /// requests.
    Terms(String),
    /// Stop the command's process group until the reaper continues it, as a terminal does.
    Suspend,
}

/// An event of the guard, or of its reaper.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// Acknowledges a request. Acknowledgements are in order.
    Received,
}

impl fmt::Display for StopTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", ns(self.ask_at), ns(self.kill_at))
    }
}

impl FromStr for StopTimes {
    type Err = UnknownMessage;

    fn from_str(words: &str) -> Result<Self, UnknownMessage> {
        let (ask_at, kill_at) = words.split_once(' ').ok_or(UnknownMessage)?;
        Ok(Self { ask_at: instant(ask_at)?, kill_at: instant(kill_at)? })
    }
}

impl fmt::Display for GuardRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RunUntil(until) => write!(f, "until {until}"),
            Self::Stop { kill_at } => write!(f, "stop {}", ns(*kill_at)),
            Self::Drain => f.write_str("drain"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::PassOn(signal) => write!(f, "pass {signal}"),
            Self::Sentinel(args) => write!(f, "sentinel {args}"),
            Self::Terms(terms) => write!(f, "terms {terms}"),
            Self::Suspend => f.write_str("suspend"),
        }
    }
}

impl FromStr for GuardRequest {
    type Err = UnknownMessage;

    fn from_str(line: &str) -> Result<Self, UnknownMessage> {
        let words: Vec<&str> = line.split(' ').collect();
        Ok(match words.as_slice() {
            ["until", ..] => {
                Self::RunUntil(line.strip_prefix("until ").ok_or(UnknownMessage)?.parse()?)
            }
            ["sentinel", ..] => Self::Sentinel(rest(line)?),
            ["terms", ..] => Self::Terms(rest(line)?),
            ["stop", kill_at] => Self::Stop { kill_at: instant(kill_at)? },
            ["drain"] => Self::Drain,
            ["signal", signal] => Self::Signal(number(signal)?),
            ["pass", signal] => Self::PassOn(number(signal)?),
            ["suspend"] => Self::Suspend,
            _ => return Err(UnknownMessage),
        })
    }
}

impl fmt::Display for GuardEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended { code } => write!(f, "ended {code}"),
            Self::Stopped(signal) => write!(f, "stopped {signal}"),
            Self::Interrupted(signal) => write!(f, "interrupted {signal}"),
            Self::Expired => f.write_str("expired"),
            Self::Empty => f.write_str(EMPTY),
            Self::Left(left) => write!(f, "{LEFT} {left}"),
            Self::Received => f.write_str("received"),
        }
    }
}

impl FromStr for GuardEvent {
    type Err = UnknownMessage;

    fn from_str(line: &str) -> Result<Self, UnknownMessage> {
        let words: Vec<&str> = line.split(' ').collect();
        Ok(match words.as_slice() {
            ["ended", code] => Self::Ended { code: code.parse().map_err(|_| UnknownMessage)? },
            ["stopped", signal] => Self::Stopped(number(signal)?),
            ["interrupted", signal] => Self::Interrupted(number(signal)?),
            ["expired"] => Self::Expired,
            [EMPTY] => Self::Empty,
            [LEFT, ..] => Self::Left(rest(line)?),
            ["received"] => Self::Received,
            _ => return Err(UnknownMessage),
        })
    }
}

/// A malformed message.
#[derive(Debug, PartialEq, Eq)]
pub struct UnknownMessage;

/// Both processes read the same clock.
fn ns(instant: Instant) -> u128 {
    instant.since_origin().as_nanos()
}

/// What follows the first word.
fn rest(line: &str) -> Result<String, UnknownMessage> {
    line.split_once(' ').map(|(_, rest)| rest.to_owned()).ok_or(UnknownMessage)
}

fn number(word: &str) -> Result<i32, UnknownMessage> {
    word.parse().map_err(|_| UnknownMessage)
}

fn instant(word: &str) -> Result<Instant, UnknownMessage> {
    word.parse()
        .map(|ns| Instant::from_origin(Duration::from_nanos(ns)))
        .map_err(|_| UnknownMessage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_parsed() {
        let at = |ms| Instant::from_origin(Duration::from_millis(ms));
        for request in [
            GuardRequest::RunUntil(StopTimes { ask_at: at(1), kill_at: at(2) }),
            GuardRequest::Stop { kill_at: at(3) },
            GuardRequest::Drain,
            GuardRequest::Signal(10),
            GuardRequest::PassOn(1),
            GuardRequest::Sentinel(r#"["run", "a b"]"#.to_owned()),
            GuardRequest::Terms("[]".to_owned()),
            GuardRequest::Suspend,
        ] {
            assert_eq!(request.to_string().parse(), Ok(request));
        }
        for event in [
            GuardEvent::Ended { code: 143 },
            GuardEvent::Stopped(20),
            GuardEvent::Interrupted(2),
            GuardEvent::Expired,
            GuardEvent::Empty,
            GuardEvent::Received,
            GuardEvent::Left("process 7 (a b) was killed".to_owned()),
        ] {
            assert_eq!(event.to_string().parse(), Ok(event));
        }
        assert_eq!("until 1".parse::<GuardRequest>(), Err(UnknownMessage));
        assert_eq!("ended 256".parse::<GuardEvent>(), Err(UnknownMessage));
    }
}
