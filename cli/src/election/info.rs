//! `election list` and `info`.

use std::time::{Duration, SystemTime};

use clap::Args;
use incumbent::lock::{CoolDownLeft, StoredCheckpoint};
use incumbent::nats::{Finding, Severity};
use serde_json::json;

use crate::candidate::cooling_down;
use crate::console::model::cool_down_json;
use crate::error::{CliError, Code};
use crate::lock::LockArgs;
use crate::lock::elections::Elections;
use crate::lock::elections::{ElectionRecord, ElectionState, Holder};
use crate::output::text;
use crate::output::time_format;
use crate::output::{self, Format, Printing, or_dash};

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
/// and why: the holder answers a roll call, on locks that carry them. If it has a checkpoint, its
/// size and age are shown.
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
            let rows = elections.iter().map(|record| record.to_json(SystemTime::now()));
            return output::json(&rows.collect::<Vec<_>>());
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
        let checkpoint = match &self.name {
            Some(name) => elections.checkpoint(name).await,
            None => None,
        };
        if let Some(name) = &self.name
            && statuses.is_empty()
        {
            let message = format!("election {name}: no leader, and no record found");
            return Err(CliError::new(Code::NotFound, message));
        }
        if self.printing.output == Format::Json {
            let mut fields = elections.json();
            if let Some(findings) = &findings {
                fields.insert("findings".to_owned(), findings.iter().map(finding_json).collect());
            }
            let mut rows: Vec<_> =
                statuses.iter().map(|record| record.to_json(SystemTime::now())).collect();
            if let (Some(waits), Some(row)) = (&waits, rows.first_mut()) {
                row["cool_down"] = cool_down_json(waits);
            }
            if let (Some(checkpoint), Some(row)) = (&checkpoint, rows.first_mut()) {
                row["checkpoint"] = checkpoint_json(checkpoint);
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
        if elections.are_for_life() {
            return output::table(
                ["election", "pod", "phase", "since", "token", "uid"],
                statuses.iter().map(for_life),
            );
        }
        table(&statuses)?;
        for status in &statuses {
            let paused = |holder: &Holder| holder.paused_until(SystemTime::now());
            if let Some(until) = status.holder().and_then(paused) {
                let (name, until) =
                    (&status.election, time_format::rfc3339(time_format::utc(until)));
                output::line(format!("\n{name} is paused until {until}"))?;
            }
        }
        if let Some(checkpoint) = &checkpoint {
            output::line(format!("\n{}", checkpoint_line(checkpoint)))?;
        }
        let Some(CoolDownLeft { left_ms, reason, .. }) = waits else { return Ok(()) };
        let wait = cooling_down(Duration::from_millis(left_ms), text::printable(&reason));
        output::line(format!("\nThe holder does not lead yet: it is {wait}"))
    }
}

fn saved(checkpoint: &StoredCheckpoint) -> Option<SystemTime> {
    let unix = Duration::from_millis(checkpoint.saved_unix_ms);
    SystemTime::UNIX_EPOCH.checked_add(unix).filter(|_| !unix.is_zero())
}

fn checkpoint_json(checkpoint: &StoredCheckpoint) -> serde_json::Value {
    let saved = saved(checkpoint).map(|saved| time_format::rfc3339(time_format::utc(saved)));
    json!({"bytes": checkpoint.data.len(), "saved": saved, "token": checkpoint.token.0})
}

fn checkpoint_line(checkpoint: &StoredCheckpoint) -> String {
    let bytes = match checkpoint.data.len() {
        1 => "1 byte".to_owned(),
        bytes => format!("{bytes} bytes"),
    };
    let when = saved(checkpoint)
        .map_or_else(|| "never saved".to_owned(), |saved| format!("saved {}", ago(saved)));
    format!("The checkpoint has {bytes}, {when}, and was written with token {}", checkpoint.token)
}

fn table(statuses: &[ElectionRecord]) -> Result<(), CliError> {
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

fn row(status: &ElectionRecord) -> [String; 5] {
    let holder = status.holder();
    [
        status.election.clone(),
        leader(status),
        or_dash(holder.and_then(|holder| holder.since).map(ago)),
        or_dash(holder.and_then(|holder| holder.token).map(|token| token.to_string())),
        or_dash(holder.and(status.written).map(ago)),
    ]
}

fn address(status: &ElectionRecord) -> Option<String> {
    let advertisement = status.holder()?.advertisement.as_ref()?;
    Some(advertisement.address().to_owned())
}

fn ago(time: SystemTime) -> String {
    format!("{} ago", time_format::span(time_format::age(time_format::utc(time))))
}

fn for_life(status: &ElectionRecord) -> [String; 6] {
    let holder = status.holder();
    let pod = holder.and_then(|holder| holder.pod.as_ref());
    [
        status.election.clone(),
        match &status.state {
            ElectionState::Held(holder) => holder.identity.clone(),
            ElectionState::Vacant(cause) => format!("none ({cause})"),
        },
        or_dash(pod.map(|pod| pod.phase.clone())),
        or_dash(holder.and_then(|holder| holder.since).map(ago)),
        or_dash(holder.and_then(|holder| holder.token).map(|token| token.to_string())),
        or_dash(pod.map(|pod| pod.uid.clone())),
    ]
}

fn leader(status: &ElectionRecord) -> String {
    match &status.state {
        ElectionState::Held(holder) if status.is_overdue(SystemTime::now()) => {
            format!("{} (overdue)", holder.identity)
        }
        ElectionState::Held(holder) if holder.pod.as_ref().is_some_and(|pod| pod.gone) => {
            format!("{} (gone)", holder.identity)
        }
        ElectionState::Held(holder) => holder.identity.clone(),
        ElectionState::Vacant(cause) => format!("none ({cause})"),
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
