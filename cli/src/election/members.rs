//! `election members`.

use std::time::Duration;

use clap::Args;
use incumbent::CandidateInfo;
use incumbent::lock::{CandidateRequest, RollCall};
use serde_json::json;

use crate::elections::Elections;
use crate::error::{CliError, Code};
use crate::lock_args::LockArgs;
use crate::output::{self, Format, Printing};
use crate::text;
use crate::time_format;

/// Call the roll: list the candidates of an election, leading or not.
///
/// Each candidate answers for itself: its identity, what it is doing (leader, draining,
/// cooling_down, standby), its priority, version and start, and the leader that it sees. Those that
/// are slow, cut off or of other programs are missing. On NATS, PostgreSQL and
/// Kubernetes Leases.
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

impl Members {
    pub async fn run(self, lock: &LockArgs) -> Result<(), CliError> {
        if self.within > RollCall::MAX_WITHIN {
            return Err(CliError::new(Code::Usage, "--within is at most 30s"));
        }
        let elections = Elections::open(lock, Some(&self.name)).await?;
        let mut members =
            elections.call_roll(&self.name, CandidateRequest::Identify, self.within).await?;
        members.sort_by(|a, b| {
            (a.role, &a.identity, a.nonce.0).cmp(&(b.role, &b.identity, b.nonce.0))
        });
        if self.printing.output == Format::Json {
            return output::json(&members.iter().map(to_json).collect::<Vec<_>>());
        }
        let header = ["identity", "role", "priority", "since", "version", "sees"];
        output::table(header, members.iter().map(row))
    }
}

fn row(info: &CandidateInfo) -> [String; 6] {
    let sees = info.leader.as_deref().map(|leader| {
        let token = info.token.map(|token| format!(" ({token})"));
        format!("{}{}", text::printable(leader), token.unwrap_or_default())
    });
    [
        text::printable(&info.identity).to_string(),
        info.role.as_str().replace('_', " "),
        info.priority.to_string(),
        since(info).unwrap_or_default(),
        text::printable(&info.version).to_string(),
        sees.unwrap_or_else(|| "no leader".to_owned()),
    ]
}

fn since(info: &CandidateInfo) -> Option<String> {
    time_format::from_unix_ms(info.since_unix_ms).map(time_format::rfc3339)
}

fn to_json(info: &CandidateInfo) -> serde_json::Value {
    json!({
        "identity": info.identity,
        "nonce": info.nonce.to_string(),
        "role": info.role.as_str(),
        "priority": info.priority,
        "since": since(info),
        "version": info.version,
        "leader": info.leader,
        "token": info.token.map(|token| token.0),
    })
}
