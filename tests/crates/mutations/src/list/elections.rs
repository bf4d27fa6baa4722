//! Rules of terms, moves, hints and sets.

use super::{Mutation, edit};
use crate::instrument::Instrument::{
    Decisions, Differential, Elections, Scenarios, Sets, Simulation,
};

pub(super) const OF_ELECTIONS: &[Mutation] = &[
    Mutation {
        name: "a guard does not read the clock itself",
        edits: &[edit(
            "src/election/term.rs",
            "if now < deadline - self.margin {",
            "if now < deadline + Duration::from_secs(3600) {",
        )],
        noticed_by: &[Elections],
    },
    Mutation {
        name: "a term that is over is handed out",
        edits: &[edit(
            "src/election/term.rs",
            "        self.over();\n        let mut state = locked(&self.state);\n        let open",
            "        let mut state = locked(&self.state);\n        let open",
        )],
        noticed_by: &[Elections],
    },
    Mutation {
        name: "the end of a candidate's task leaves its term",
        edits: &[edit(
            "src/driver/finish.rs",
            "if let Some(term) = term {\n            let cause",
            "if let Some(term) = term.filter(|_| false) {\n            let cause",
        )],
        noticed_by: &[Elections],
    },
    Mutation {
        name: "a successor does not wait for a running step",
        edits: &[edit(
            "src/election/term.rs",
            "self.held == 0 && self.steps == 0",
            "self.held == 0",
        )],
        noticed_by: &[Elections],
    },
    Mutation {
        name: "a drain has no end",
        edits: &[edit("src/protocol/drain.rs", "now + self.limit", "now + self.limit * 1000")],
        noticed_by: &[Elections],
    },
    Mutation {
        name: "a candidate whose writes are refused is ready",
        edits: &[
            edit(
                "src/protocol/context.rs",
                "let refused = self.health.refuses_writes();",
                "let refused = false && self.health.refuses_writes();",
            ),
            edit(
                "src/protocol/elector/mod.rs",
                "self.term().is_none() && self.cx.health.refuses_writes()",
                "false && self.cx.health.refuses_writes()",
            ),
        ],
        noticed_by: &[Scenarios, Simulation],
    },
    Mutation {
        name: "a pause forbids nothing",
        edits: &[edit(
            "src/protocol/moves.rs",
            "if self.pause_ends.is_some_and(|ends| now < ends) => {",
            "if false => {",
        )],
        noticed_by: &[Decisions, Simulation],
    },
    Mutation {
        name: "a successor drops the pause",
        edits: &[edit(
            "src/protocol/context.rs",
            "        self.learn_pause(at, &record.content);\n",
            "",
        )],
        noticed_by: &[Scenarios, Simulation],
    },
    Mutation {
        name: "a leader hands over to one that is sick",
        edits: &[edit(
            "src/protocol/moves.rs",
            "standing == Standing::Ready,\n        };",
            "standing <= Standing::Sick,\n        };",
        )],
        noticed_by: &[Decisions, Simulation],
    },
    Mutation {
        name: "a candidate asks a leader of equal or higher priority",
        edits: &[edit(
            "src/protocol/moves.rs",
            "leader?.priority? < self.settings.priority;",
            "leader?.priority.is_some();",
        )],
        noticed_by: &[Decisions],
    },
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
        name: "a member leads more than it may",
        edits: &[edit(
            "src/lock/member_load.rs",
            "self.max.is_none_or(|max| self.load < max)",
            "self.max.is_none_or(|max| self.load < max || max > 0)",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "a shard moves in a pause, or before its term has lasted a lease",
        edits: &[
            edit(
                "src/protocol/move_types.rs",
                "!matches!(self, Self::Requested(_))",
                "!matches!(self, Self::Requested(_) | Self::Taken(_))",
            ),
            edit(
                "src/protocol/moves.rs",
                "    pub fn take(&mut self, now: Instant, request: TakeRequest) -> Result<(), Refusal> {\n        self.check_voluntary(now)?;",
                "    pub fn take(&mut self, now: Instant, request: TakeRequest) -> Result<(), Refusal> {\n        let _ = now;",
            ),
        ],
        noticed_by: &[Sets],
    },
    Mutation {
        name: "the model: an entry outlives the bucket's max_age",
        edits: &[edit(
            "tests/crates/sim/src/server.rs",
            "keeping if keeping.frees() => life.min(self.bucket_ttl),",
            "keeping if keeping.frees() => life,",
        )],
        noticed_by: &[Differential],
    },
];
