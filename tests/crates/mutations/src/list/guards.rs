//! What keeps guards to their time, and hints from being lost.

use super::{Mutation, edit};
use crate::instrument::Instrument::{Elections, Locks, Scenarios};

pub const OF_GUARDS: &[Mutation] = &[
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
        name: "work begins in a term that is over",
        edits: &[edit("src/driver/terms.rs", "if term.over().is_none() {", "if true {")],
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
        name: "a guard of an old term ends the next",
        edits: &[edit(
            "src/driver/mod.rs",
            "self.shared().status.borrow().term.as_ref().map(|term| term.number)",
            "self.term",
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
        name: "a lock that refuses every write as a conflict is not reported",
        edits: &[edit(
            "src/protocol/lock_health.rs",
            "Some(failure) => self.failed(failure, false),",
            "Some(_) => self.succeeded(false, acquires),",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a coverage that is one hint too many is forgotten",
        edits: &[edit(
            "src/election/hint_queue.rs",
            "(Some(missed), Hint::Coverage(coverage)) => missed.coverage = Some(coverage),",
            "(Some(_), Hint::Coverage(_)) => {}",
        )],
        noticed_by: &[Elections],
    },
    Mutation {
        name: "hints end with the runtime of the first who listened",
        edits: &[edit(
            "src/backends/hint_hub/mod.rs",
            "if let Some((number, runtime)) = next {",
            "if let Some((number, runtime)) = next.filter(|_| false) {",
        )],
        noticed_by: &[Locks],
    },
    Mutation {
        name: "no subscriber reads after dropped messages",
        edits: &[edit(
            "src/backends/nats/listener.rs",
            "ConnectionEvent::Missed => self.missed(),",
            "ConnectionEvent::Missed => {}",
        )],
        noticed_by: &[Locks],
    },
];
