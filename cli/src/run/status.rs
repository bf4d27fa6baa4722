//! What a person at a terminal sees while the command does not run. In a pipe there is nothing to see.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, SystemTime};

use incumbent::{Election, State};
use rustix::termios::tcgetwinsize;

pub struct StatusLine {
    on_terminal: bool,
    shown: bool,
}

impl StatusLine {
    pub fn new() -> Self {
        Self { on_terminal: io::stderr().is_terminal(), shown: false }
    }

    /// Replaces the line.
    pub fn show(&mut self, text: &str) {
        if !self.on_terminal {
            return;
        }
        let columns = tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
        let columns = if columns == 0 { 80 } else { columns }; // 0: it does not know
        let text: String = text.chars().take(columns.saturating_sub(1)).collect();
        self.write(&format!("\r\x1b[K{text}"));
        self.shown = true;
    }

    /// Takes the line away: the terminal belongs to the command now.
    pub fn clear(&mut self) {
        if self.shown {
            self.write("\r\x1b[K");
            self.shown = false;
        }
    }

    /// A line that stays.
    pub fn tell(&mut self, text: &str) {
        self.clear();
        if self.on_terminal {
            self.write(&format!("incumbent: {text}\n"));
        }
    }

    fn write(&self, text: &str) {
        let mut terminal = io::stderr();
        // Nobody is told that nobody can be told.
        let _ = terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush());
    }
}

/// Who leads, for how long, and when this campaigner tries next.
pub fn describe(election: &Election) -> String {
    let name = election.name();
    if let Some(trouble) = election.trouble() {
        return format!(
            "{name}: the server does not answer as it should, trying again: {}",
            trouble.message
        );
    }
    match election.leader() {
        Some(leader) if leader.is_me => {
            format!("{name}: elected, waiting until no earlier leader can be left")
        }
        Some(leader) => {
            let since = leader.since_unix_ms.and_then(|ms| for_how_long(ms, SystemTime::now()));
            let since = since.map_or(String::new(), |age| format!(" for {age}"));
            format!("{name}: {} leads{since}; next attempt when it ends", leader.identity)
        }
        None if election.state() == State::Unknown => format!("{name}: asking who leads"),
        None => format!("{name}: nobody leads; standing for it"),
    }
}

fn for_how_long(since_unix_ms: u64, now: SystemTime) -> Option<humantime::FormattedDuration> {
    let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(since_unix_ms))?;
    let age = now.duration_since(since).unwrap_or_default();
    Some(humantime::format_duration(Duration::from_secs(age.as_secs())))
}
