//! `election list` and `info`.

use clap::Args;
use incumbent::nats::{Bucket, Finding, Severity};
use serde_json::json;

use super::Printing;
use super::office::{Holding, Office, Offices, check_name};
use crate::connection::Place;
use crate::failure::{Code, Failure};
use crate::output::{self, Format};
use crate::when;

/// List the elections of the bucket, and who leads.
#[derive(Args)]
pub struct List {
    #[command(flatten)]
    printing: Printing,
}

/// Show how fit the bucket is, and who leads: election, leader, since, token, renewed.
///
/// Ages are by this host's clock, from times by the leader's (since) and the server's (renewed).
#[derive(Args)]
pub struct Info {
    /// The election [default: all].
    name: Option<String>,
    #[command(flatten)]
    printing: Printing,
}

impl List {
    pub async fn run(self, place: &Place) -> Result<(), Failure> {
        let session = place.session().await?;
        let offices = Offices::open(place, &session).await?.all().await?;
        if self.printing.output == Format::Json {
            return output::json(&offices.iter().map(Office::json).collect::<Vec<_>>());
        }
        let rows = offices.iter().map(|office| [office.election.clone(), leader(office)]);
        output::table(["election", "leader"], rows)
    }
}

impl Info {
    pub async fn run(self, place: &Place) -> Result<(), Failure> {
        self.name.as_deref().map_or(Ok(()), check_name)?;
        let session = place.session().await?;
        let view = Offices::open(place, &session).await?;
        let offices = match &self.name {
            Some(name) => view.read(name).await?.into_iter().collect(),
            None => view.all().await?,
        };
        // Not opened: a bucket that no election can use is what this has to tell.
        let bucket = Bucket::deferred(session.connection(), place.config(&session))?;
        let findings = bucket.health().await?;
        if let Some(name) = &self.name
            && offices.is_empty()
        {
            let message = format!("election {name}: nobody leads, and nobody did lately");
            return Err(Failure::new(Code::NotFound, message));
        }
        if self.printing.output == Format::Json {
            let findings: Vec<_> = findings.iter().map(finding_json).collect();
            let elections: Vec<_> = offices.iter().map(Office::json).collect();
            return output::json(&json!({
                "bucket": view.bucket(), "findings": findings, "elections": elections,
            }));
        }
        let ttl = view.ttl().map_or("no TTL".to_owned(), |ttl| format!("TTL {}", when::span(ttl)));
        output::line(format!("Bucket {}, {ttl}", output::bold(view.bucket())))?;
        if findings.is_empty() {
            output::line("  nothing to mend")?;
        }
        findings.iter().try_for_each(|finding| output::line(format!("  {}", shown(finding))))?;
        output::line("")?;
        output::table(
            ["election", "leader", "since", "token", "renewed"],
            offices.iter().map(|office| {
                let holder = office.holder();
                let ago = |time| format!("{} ago", when::span(when::age(time)));
                let or_none = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
                [
                    office.election.clone(),
                    leader(office),
                    or_none(holder.and_then(|holder| holder.since).map(ago)),
                    or_none(holder.and_then(|holder| holder.token).map(|token| token.to_string())),
                    or_none(holder.map(|_| ago(office.written))),
                ]
            }),
        )
    }
}

fn leader(office: &Office) -> String {
    match &office.holding {
        Holding::Held(holder) => holder.leader.clone(),
        Holding::Vacant(cause) => format!("nobody ({cause})"),
    }
}

fn finding_json(finding: &Finding) -> serde_json::Value {
    json!({"severity": finding.severity().to_string(), "message": finding.to_string()})
}

/// A finding with its severity in a color of its own.
pub fn shown(finding: &Finding) -> String {
    let severity = finding.severity();
    let word = match severity {
        Severity::Critical => output::red(severity),
        Severity::Warning => output::yellow(severity),
        _ => severity.to_string(),
    };
    format!("{word}: {finding}")
}
