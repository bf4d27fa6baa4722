//! `incumbent cron --list`.

use std::time::Duration;

use incumbent::schedule::{JobStatus, Jobs};
use serde_json::json;

use super::Cron;
use crate::error::CliError;
use crate::lock::Attempts;
use crate::output::{self, Format, time_format};

impl Cron {
    /// Prints the last and the next slot of each job.
    pub(super) async fn print(&self, jobs: &Jobs) -> Result<(), CliError> {
        let name = &self.candidate.name;
        let object = self.candidate.lease.object.clone();
        let lock = self.lock.open_existing(name, object, Attempts::One, |_| {}).await?;
        let stored = lock.checkpoint(name, self.lock.request_timeout()).await?;
        let data = stored.map(|stored| stored.data).unwrap_or_default();
        let statuses = jobs.statuses(name, &data)?;
        match self.output {
            Format::Json => output::json(&statuses.iter().map(json).collect::<Vec<_>>()),
            Format::Text => {
                let head = ["job", "last", "state", "exit code", "took", "next"];
                output::table(head, statuses.iter().map(row))
            }
        }
    }
}

fn json(status: &JobStatus) -> serde_json::Value {
    let ended = status.ended;
    json!({
        "job": status.job,
        "last": status.last.map(|slot| slot.to_string()),
        "begun": status.is_open,
        "ended": ended.map(|(slot, ..)| slot.to_string()),
        "exit_code": ended.map(|(_, code, _)| code),
        "duration_ms": ended.map(|(.., took)| took.as_millis() as u64),
        "next": status.next.map(|slot| slot.to_string()),
    })
}

fn row(status: &JobStatus) -> [String; 6] {
    let text = |slot: Option<incumbent::schedule::Slot>| slot.map(|slot| slot.to_string());
    let state = match (status.is_open, status.ended) {
        (true, _) => "begun",
        (false, Some(_)) => "ended",
        (false, None) => "new",
    };
    let took = |took: Duration| time_format::span(took);
    [
        status.job.clone(),
        text(status.last).unwrap_or_default(),
        state.to_owned(),
        status.ended.map(|(_, code, _)| code.to_string()).unwrap_or_default(),
        status.ended.map(|(.., span)| took(span)).unwrap_or_default(),
        text(status.next).unwrap_or_default(),
    ]
}
