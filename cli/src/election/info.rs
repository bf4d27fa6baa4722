//! `election list` and `info`.

use std::time::Duration;

use clap::Args;
use incumbent::lock::CoolDownLeft;
use incumbent::nats::{Finding, Severity};
use serde_json::json;
use time::OffsetDateTime;

use crate::candidate::cooling_down;
use crate::console::model::cool_down_json;
use crate::elections::Elections;
use crate::elections::{ElectionStatus, Holder, LeaderStatus};
use crate::error::{CliError, Code};
use crate::lock_args::LockArgs;
use crate::output::{self, Format, Printing};
use crate::text;
use crate::time_format;

/// List the elections of the bucket or namespace, and their leaders.
#[derive(Args)]
pub struct List {
    #[command(flatten)]
    printing: Printing,
}

/// Show the problems of the bucket, and its elections: election, leader, since, token, renewed, and
/// the advertised address.
///
/// Ages are by this host's clock, from times of the leader (since) and of the server (renewed). Of
/// one election whose entry is new, it also shows whether the holder is cooling down, for how long
/// and why: the holder answers a roll call, on locks that carry them.
/// With Kubernetes no bucket is checked, and all times are the leader's: an `overdue` leader has
/// not renewed for its lease, but only `election watch` can decide whether it is gone. With --kind
/// for-life: election, pod, phase, since, token, uid; the phase is read from the pod.
#[derive(Args)]
pub struct Info {
    /// The election; with Kubernetes its object [default: all].
    name: Option<String>,
    #[command(flatten)]
    printing: Printing,
}

impl List {
    pub async fn run(self, lock: &LockArgs) -> Result<(), CliError> {
        let elections = Elections::open(lock, None).await?.list().await?;
        if self.printing.output == Format::Json {
            return output::json(&elections.iter().map(ElectionStatus::json).collect::<Vec<_>>());
        }
        let rows = elections.iter().map(|status| [status.election.clone(), leader(status)]);
        output::table(["election", "leader"], rows)
    }
}

impl Info {
    pub async fn run(self, lock: &LockArgs) -> Result<(), CliError> {
        let elections = Elections::open(lock, self.name.as_deref()).await?;
        let statuses = match &self.name {
            Some(name) => elections.read(name).await?.into_iter().collect(),
            None => elections.list().await?,
        };
        let findings = elections.findings().await?;
        let waits = match (&self.name, statuses.first()) {
            (Some(_), Some(status)) => elections.cool_down(status).await,
            _ => None,
        };
        if let Some(name) = &self.name
            && statuses.is_empty()
        {
            let message = format!("election {name}: no leader, and no trace of an earlier one");
            return Err(CliError::new(Code::NotFound, message));
        }
        if self.printing.output == Format::Json {
            let mut fields = elections.json();
            if let Some(findings) = &findings {
                fields.insert("findings".to_owned(), findings.iter().map(finding_json).collect());
            }
            let mut rows: Vec<_> = statuses.iter().map(ElectionStatus::json).collect();
            if let (Some(waits), Some(row)) = (&waits, rows.first_mut()) {
                row["cool_down"] = cool_down_json(waits);
            }
            fields.insert("elections".to_owned(), rows.into());
            return output::json(&fields);
        }
        output::line(elections.title())?;
        if let Some(findings) = findings {
            if findings.is_empty() {
                output::line("  no problems found")?;
            }
            findings
                .iter()
                .try_for_each(|finding| output::line(format!("  {}", shown(finding))))?;
        }
        output::line("")?;
        if let Elections::ForLife(_) = elections {
            return output::table(
                ["election", "pod", "phase", "since", "token", "uid"],
                statuses.iter().map(for_life),
            );
        }
        table(&statuses)?;
        for status in &statuses {
            let paused = |holder: &Holder| holder.paused_until(OffsetDateTime::now_utc());
            if let Some(until) = status.holder().and_then(paused) {
                let (name, until) = (&status.election, time_format::rfc3339(until));
                output::line(format!("\n{name} is paused until {until}"))?;
            }
        }
        let Some(CoolDownLeft { left_ms, reason, .. }) = waits else { return Ok(()) };
        let wait = cooling_down(Duration::from_millis(left_ms), text::printable(&reason));
        output::line(format!("\nThe holder does not lead yet: it is {wait}"))
    }
}

fn table(statuses: &[ElectionStatus]) -> Result<(), CliError> {
    // Add the column of addresses if any leader advertises one.
    if statuses.iter().any(|status| address(status).is_some()) {
        let rows = statuses.iter().map(|status| {
            let [election, leader, since, token, renewed] = row(status);
            [election, leader, since, token, renewed, or_dash(address(status))]
        });
        return output::table(["election", "leader", "since", "token", "renewed", "address"], rows);
    }
    output::table(["election", "leader", "since", "token", "renewed"], statuses.iter().map(row))
}

fn row(status: &ElectionStatus) -> [String; 5] {
    let holder = status.holder();
    [
        status.election.clone(),
        leader(status),
        or_dash(holder.and_then(|holder| holder.since).map(ago)),
        or_dash(holder.and_then(|holder| holder.token).map(|token| token.to_string())),
        or_dash(holder.and(status.written).map(ago)),
    ]
}

fn address(status: &ElectionStatus) -> Option<String> {
    let advertisement = status.holder()?.advertisement.as_ref()?;
    Some(advertisement.address().to_owned())
}

fn or_dash(cell: Option<String>) -> String {
    cell.unwrap_or_else(|| "-".to_owned())
}

fn ago(time: OffsetDateTime) -> String {
    format!("{} ago", time_format::span(time_format::age(time)))
}

fn for_life(status: &ElectionStatus) -> [String; 6] {
    let holder = status.holder();
    let pod = holder.and_then(|holder| holder.pod.as_ref());
    [
        status.election.clone(),
        match &status.state {
            LeaderStatus::Held(holder) => holder.leader.clone(),
            LeaderStatus::Vacant(cause) => format!("none ({cause})"),
        },
        or_dash(pod.map(|pod| pod.phase.clone())),
        or_dash(holder.and_then(|holder| holder.since).map(ago)),
        or_dash(holder.and_then(|holder| holder.token).map(|token| token.to_string())),
        or_dash(pod.map(|pod| pod.uid.clone())),
    ]
}

fn leader(status: &ElectionStatus) -> String {
    match &status.state {
        LeaderStatus::Held(holder) if status.is_overdue() => format!("{} (overdue)", holder.leader),
        LeaderStatus::Held(holder) if holder.pod.as_ref().is_some_and(|pod| pod.gone) => {
            format!("{} (gone)", holder.leader)
        }
        LeaderStatus::Held(holder) => holder.leader.clone(),
        LeaderStatus::Vacant(cause) => format!("none ({cause})"),
    }
}

fn finding_json(finding: &Finding) -> serde_json::Value {
    json!({"severity": finding.severity().to_string(), "message": finding.to_string()})
}

/// A finding, with its severity in color.
pub fn shown(finding: &Finding) -> String {
    let severity = finding.severity();
    let word = match severity {
        Severity::Critical => output::red(severity),
        Severity::Warning => output::yellow(severity),
        _ => severity.to_string(),
    };
    format!("{word}: {}", text::printable(&finding.to_string()))
}
