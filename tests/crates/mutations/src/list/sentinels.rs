//! Sentinels that release what is not of a dead leader, or not all of it.

use super::{Mutation, edit};
use crate::instrument::Instrument::{Scenarios, Simulation};

const CRASH_RELEASE: &str = "src/protocol/crash_release.rs";

pub(super) const OF_SENTINELS: &[Mutation] = &[
    Mutation {
        name: "a sentinel does not compare the candidate of an entry",
        edits: &[edit(CRASH_RELEASE, "mark.write.nonce == self.nonce && of_term", "of_term")],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a sentinel does not compare the term of an entry",
        edits: &[edit(
            CRASH_RELEASE,
            "mark.write.nonce == self.nonce && of_term",
            "mark.write.nonce == self.nonce && (of_term || self.token.0 < u64::MAX)",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a winner that still waits is registered with its sentinel",
        edits: &[
            edit(
                "src/protocol/elector/mod.rs",
                "Phase::Holding(holding) => holding.term().map(|(token, _)| token),",
                "Phase::Holding(holding) => holding.held(),",
            ),
            edit(
                "src/protocol/holding.rs",
                "pub fn term(&self) -> Option<(Token, Instant)> {",
                "pub fn held(&self) -> Option<Token> {
        Some(self.token)
    }

    pub fn term(&self) -> Option<(Token, Instant)> {",
            ),
        ],
        noticed_by: &[Simulation, Scenarios],
    },
    Mutation {
        name: "a term is registered until its work stops, not until its entry is released",
        edits: &[edit(
            "src/protocol/elector/mod.rs",
            "Phase::SteppingDown(stepping_down) => stepping_down.releasable(),",
            "Phase::SteppingDown(stepping_down) => stepping_down
                .releasable()
                .filter(|_| stepping_down.next_wake().is_none()),",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a sentinel passes on a wait that is over",
        edits: &[edit(
            CRASH_RELEASE,
            "left: Duration::ZERO, // only",
            "left: self.timeout, // only",
        )],
        noticed_by: &[Simulation, Scenarios],
    },
    Mutation {
        name: "a sentinel never gives up",
        edits: &[edit(CRASH_RELEASE, "if lasting || self.at > self.until {", "if lasting {")],
        noticed_by: &[Scenarios],
    },
];
