//! What a person at a terminal sees while nothing else happens. In a pipe there is nothing to see.

use std::future::pending;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use incumbent::{Election, Leader, State};
use rustix::termios::tcgetwinsize;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::text;
use crate::{output, time_format};

/// How often to look what there is to show.
const REFRESH: Duration = Duration::from_millis(250);
/// How much of a name is shown: it is whatever somebody wrote into the bucket.
const LONGEST_NAME: usize = 100;

pub struct StatusLine {
    /// On a terminal: when to look again.
    looks: Option<Interval>,
    shown: bool,
}

impl StatusLine {
    pub fn new() -> Self {
        let on_terminal = io::stderr().is_terminal() && !output::is_quiet();
        let looks = || {
            let mut looks = interval(REFRESH);
            // What nobody looked at while in office is not made up for.
            looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            looks
        };
        Self { looks: on_terminal.then(looks), shown: false }
    }

    /// Waits until it is time to show something again: for ever where nobody sees it. Cancel safe.
    pub async fn look(&mut self) {
        match &mut self.looks {
            Some(looks) => looks.tick().await,
            None => pending().await,
        };
    }

    /// Replaces the line.
    pub fn show(&mut self, text: &str) {
        if self.looks.is_none() {
            return;
        }
        let columns = tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
        let columns = if columns == 0 { 80 } else { columns }; // 0: it does not know
        let text: String = text::printable(text).chars().take(columns.saturating_sub(1)).collect();
        self.write(&format!("\r\x1b[K{text}"));
        self.shown = true;
    }

    /// Replaces the line; where there is no terminal it is one that stays.
    pub fn say(&mut self, text: &str) {
        match self.looks {
            Some(_) => self.show(text),
            None => output::note(format!("incumbent: {text}")),
        }
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
        if self.looks.is_some() {
            self.write(&format!("incumbent: {}\n", text::printable(text)));
        }
    }

    fn write(&self, text: &str) {
        let mut terminal = io::stderr();
        // Nobody is told that nobody can be told.
        let _ = terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush());
    }
}

/// Who leads, in a few words.
pub fn who(election: &Election) -> String {
    match (election.token(), election.leader()) {
        (Some(token), _) => format!("leading with token {token}"),
        (None, Some(leader)) if leader.is_me => {
            "elected, waiting until no earlier leader can be left".to_owned()
        }
        (None, Some(leader)) => format!("{} leads", name(&leader)),
        (None, None) if election.state() == State::Unknown => "asking who leads".to_owned(),
        (None, None) => "no leader".to_owned(),
    }
}

/// The same for a person who waits: for how long, and when this campaigner tries next.
pub fn describe(election: &Election) -> String {
    let (name, who) = (election.name(), who(election));
    if let Some(trouble) = election.trouble() {
        let what = "the server does not answer as it should, trying again";
        return format!("{name}: {what}: {}", trouble.message);
    }
    match election.leader() {
        Some(leader) if !leader.is_me => {
            let since = leader.since_unix_ms.and_then(time_format::from_unix_ms);
            let since = since.map(|since| {
                format!(" for {}", time_format::whole_seconds(time_format::age(since)))
            });
            let since = since.unwrap_or_default();
            format!("{name}: {who}{since}; next attempt when it ends")
        }
        None if election.state() != State::Unknown => format!("{name}: {who}; standing for it"),
        _ => format!("{name}: {who}"),
    }
}

fn name(leader: &Leader) -> String {
    let name: String = leader.identity.chars().take(LONGEST_NAME).collect();
    text::printable(&name)
}
