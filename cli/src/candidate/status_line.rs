//! The status line of a waiting candidate on a terminal. In a pipe there is none.

use std::fmt::Display;
use std::future::pending;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, SystemTime};

use incumbent::clock::{BootClock, Clock};
use incumbent::{Election, Leader, Readiness, State, Status, WaitReason};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::output::text;
use crate::output::{self, time_format};

/// The interval of updates.
const REFRESH: Duration = Duration::from_millis(250);
/// The maximum length of a name that is shown: any text may be in the bucket.
const MAX_NAME_LEN: usize = 100;

pub struct StatusLine {
    /// On a terminal: the time of the next update.
    updates: Option<Interval>,
    shown: bool,
}

impl StatusLine {
    pub fn new() -> Self {
        let on_terminal = io::stderr().is_terminal() && !output::is_quiet();
        let updates = || {
            let mut updates = interval(REFRESH);
            // Updates missed while leading are not made up for.
            updates.set_missed_tick_behavior(MissedTickBehavior::Delay);
            updates
        };
        Self { updates: on_terminal.then(updates), shown: false }
    }

    /// Waits until the next update; forever without a terminal. Cancel safe.
    pub async fn next_update(&mut self) {
        match &mut self.updates {
            Some(updates) => updates.tick().await,
            None => pending().await,
        };
    }

    /// Replaces the line.
    pub fn show(&mut self, text: &str) {
        if self.updates.is_none() {
            return;
        }
        let columns = match columns() {
            0 => 80, // unknown
            columns => usize::from(columns),
        };
        let text: String = text::printable(text).chars().take(columns.saturating_sub(1)).collect();
        self.write(&format!("\r\x1b[K{text}"));
        self.shown = true;
    }

    /// Replaces the line; without a terminal, prints a line that stays.
    pub fn show_or_note(&mut self, text: &str) {
        match self.updates {
            Some(_) => self.show(text),
            None => output::note(format!("incumbent: {text}")),
        }
    }

    /// Prints a line that stays, also without a terminal.
    pub fn note(&mut self, text: &str) {
        self.clear();
        output::note(format!("incumbent: {text}"));
    }

    /// Removes the line, before the command uses the terminal.
    pub fn clear(&mut self) {
        if self.shown {
            self.write("\r\x1b[K");
            self.shown = false;
        }
    }

    /// Prints a line that stays, on a terminal only.
    pub fn print(&mut self, text: &str) {
        self.clear();
        if self.updates.is_some() {
            self.write(&format!("incumbent: {}\n", text::printable(text)));
        }
    }

    fn write(&self, text: &str) {
        let mut terminal = io::stderr();
        // A write error cannot be reported.
        let _ = terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush());
    }
}

/// The leader, and why this candidate is not ready, in a few words.
pub fn who(election: &Election) -> String {
    match readiness(&election.watch().current()) {
        Some(readiness) => format!("{}; {readiness}", leads(election)),
        None => leads(election),
    }
}

/// Why this candidate is not ready to lead; `None` if it is.
pub fn readiness(status: &Status) -> Option<String> {
    let refused = status.lock_failure.as_ref().map(|failure| &failure.message);
    match (status.readiness, status.check_failure.as_ref().or(refused)) {
        (Readiness::Ready, _) => None,
        (Readiness::Unhealthy, Some(why)) => Some(format!("sick: {}", text::printable(why))),
        (Readiness::Unhealthy, None) => Some("not checked yet".to_owned()),
        (Readiness::Cordoned, _) => Some("standing aside".to_owned()),
        (other, _) => Some(other.as_str().to_owned()),
    }
}

/// The leader, in a few words.
fn leads(election: &Election) -> String {
    match (election.token(), election.leader()) {
        (Some(token), _) => format!("leading with token {token}"),
        (None, Some(leader)) if leader.is_me => match cool_down(election) {
            Some((_, reason)) => format!("elected, cooling down: {reason}"),
            None => "elected, waiting until earlier terms have ended".to_owned(),
        },
        (None, Some(leader)) => format!("{} leads", name(&leader)),
        (None, None) if election.state() == State::Unknown => "looking for the leader".to_owned(),
        (None, None) => "no leader".to_owned(),
    }
}

/// The status for a waiting user: for how long, and when this candidate tries next.
pub fn describe(election: &Election) -> String {
    let (name, who) = (election.name(), leads(election));
    if let Some(failure) = election.lock_failure() {
        let what = "requests to the lock fail, retrying";
        return format!("{name}: {what}: {}", failure.message);
    }
    // It comes first: a narrow terminal cuts the end off.
    let name = match readiness(&election.watch().current()) {
        Some(readiness) => format!("{name}: {readiness}"),
        None => name.to_owned(),
    };
    match election.leader() {
        Some(leader) if !leader.is_me => {
            let since = leader.since_unix_ms.and_then(time_format::from_unix_ms);
            let since = since.map(|since| {
                format!(" for {}", time_format::whole_seconds(time_format::age(since)))
            });
            let since = since.unwrap_or_default();
            format!("{name}: {who}{since}; next attempt when the term ends")
        }
        None if election.state() != State::Unknown => format!("{name}: {who}; campaigning"),
        Some(_) if let Some((left, reason)) = cool_down(election) => {
            format!("{name}: {}", describe_wait(left, reason, SystemTime::now()))
        }
        _ => format!("{name}: {who}"),
    }
}

/// What a winner that does not lead yet waits for, and for how long.
pub fn cool_down(election: &Election) -> Option<(Duration, WaitReason)> {
    let wait = election.watch().current().cool_down?;
    let left = wait.until.saturating_since(BootClock.now());
    (!left.is_zero()).then_some((left, wait.reason))
}

/// The reason comes before the time of day: a narrow terminal cuts the end off.
fn describe_wait(left: Duration, reason: WaitReason, now: SystemTime) -> String {
    let ends = now.checked_add(left).and_then(time_format::from_system);
    let ends = ends.map(|ends| format!(" (until {})", time_format::time_of_day(ends)));
    format!("{}{}", cooling_down(left, reason), ends.unwrap_or_default())
}

/// How long a holder does not lead yet, and why.
pub fn cooling_down(left: Duration, reason: impl Display) -> String {
    format!("cooling down for {:.1}s: {reason}", left.as_secs_f64())
}

fn name(leader: &Leader) -> String {
    let name: String = leader.identity.chars().take(MAX_NAME_LEN).collect();
    text::printable(&name)
}

/// The width of the terminal at standard error; 0 if it is unknown.
#[cfg(unix)]
fn columns() -> u16 {
    rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col)
}

#[cfg(not(unix))]
fn columns() -> u16 {
    crossterm::terminal::size().map_or(0, |(columns, _)| columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_described_with_its_reason_and_its_end() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(12 * 3600 + 3);
        let wait = |left, reason| describe_wait(Duration::from_millis(left), reason, now);
        assert_eq!(
            wait(2_100, WaitReason::SeenLease),
            "cooling down for 2.1s: the lease of an earlier holder that was seen (until 12:00:05 UTC)"
        );
        let text = describe_wait(Duration::MAX, WaitReason::Policy, now);
        assert!(text.ends_with("s: the configured cool-down"), "{text}");
    }
}
