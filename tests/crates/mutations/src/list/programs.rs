//! Sentinels and guards that release what still works: rules of the command line.

use super::{Mutation, edit};
use crate::instrument::Instrument::Programs;

const CONNECTION: &str = "cli/src/sentinel/connection.rs";
const TREE: &str = "cli/src/process/tree.rs";

pub(super) const OF_PROGRAMS: &[Mutation] = &[
    Mutation {
        name: "a closed connection counts as the death of its process",
        edits: &[edit(CONNECTION, "return process.dead_soon().await;", "return Ok(());")],
        noticed_by: &[Programs],
    },
    Mutation {
        name: "a sentinel does not kill what its program left behind",
        edits: &[
            edit(
                "cli/src/sentinel/wrap.rs",
                "match killed.left() {",
                "match killed.left().filter(|_| false) {",
            ),
            edit(TREE, "            self.signal_all(Signal::KILL);\n", ""),
        ],
        noticed_by: &[Programs],
    },
    Mutation {
        name: "a process that does not belong to the program may register",
        edits: &[edit(CONNECTION, "wraps && !tree::is_descendant(pid)", "wraps && false")],
        noticed_by: &[Programs],
    },
    Mutation {
        name: "a child that /proc hides is not signalled",
        edits: &[edit(
            TREE,
            "let _ = kill_process(child, signal); // not waited",
            "Process::open(child).into_iter().for_each(|child| child.send(signal)); // not waited",
        )],
        noticed_by: &[Programs],
    },
    Mutation {
        name: "a tree counts as ended without a proof",
        edits: &[edit("cli/src/run/guard/handle.rs", "match self.empty {", "match true {")],
        noticed_by: &[Programs],
    },
    Mutation {
        name: "a reaper leaves what a killed guard left",
        edits: &[edit(
            "cli/src/process/reaper.rs",
            "        if reaped.none_left {\n            break;",
            "        if reaped.none_left || has_ended {\n            break;",
        )],
        noticed_by: &[Programs],
    },
    Mutation {
        name: "a candidate leads without its reaper",
        edits: &[edit(
            "cli/src/run/guard/handle.rs",
            "if !self.reaper_has_ended =>",
            "if self.reaper_has_ended =>",
        )],
        noticed_by: &[Programs],
    },
    Mutation {
        name: "a lost term lets its command drain on",
        edits: &[edit(
            "cli/src/run/guard/process.rs",
            "                && until.ask_at <= now\n                && !self.is_stopping()",
            "                && until.ask_at <= now\n                && matches!(self.phase, Phase::Running)",
        )],
        noticed_by: &[Programs],
    },
];
