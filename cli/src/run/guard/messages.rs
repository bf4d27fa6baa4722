//! What the two processes that watch over a command say to each other, one line each.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use incumbent::clock::Instant;

/// How long a tree may go on by itself: asked to stop at the first instant, and killed at the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Until {
    pub ask_at: Instant,
    pub kill_at: Instant,
}

/// What the guard is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// A later one than before.
    Until(Until),
    /// Ask the tree to stop now, and kill what is left at this instant.
    Stop {
        kill_at: Instant,
    },
    /// Send this signal to the command, once it is ready for it.
    Signal(i32),
    /// The same for one that somebody sent to the campaigner.
    PassOn(i32),
    /// Stop the command's process group until `Resume`, as from a terminal.
    Suspend,
    Resume,
}

/// What the guard tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// The command ended by itself, or was ended: its exit code as a shell tells it.
    Ended { code: u8 },
    /// The command was stopped by this signal.
    Stopped(i32),
    /// A terminal, or somebody, sent this signal to the command's process group.
    Interrupted(i32),
    /// Nothing was heard for too long: the tree is being stopped, or was not even started.
    Expired,
    /// An order has arrived. Each is answered so, in their order.
    Heard,
    /// This process of the tree may not be signalled; `lasting` when that was so at an earlier look, too.
    Foreign { pid: i32, lasting: bool },
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", ns(self.ask_at), ns(self.kill_at))
    }
}

impl FromStr for Until {
    type Err = Unheard;

    fn from_str(words: &str) -> Result<Self, Unheard> {
        let (ask_at, kill_at) = words.split_once(' ').ok_or(Unheard)?;
        Ok(Self { ask_at: instant(ask_at)?, kill_at: instant(kill_at)? })
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until(until) => write!(f, "until {until}"),
            Self::Stop { kill_at } => write!(f, "stop {}", ns(*kill_at)),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::PassOn(signal) => write!(f, "pass {signal}"),
            Self::Suspend => f.write_str("suspend"),
            Self::Resume => f.write_str("resume"),
        }
    }
}

impl FromStr for Order {
    type Err = Unheard;

    fn from_str(line: &str) -> Result<Self, Unheard> {
        let words: Vec<&str> = line.split(' ').collect();
        Ok(match words.as_slice() {
            ["until", ..] => Self::Until(line.strip_prefix("until ").ok_or(Unheard)?.parse()?),
            ["stop", kill_at] => Self::Stop { kill_at: instant(kill_at)? },
            ["signal", signal] => Self::Signal(number(signal)?),
            ["pass", signal] => Self::PassOn(number(signal)?),
            ["suspend"] => Self::Suspend,
            ["resume"] => Self::Resume,
            _ => return Err(Unheard),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended { code } => write!(f, "ended {code}"),
            Self::Stopped(signal) => write!(f, "stopped {signal}"),
            Self::Interrupted(signal) => write!(f, "interrupted {signal}"),
            Self::Expired => f.write_str("expired"),
            Self::Heard => f.write_str("heard"),
            Self::Foreign { pid, lasting: false } => write!(f, "foreign {pid}"),
            Self::Foreign { pid, lasting: true } => write!(f, "foreign {pid} lasting"),
        }
    }
}

impl FromStr for Report {
    type Err = Unheard;

    fn from_str(line: &str) -> Result<Self, Unheard> {
        let words: Vec<&str> = line.split(' ').collect();
        Ok(match words.as_slice() {
            ["ended", code] => Self::Ended { code: code.parse().map_err(|_| Unheard)? },
            ["stopped", signal] => Self::Stopped(number(signal)?),
            ["interrupted", signal] => Self::Interrupted(number(signal)?),
            ["expired"] => Self::Expired,
            ["heard"] => Self::Heard,
            ["foreign", pid] => Self::Foreign { pid: number(pid)?, lasting: false },
            ["foreign", pid, "lasting"] => Self::Foreign { pid: number(pid)?, lasting: true },
            _ => return Err(Unheard),
        })
    }
}

/// A line that means nothing here.
#[derive(Debug, PartialEq, Eq)]
pub struct Unheard;

/// Both processes read the same clock, so an instant means the same to them.
fn ns(instant: Instant) -> u128 {
    instant.since_origin().as_nanos()
}

fn number(word: &str) -> Result<i32, Unheard> {
    word.parse().map_err(|_| Unheard)
}

fn instant(word: &str) -> Result<Instant, Unheard> {
    word.parse().map(|ns| Instant::from_origin(Duration::from_nanos(ns))).map_err(|_| Unheard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_understood() {
        let at = |ms| Instant::from_origin(Duration::from_millis(ms));
        for order in [
            Order::Until(Until { ask_at: at(1), kill_at: at(2) }),
            Order::Stop { kill_at: at(3) },
            Order::Signal(10),
            Order::PassOn(1),
            Order::Suspend,
            Order::Resume,
        ] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for report in [
            Report::Ended { code: 143 },
            Report::Stopped(20),
            Report::Interrupted(2),
            Report::Expired,
            Report::Heard,
            Report::Foreign { pid: 7, lasting: false },
            Report::Foreign { pid: 7, lasting: true },
        ] {
            assert_eq!(report.to_string().parse(), Ok(report));
        }
        assert_eq!("until 1".parse::<Order>(), Err(Unheard));
        assert_eq!("ended 256".parse::<Report>(), Err(Unheard));
    }
}
