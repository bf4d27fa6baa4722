//! `election pause` and `resume`.

use std::time::{Duration, SystemTime};

use clap::Args;
use incumbent::lock::Pause as Paused;
use serde_json::json;

use crate::error::CliError;
use crate::lock::LockArgs;
use crate::lock::elections::{Elections, check_within};
use crate::output::{self, text, time_format};
use crate::output::{Format, Printing};

/// Pause an election: no failed check and no preference moves the leadership meanwhile.
///
/// A stop, a resignation, `election move` and a crash still do. The leader states the pause in its
/// entry, within a second, and its successors carry it on.
#[derive(Args)]
pub struct Pause {
    /// For how long, at most 24h.
    #[arg(long = "for", value_name = "DURATION", default_value = "1h", value_parser = parse)]
    span: Duration,
    #[command(flatten)]
    call: Call,
}

/// End the pause of an election.
#[derive(Args)]
pub struct Resume {
    #[command(flatten)]
    call: Call,
}

/// What both send to the leader.
#[derive(Args)]
struct Call {
    /// The election.
    name: String,
    /// How long to wait for the leader's answer, at most 30s.
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    #[arg(value_parser = humantime::parse_duration)]
    within: Duration,
    #[command(flatten)]
    printing: Printing,
}

fn parse(word: &str) -> Result<Duration, String> {
    let span = humantime::parse_duration(word).map_err(|error| error.to_string())?;
    match span {
        Duration::ZERO => Err("use `election resume` to end a pause".to_owned()),
        span if span > Paused::MAX => Err("at most 24h".to_owned()),
        span => Ok(span),
    }
}

impl Pause {
    pub async fn run(self, lock: &LockArgs) -> Result<(), CliError> {
        let pause = Paused::new(SystemTime::now(), self.span);
        let seconds = time_format::from_unix_ms(pause.until_unix_ms / 1000 * 1000);
        self.call.run(lock, pause, seconds.map(time_format::rfc3339)).await
    }
}

impl Resume {
    pub async fn run(self, lock: &LockArgs) -> Result<(), CliError> {
        self.call.run(lock, Paused::new(SystemTime::now(), Duration::ZERO), None).await
    }
}

impl Call {
    /// `until`: the end of the pause; `None`: now.
    async fn run(
        self,
        lock: &LockArgs,
        pause: Paused,
        until: Option<String>,
    ) -> Result<(), CliError> {
        check_within(self.within)?;
        let name = self.name.as_str();
        let elections = Elections::open(lock, Some(name)).await?;
        let leader = elections.pause(name, pause, self.within).await?.identity;
        if self.printing.output == Format::Json {
            return output::json(
                &json!({"election": name, "leader": leader, "paused_until": until}),
            );
        }
        let done = until.map_or_else(|| "resumed".to_owned(), |end| format!("paused until {end}"));
        output::line(format!("{done}: {} states it in its entry", text::printable(&leader)))
    }
}
