//! What is wrong with drains.

use super::{Mutation, edit};
use crate::instrument::Instrument::Elections;

pub(super) const OF_DRAINS: &[Mutation] = &[
    Mutation {
        name: "a drain has no end",
        edits: &[edit("src/protocol/drain.rs", "now + self.limit", "now + self.limit * 1000")],
        noticed_by: &[Elections],
    },
    Mutation {
        name: "a stop in the drain of a resignation is forgotten",
        edits: &[edit(
            "src/protocol/drain.rs",
            "Event::Stop => held.stop = true,",
            "Event::Stop => {}",
        )],
        noticed_by: &[Elections],
    },
    Mutation {
        name: "a stop is forgotten when the entry is lost in its drain",
        edits: &[edit("src/driver/terms.rs", "        self.drain_is_over();\n", "")],
        noticed_by: &[Elections],
    },
    Mutation {
        name: "a term that drains takes on further work",
        edits: &[edit(
            "src/election/term.rs",
            "!state.closed && state.drain_ends.is_none()",
            "!state.closed",
        )],
        noticed_by: &[Elections],
    },
    Mutation {
        name: "a panic counts as the end of a drain",
        edits: &[edit(
            "src/driver/drain.rs",
            "if panicked { Vec::new() } else { self.machine.drain.end() }",
            "self.machine.drain.end()",
        )],
        noticed_by: &[Elections],
    },
];
