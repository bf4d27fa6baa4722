//! What makes a run differ from its replay, and replays that do not see it.

use super::{Mutation, edit};
use crate::instrument::Instrument::{Elections, Scenarios};

pub(super) const OF_HISTORIES: &[Mutation] = &[
    Mutation {
        name: "a candidate draws from elsewhere than its seed",
        edits: &[edit(
            "src/protocol/context.rs",
            "random: fastrand::Rng::with_seed(settings.seed),",
            "random: fastrand::Rng::new(),",
        )],
        noticed_by: &[Scenarios, Elections],
    },
    Mutation {
        name: "a replay does not compare what the protocol returns",
        edits: &[edit(
            "src/history/replay.rs",
            "same(\"out\", &recorded.output, &output)?;",
            "same(\"out\", &recorded.output, &recorded.output)?;",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a replay takes a response to no request",
        edits: &[edit(
            "src/history/replay.rs",
            "self.in_flight.remove(&input.lock) != Some(id)",
            "self.in_flight.remove(&input.lock) == Some(!id)",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a replay lets the time run back",
        edits: &[edit("src/history/replay.rs", "if input.at < self.now {", "if false {")],
        noticed_by: &[Scenarios],
    },
];
