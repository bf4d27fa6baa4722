//! `incumbent campaign`: stand in an election and print each transition.

use std::io::{self, Write};
use std::time::Duration;

use clap::{Args, ValueEnum};
use incumbent::{Change, new_election};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::connection::Standing;
use crate::failure::{EXIT_CODES, Failure};

/// Stand in the election NAME, and print each transition until interrupted.
///
/// Prints one line a transition on standard output: who leads, won, lost with its cause, and what is wrong with the
/// server. On SIGINT or SIGTERM the office is released before the program ends.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub struct Campaign {
    /// The election.
    name: String,
    #[command(flatten)]
    standing: Standing,
    /// The name to show as holder [default: the host's name].
    #[arg(long)]
    identity: Option<String>,
    /// How long one write entitles to lead, as in 5s or 500ms: it is the TTL of a bucket that is made, too [default:
    /// the bucket's TTL, 60s for one that is made].
    #[arg(long, value_parser = humantime::parse_duration)]
    lease: Option<Duration>,
    /// What to print.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Lines for people.
    Text,
    /// JSON objects, one a line.
    Json,
}

impl Campaign {
    pub async fn run(self) -> Result<(), Failure> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let bucket = self.standing.open(self.lease).await?;
        let mut builder = new_election(&self.name, bucket.lock());
        if let Some(identity) = &self.identity {
            builder = builder.identity(identity);
        }
        if let Some(lease) = self.lease {
            builder = builder.lease(lease);
        }
        let election = builder.start()?;
        let mut changes = election.changes();
        let end = loop {
            tokio::select! {
                change = changes.next() => match change {
                    Some(change) => if let Err(error) = self.print(&change) { break error.into() },
                    None => return Ok(()),
                },
                _ = terminate.recv() => break Failure::Signal(SignalKind::terminate().as_raw_value()),
                _ = interrupt.recv() => break Failure::Signal(SignalKind::interrupt().as_raw_value()),
            }
        };
        // Whatever the end is, the office is released first.
        election.stop().await;
        while let Some(change) = changes.next().await {
            if self.print(&change).is_err() {
                break;
            }
        }
        Err(end)
    }

    fn print(&self, change: &Change) -> io::Result<()> {
        let line = match self.output {
            Output::Json => json_line(change).map(|line| line.to_string()),
            Output::Text => text_line(change),
        };
        match line {
            Some(line) => writeln!(io::stdout(), "{line}"),
            None => Ok(()),
        }
    }
}

fn text_line(change: &Change) -> Option<String> {
    Some(match change {
        Change::Won { token } => format!("won: leading with token {token}"),
        Change::Lost { cause, .. } => format!("lost: {cause}"),
        Change::Leader(Some(leader)) if leader.is_me => return None,
        Change::Leader(Some(leader)) => format!("leader: {}", leader.identity),
        Change::Leader(None) => "leader: nobody".to_owned(),
        Change::Trouble(failure) => format!("trouble: {}", failure.message),
        Change::Recovered => "recovered: the server answers again".to_owned(),
        Change::Missed(missed) => format!("missed: {missed} transitions"),
        _ => return None,
    })
}

fn json_line(change: &Change) -> Option<serde_json::Value> {
    Some(match change {
        Change::Won { token } => json!({"event": "won", "token": token.0}),
        Change::Lost { token, cause } => {
            json!({"event": "lost", "token": token.0, "cause": cause.word(), "message": cause.to_string()})
        }
        Change::Leader(leader) => json!({
            "event": "leader",
            "leader": leader.as_ref().map(|l| &*l.identity),
            "token": leader.as_ref().and_then(|l| l.token).map(|t| t.0),
            "mine": leader.as_ref().is_some_and(|l| l.is_me),
        }),
        Change::Trouble(failure) => json!({"event": "trouble", "message": &*failure.message}),
        Change::Recovered => json!({"event": "recovered"}),
        Change::Missed(missed) => json!({"event": "missed", "count": missed}),
        _ => return None,
    })
}
