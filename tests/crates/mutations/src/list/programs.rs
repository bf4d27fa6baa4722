//! Sentinels and guards that release what still works: rules of the command line.

use super::{Mutation, edit};
use crate::instrument::Instrument::Programs;

const CONNECTION: &str = "cli/src/sentinel/connection.rs";

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
            edit(
                "cli/src/sentinel/wrap.rs",
                "tree::kill_all(None, BootClock.now() + KILL_TIMEOUT)",
                "tree::kill_none(BootClock.now() + KILL_TIMEOUT)",
            ),
            edit(
                "cli/src/process/tree.rs",
                "/// Sends a signal to every descendant.",
                "/// Kills nothing.\npub async fn kill_none(_: Instant) -> Killed {\n    Killed { changed: Vec::new(), left: Vec::new() }\n}\n\n/// Sends a signal to every descendant.",
            ),
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
