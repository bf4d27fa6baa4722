//! `election members`.

use std::time::{Duration, SystemTime};

use clap::Args;
use incumbent::CandidateInfo;
use incumbent::lock::{CandidateRequest, Readiness};

use crate::console::model::{candidate_json, started};
use crate::error::{CliError, Code};
use crate::lock::LockArgs;
use crate::lock::elections::{ElectionRecord, Elections, check_within};
use crate::output::text;
use crate::output::time_format;
use crate::output::{self, Format, Printing};

/// Call the roll: list the candidates of an election, leading or not.
///
/// Each candidate answers for itself: its identity, what it is doing (leader, draining,
/// cooling_down, standby), its priority, version and start, and the leader that it sees; where one
/// has them, also its standing (ready, aside, sick) and its site. Those that are slow, cut off or
/// of other programs are missing. On NATS, PostgreSQL and Kubernetes Leases.
#[derive(Args)]
pub struct Members {
    /// The election.
    name: String,
    /// How long to wait for answers, at most 30s. Candidates spread theirs over it.
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    within: Duration,
    #[command(flatten)]
    printing: Printing,
}

/// A column of the table.
struct Column {
    head: &'static str,
    cell: fn(&CandidateInfo) -> String,
    /// Whether this candidate has something to show in it; `None`: it is always shown.
    is_needed: Option<fn(&CandidateInfo) -> bool>,
}

const fn column(head: &'static str, cell: fn(&CandidateInfo) -> String) -> Column {
    Column { head, cell, is_needed: None }
}

const COLUMNS: [Column; 8] = [
    column("identity", |info| info.identity.to_string()),
    column("role", |info| info.role.as_str().replace('_', " ")),
    Column {
        is_needed: Some(|info| info.readiness != Readiness::Ready),
        ..column("standing", |info| info.readiness.as_str().to_owned())
    },
    Column {
        is_needed: Some(|info| info.site.is_some()),
        ..column("site", |info| info.site.as_deref().unwrap_or("-").to_owned())
    },
    column("priority", |info| info.priority.to_string()),
    column("since", |info| started(info).unwrap_or_default()),
    column("version", |info| info.version.to_string()),
    column("sees", sees),
];

impl Members {
    pub async fn run(self, lock: &LockArgs) -> Result<(), CliError> {
        check_within(self.within)?;
        let elections = Elections::open(lock, Some(&self.name)).await?;
        let mut members =
            elections.call_roll(&self.name, CandidateRequest::Identify, self.within).await?;
        if members.is_empty() && elections.read(&self.name).await?.is_none() {
            let message =
                format!("election {}: nobody answers, and there is no record of it", self.name);
            return Err(CliError::new(Code::NotFound, message));
        }
        members.sort_by(|a, b| {
            (a.role, &a.identity, a.nonce.0).cmp(&(b.role, &b.identity, b.nonce.0))
        });
        if self.printing.output == Format::Json {
            return output::json(&members.iter().map(candidate_json).collect::<Vec<_>>());
        }
        let is_shown = |column: &&Column| {
            column.is_needed.is_none_or(|is_needed| members.iter().any(is_needed))
        };
        let columns: Vec<&Column> = COLUMNS.iter().filter(is_shown).collect();
        let heads: Vec<&str> = columns.iter().map(|column| column.head).collect();
        let row = |info| columns.iter().map(|column| (column.cell)(info)).collect();
        output::columns(&heads, members.iter().map(row))?;
        let status = elections.read(&self.name).await?;
        let holder = status.as_ref().and_then(ElectionRecord::holder);
        match holder.and_then(|holder| holder.paused_until(SystemTime::now())) {
            Some(until) => output::line(format!(
                "paused until {}",
                time_format::rfc3339(time_format::utc(until))
            )),
            None => Ok(()),
        }
    }
}

fn sees(info: &CandidateInfo) -> String {
    let token = info.token.map(|token| format!(" ({token})")).unwrap_or_default();
    match &info.leader {
        Some(leader) => format!("{}{token}", text::printable(leader)),
        None => "no leader".to_owned(),
    }
}
