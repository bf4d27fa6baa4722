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
        name: "the death of one process counts as that of its tree",
        edits: &[edit(CONNECTION, "match wraps {", "match wraps && limit.is_zero() {")],
        noticed_by: &[Programs],
    },
    Mutation {
        name: "a process that does not belong to the program may register",
        edits: &[edit(CONNECTION, "wraps && !tree::is_descendant(pid)", "wraps && false")],
        noticed_by: &[Programs],
    },
    Mutation {
        name: "a process with the id of another may register",
        edits: &[edit(
            "cli/src/process/pidfd.rs",
            "Some(found) if found == started =>",
            "Some(found) if found == started || started > 0 =>",
        )],
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
        name: "a reaper does not resume the guard of a dead candidate",
        edits: &[edit(
            "cli/src/process/reaper.rs",
            "Some(if is_guard { RESUME } else { KILL_TREE })",
            "Some(if is_guard { Signal::CHILD } else { KILL_TREE })",
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
        name: "a candidate waits forever for what cannot be killed",
        edits: &[edit(
            "cli/src/run/guard/handle.rs",
            "self.give_up_at.get_or_insert_with(give_up_at)",
            "self.give_up_at.insert(give_up_at())",
        )],
        noticed_by: &[Programs],
    },
    Mutation {
        name: "a command of a set restarts in each term as in its first one",
        edits: &[edit(
            "cli/src/set/commands.rs",
            "entry(shard).or_default()",
            "entry(shard).insert_entry(Restarts::default()).into_mut()",
        )],
        noticed_by: &[Programs],
    },
    Mutation {
        name: "a guard sends no stop signal in a drain",
        edits: &[edit(
            "cli/src/run/guard/process.rs",
            "Ok(GuardRequest::Drain) => self.drain_tree(),",
            "Ok(GuardRequest::Drain) => {}",
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
