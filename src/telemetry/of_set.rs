//! The metrics of a member of a set.

use std::sync::Arc;

use metrics::{Counter, Gauge, Label, counter, gauge};

use crate::lock::MemberLoad;
use crate::protocol::set::TakeOutcome;

/// Moves that this member asked for, of a kind, by their outcome.
fn moves(labels: &[Label], kind: &'static str, outcome: TakeOutcome) -> Counter {
    let outcome = match outcome {
        TakeOutcome::Accepted => "accepted",
        TakeOutcome::Refused => "refused",
        TakeOutcome::NoAnswer => "unanswered",
    };
    let own = [("move", kind), ("outcome", outcome)];
    let own = own.map(|(key, value)| Label::from_static_parts(key, value));
    counter!("incumbent_set_moves_total", [labels, &own].concat())
}

/// Those of its shards are the metrics of elections.
pub(crate) struct SetTelemetry {
    load: Gauge,
    members: Gauge,
    shards: Gauge,
    weight: Gauge,
    labels: Vec<Label>,
    shown: Option<(MemberLoad, usize)>,
}

impl SetTelemetry {
    pub fn new(set: &Arc<str>, identity: &Arc<str>) -> Self {
        let labels =
            vec![Label::new("set", Arc::clone(set)), Label::new("identity", Arc::clone(identity))];
        for outcome in [TakeOutcome::Accepted, TakeOutcome::Refused, TakeOutcome::NoAnswer] {
            moves(&labels, "take", outcome).increment(0);
            moves(&labels, "give", outcome).increment(0);
        }
        let gauge = |name: &'static str| gauge!(name, labels.clone());
        Self {
            load: gauge("incumbent_set_load"),
            members: gauge("incumbent_set_members"),
            shards: gauge("incumbent_set_shards"),
            weight: gauge("incumbent_set_weight"),
            labels,
            shown: None,
        }
    }

    /// `members`: how many are known, this one among them.
    pub fn update(&mut self, load: MemberLoad, members: usize) {
        if self.shown.replace((load, members)) != Some((load, members)) {
            self.load.set(load.load);
            self.members.set(members as f64);
            self.shards.set(load.shards);
            self.weight.set(load.weight);
        }
    }

    /// The member is gone, and its process may continue. A weight of 0 takes it out of the
    /// imbalance.
    pub fn finished(&self) {
        for gauge in [&self.load, &self.members, &self.shards, &self.weight] {
            gauge.set(0.0);
        }
    }

    /// A shard of another member was asked for.
    pub fn took(&self, outcome: TakeOutcome) {
        moves(&self.labels, "take", outcome).increment(1);
    }

    /// A shard was to go to another member.
    pub fn gave(&self, outcome: TakeOutcome) {
        moves(&self.labels, "give", outcome).increment(1);
    }
}
