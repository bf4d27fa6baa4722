//! Rules of terms, moves and sets, and of the programs that keep them: sentinels and guards.

use super::{Mutation, edit};
use crate::instrument::Instrument::{
    Decisions, Differential, Elections, Model, Programs, Scenarios, Sets, Simulation,
};

pub(super) const OF_ELECTIONS: &[Mutation] = &[
    Mutation {
        name: "a term begins before its checkpoint is claimed",
        edits: &[edit(
            "src/driver/term.rs",
            "true => self.claim(token, deadline),",
            "true => self.begin_term(token, deadline, None),",
        )],
        noticed_by: &[Elections],
    },
    Mutation {
        name: "a term begins after its deadline, as its claim has taken so long",
        edits: &[edit(
            "src/driver/term.rs",
            "claim.take_if(|claim| now < claim.deadline)",
            "claim.take_if(|claim| claim.deadline < now || now < claim.deadline)",
        )],
        noticed_by: &[Elections],
    },
    Mutation {
        name: "a term claims the checkpoint of a later one",
        edits: &[edit(
            "src/protocol/checkpoint.rs",
            "if stored.token > self.token {",
            "if stored.token > self.token && false {",
        )],
        noticed_by: &[Scenarios, Model, Elections, Simulation],
    },
    Mutation {
        name: "a term reads its checkpoint and does not claim it",
        edits: &[edit(
            "src/protocol/checkpoint.rs",
            "false => CheckpointProgress::Next,",
            "false => CheckpointProgress::Done,",
        )],
        noticed_by: &[Scenarios, Model, Simulation],
    },
    Mutation {
        name: "a checkpoint is saved without its condition",
        edits: &[edit(
            "src/election/claimed_checkpoint.rs",
            "let content = checkpoint.encode();",
            "let content = checkpoint.encode();
                let expected = store.load(name, timeout).await?.map(|s| s.version).or(expected);",
        )],
        noticed_by: &[Elections],
    },
    Mutation {
        name: "a claim forgets the data of the checkpoint",
        edits: &[edit(
            "src/protocol/checkpoint.rs",
            "self.save.data.clone().unwrap_or(kept)",
            "self.save.data.clone().or(Some(kept).filter(|_| false)).unwrap_or_default()",
        )],
        noticed_by: &[Scenarios, Model, Elections],
    },
    Mutation {
        name: "a slot runs before it is recorded",
        edits: &[edit(
            "src/schedule/jobs.rs",
            "let saved = term.save().await;\n            if !matches!",
            "let saved: Result<bool, ScheduleError> = Ok(true);\n            if !matches!",
        )],
        noticed_by: &[Elections],
    },
    Mutation {
        name: "a run that was cut short counts as ended",
        edits: &[edit(
            "src/schedule/plan.rs",
            "if self.open && job.runs == Runs::AtLeastOnce {",
            "if self.open && job.runs == Runs::AtLeastOnce && false {",
        )],
        noticed_by: &[Decisions, Elections],
    },
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
            "src/driver/mod.rs",
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
        name: "a leader hands over to one that is sick",
        edits: &[edit(
            "src/protocol/moves.rs",
            "readiness == Readiness::Ready,\n        };",
            "readiness <= Readiness::Unhealthy,\n        };",
        )],
        noticed_by: &[Decisions, Simulation],
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
        name: "a shard moves in a pause, or before its term has lasted a lease",
        edits: &[
            edit(
                "src/protocol/moves.rs",
                "!matches!(self, Self::Requested(_))",
                "!matches!(self, Self::Requested(_) | Self::Taken(_))",
            ),
            edit(
                "src/protocol/moves.rs",
                "        self.check_voluntary(now)?;\n        self.call(Reason::Taken(request))",
                "        let _ = now;\n        self.call(Reason::Taken(request))",
            ),
        ],
        noticed_by: &[Sets],
    },
    Mutation {
        name: "the model: an entry outlives the bucket's max_age",
        edits: &[edit(
            "tests/crates/sim/src/server.rs",
            "retention if retention.frees() => life.max(MIN_LIFE).min(self.bucket_ttl),",
            "retention if retention.frees() => life.max(MIN_LIFE),",
        )],
        noticed_by: &[Differential],
    },
];

pub(super) const OF_PROGRAMS: &[Mutation] = &[
    Mutation {
        name: "a closed connection counts as the death of its process",
        edits: &[edit(
            "cli/src/sentinel/connection.rs",
            "return process.dead_soon().await;",
            "return Ok(());",
        )],
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
                "cli/src/process/linux/tree.rs",
                "            self.signal_all(Signal::KILL);\n",
                "",
            ),
        ],
        noticed_by: &[Programs],
    },
    Mutation {
        name: "a process that does not belong to the program may register",
        edits: &[edit(
            "cli/src/sentinel/connection.rs",
            "wraps && !tree::is_descendant(pid)",
            "wraps && false",
        )],
        noticed_by: &[Programs],
    },
    Mutation {
        name: "a tree counts as ended without a proof",
        edits: &[edit("cli/src/run/guard/handle.rs", "match self.empty {", "match true {")],
        noticed_by: &[Programs],
    },
    Mutation {
        name: "a watchdog resets the machine after its lease",
        edits: &[edit(
            "cli/src/run/grace.rs",
            "validity.saturating_sub(self.kill + lease / 8)",
            "validity * 2",
        )],
        noticed_by: &[Programs],
    },
    Mutation {
        name: "a child that /proc hides is not signalled",
        edits: &[edit(
            "cli/src/process/linux/tree.rs",
            "let _ = kill_process(child, signal); // not waited",
            "Process::open(child).into_iter().for_each(|child| child.send(signal)); // not waited",
        )],
        noticed_by: &[Programs],
    },
    Mutation {
        name: "a reaper leaves what a killed guard left",
        edits: &[edit(
            "cli/src/process/linux/reaper.rs",
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
];
