//! What is wrong with hints that reach a few of a fleet.

use super::{Mutation, edit};
use crate::instrument::Instrument::{Locks, Scenarios, Simulation};

pub(super) const OF_SAMPLING: &[Mutation] = &[
    Mutation {
        name: "a standby that received nothing counts silence as evidence",
        edits: &[edit(
            "src/protocol/standby.rs",
            "let receives_renewals = cx.coverage == Coverage::Full",
            "let receives_renewals = cx.coverage != Coverage::None",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a release that nobody received is never looked for",
        edits: &[edit(
            "src/protocol/sampling.rs",
            "(now.saturating_since(self.since) / (self.hints + 1)).min(MAX_WAIT)",
            "MAX_WAIT * 1_000_000",
        )],
        noticed_by: &[Scenarios, Simulation],
    },
    Mutation {
        name: "polls stay rare though hints come often",
        edits: &[edit("src/protocol/elector/hints.rs", "rate.hint_came(now);", "let _ = rate;")],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a successor that receives few hints does not read when it is named",
        edits: &[edit(
            "src/protocol/elector/hints.rs",
            "standby.read_soon(&self.cx, now, Duration::ZERO, now);",
            "let _ = standby;",
        )],
        noticed_by: &[Scenarios, Simulation],
    },
    Mutation {
        name: "polls of a former leader are as rare as hints were in its own term",
        edits: &[edit(
            "src/protocol/elector/mod.rs",
            "cx.hint_rate.take().map(|_| Box::new(HintRate::new(now)))",
            "cx.hint_rate.take()",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a process joins a queue group before a hint has come",
        edits: &[edit(
            "src/backends/nats/subscription_plan.rs",
            "filter(|_| full && received)",
            "filter(|_| full && (received || full))",
        )],
        noticed_by: &[Locks],
    },
    Mutation {
        name: "a candidate that is about to create receives few hints",
        edits: &[edit("src/protocol/elector/hints.rs", "|| standby.is_about_to_acquire()", "")],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a leader receives few hints",
        edits: &[edit(
            "src/protocol/elector/hints.rs",
            "Phase::Holding(_) | Phase::SteppingDown(_) => true,",
            "Phase::Holding(_) | Phase::SteppingDown(_) => false,",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a successor that missed the notice is not notified again",
        edits: &[edit("src/protocol/standby.rs", "cx.repeat_notice(now);", "")],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a candidate creates before it has subscribed to all hints",
        edits: &[edit(
            "src/backends/nats/listener.rs",
            "if !bucket.hub.lacks_hints(name) {",
            "if !bucket.hub.lacks_hints(name) || !name.is_empty() {",
        )],
        noticed_by: &[Locks],
    },
    Mutation {
        name: "a process receives the hints of a group whose members take part in other elections",
        edits: &[edit(
            "src/backends/nats/subscription_plan.rs",
            "sum.wrapping_add(member_hash(name))",
            "sum.wrapping_add(member_hash(name) * 0)",
        )],
        noticed_by: &[Locks],
    },
    Mutation {
        name: "the elections of a queue group are not those that have joined since",
        edits: &[edit(
            "src/backends/nats/subscription_plan.rs",
            "&& self.group == group",
            "&& (self.group == group || self.group != group)",
        )],
        noticed_by: &[Locks],
    },
];
