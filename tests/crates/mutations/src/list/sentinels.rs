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
        name: "a sentinel takes every create of the process for the start of the term",
        edits: &[edit(
            CRASH_RELEASE,
            "map_or(mark.write.number == self.create,",
            "map_or(self.create > 0,",
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
        name: "a winner that stops before it leads is registered with its sentinel",
        edits: &[edit(
            "src/protocol/stepping_down.rs",
            "self.token.filter(|_| self.began && self.step != Step::Done)",
            "self.token.filter(|_| self.step != Step::Done)",
        )],
        noticed_by: &[Scenarios],
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
        name: "a sentinel whose release was refused does not read again",
        edits: &[edit(
            CRASH_RELEASE,
            "self.refused = true;
                self.held = None;",
            "self.refused = true;",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a sentinel repeats a release in doubt without a read",
        edits: &[edit(CRASH_RELEASE, "self.held = None; // the outcome", "// the outcome")],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a sentinel that is refused again and again never waits",
        edits: &[edit(
            CRASH_RELEASE,
            "if failure.kind == LockErrorKind::Conflict && !self.refused =>",
            "if failure.kind == LockErrorKind::Conflict =>",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a release whose response was lost counts for nothing",
        edits: &[edit(
            CRASH_RELEASE,
            "if *by == self.term.nonce => {",
            "if *by != self.term.nonce => {",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a sentinel never gives up",
        edits: &[edit(CRASH_RELEASE, "if lasting || self.at > self.until {", "if lasting {")],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a sentinel insists where it has no right to release",
        edits: &[edit(
            CRASH_RELEASE,
            "if lasting || self.at > self.until {",
            "if !lasting && self.at > self.until {",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "the model: a sentinel does not wait for the end of the work",
        edits: &[edit(
            "tests/crates/sim/src/sentinel.rs",
            "self.sentinel_later(who, work + seen, Step::Dead { of });",
            "self.sentinel_later(who, seen, Step::Dead { of });",
        )],
        noticed_by: &[Simulation],
    },
];
