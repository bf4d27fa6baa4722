//! `incumbent set info`.

use std::time::Duration;

use clap::Args;
use incumbent::lock::CandidateRequest;
use serde_json::json;

use crate::console::model::{MemberView, SetView, ranges, shard_of, stated};
use crate::error::{CliError, Code};
use crate::lock::elections::{Elections, check_within};
use crate::lock::{LockArgs, check_name};
use crate::output::{self, Format, Printing, or_dash};

/// Show who leads each shard of the set NAME, and how much each member leads.
///
/// The imbalance is the greatest number of shards per weight that a ready member leads, less the
/// least one. Members that lead nothing are known by a roll call: those that are slow, cut off or
/// of other programs are missing. The number of shards is as each member states it, with the other
/// one while it changes (`set run --resizing`).
#[derive(Args)]
pub struct SetInfo {
    /// The set.
    name: String,
    /// How many shards the set has [default: as its members state, or its entries show].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    shards: Option<u32>,
    /// How long to wait for answers to the roll call, at most 30s.
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    within: Duration,
    #[command(flatten)]
    printing: Printing,
}

impl SetInfo {
    pub async fn run(self, lock: &LockArgs) -> Result<(), CliError> {
        check_within(self.within)?;
        check_name(&self.name)?;
        // Every member takes part in each election: one of them will do.
        let first = format!("{}.0", self.name);
        let elections = Elections::open(lock, Some(&first)).await?;
        let members = elections.call_roll(&first, CandidateRequest::Identify, self.within).await?;
        let statuses = elections.list().await?;
        let listed = statuses.iter().filter_map(|status| shard_of(&self.name, &status.election));
        let shards = self.shards.or_else(|| stated(&members));
        let shards = shards.or_else(|| listed.max().map(|last| last + 1)).ok_or_else(|| {
            let message = format!(
                "set {}: no member answers, and no shard was found; see --shards",
                self.name
            );
            CliError::new(Code::NotFound, message)
        })?;
        let view = SetView::new(&self.name, shards, &statuses, &members);
        match self.printing.output {
            Format::Json => self.print_json(&view),
            Format::Text => self.print(&view),
        }
    }

    fn print(&self, view: &SetView) -> Result<(), CliError> {
        let (shards, members) = (view.number, view.members.len());
        output::line(format!(
            "Set {}: {shards} shards, {members} members, imbalance {}",
            output::bold(&self.name),
            shown(view.imbalance())
        ))?;
        if !view.differing.is_empty() {
            let stated: Vec<_> = view.differing.iter().map(u32::to_string).collect();
            output::line(format!(
                "  {}: members state different numbers of shards ({}), and lead none beside each \
                 other: give all one --shards, or change it by --resizing",
                output::yellow("warning"),
                stated.join(", ")
            ))?;
        }
        let leaderless = view.leaderless();
        if !leaderless.is_empty() {
            output::line(format!("  no leader: {}", ranges(&leaderless)))?;
        }
        output::line("")?;
        let member = |(identity, member): (&String, &MemberView)| {
            let MemberView { leads, weight, readiness, shards, resizing } = member;
            let resizing = resizing.map(|other| format!(", resizing {other}")).unwrap_or_default();
            [
                identity.clone(),
                leads.to_string(),
                or_dash(weight.map(|weight| weight.to_string())),
                or_dash(readiness.map(|readiness| readiness.as_str().to_owned())),
                or_dash(shards.map(|shards| format!("{shards}{resizing}"))),
            ]
        };
        let columns = ["member", "leads", "weight", "standing", "shards"];
        output::table(columns, view.members.iter().map(member))?;
        output::line("")?;
        let rows = (0..view.number).map(|shard| {
            let (leader, token) = match view.leaders.get(&shard) {
                Some((leader, token)) => (leader.clone(), token.map(|token| token.to_string())),
                None => ("none".to_owned(), None),
            };
            [shard.to_string(), leader, or_dash(token)]
        });
        output::table(["shard", "leader", "token"], rows)
    }

    fn print_json(&self, view: &SetView) -> Result<(), CliError> {
        let member = |(identity, member): (&String, &MemberView)| {
            json!({
                "identity": identity,
                "leads": member.leads,
                "weight": member.weight,
                "standing": member.readiness.map(|readiness| readiness.as_str()),
                "shards": member.shards,
                "resizing": member.resizing,
            })
        };
        let shards = (0..view.number).map(|shard| {
            let leader = view.leaders.get(&shard);
            json!({
                "shard": shard,
                "leader": leader.map(|(leader, _)| leader),
                "token": leader.and_then(|(_, token)| *token),
            })
        });
        output::json(&json!({
            "set": self.name,
            "members": view.members.iter().map(member).collect::<Vec<_>>(),
            "imbalance": view.imbalance(),
            "leaderless": view.leaderless(),
            "differing": view.differing,
            "shards": shards.collect::<Vec<_>>(),
        }))
    }
}

/// A number without superfluous digits.
fn shown(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
