//! What is wrong with moves of the leadership.

use super::{Mutation, edit};
use crate::instrument::Instrument::{Decisions, Scenarios, Simulation};

pub(super) const OF_MOVES: &[Mutation] = &[
    Mutation {
        name: "the successor does not go first",
        edits: &[edit(
            "src/protocol/turn.rs",
            "if to == settings.nonce => Self::First,",
            "if false => Self::First,",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "the others do not hold back for the successor",
        edits: &[edit(
            "src/protocol/turn.rs",
            "(Some(_), Standing::Ready) => Self::After(hold),",
            "(Some(_), Standing::Ready) => Self::Any,",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "the successor waits as one that has just stepped down",
        edits: &[edit(
            "src/protocol/standby.rs",
            "Turn::First => at,",
            "Turn::First => at.max(self.not_before),",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a sick standby does not wait for the others",
        edits: &[edit(
            "src/protocol/turn.rs",
            "(_, Standing::Sick) => Self::After(lease),",
            "(_, Standing::Sick) => Self::Any,",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a standby that stands aside does not wait for the others",
        edits: &[edit(
            "src/protocol/turn.rs",
            "(_, Standing::Aside) => Self::After(lease / 2),",
            "(_, Standing::Aside) => Self::Any,",
        )],
        noticed_by: &[Scenarios],
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
        name: "a candidate whose writes were refused does not learn that they are accepted",
        edits: &[edit(
            "src/protocol/context.rs",
            "if self.health.refuses_writes() && self.settings.may_acquire() {",
            "if false && self.settings.may_acquire() {",
        )],
        noticed_by: &[Scenarios, Simulation],
    },
    Mutation {
        name: "a sick successor goes first",
        edits: &[edit(
            "src/protocol/turn.rs",
            "(Some(to), Standing::Ready | Standing::Aside) if",
            "(Some(to), _) if",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a tombstone that expires makes a sick standby wait anew",
        edits: &[edit(
            "src/protocol/standby.rs",
            "*self.holds_back_since.get_or_insert(vacancy.first_seen)",
            "*self.holds_back_since.insert(vacancy.first_seen)",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a standby that recovers waits on",
        edits: &[edit(
            "src/protocol/elector/mod.rs",
            "settings.standing = standing;\n        if let Phase::Standby(standby) = &mut self.phase {\n            standby.turn_changes(&mut self.cx, now);\n",
            "settings.standing = standing;\n        if let Phase::Standby(standby) = &mut self.phase {\n            let _ = standby;\n",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a release names no successor",
        edits: &[edit("src/protocol/holding.rs", "true, Some(to)))", "true, None))")],
        noticed_by: &[Scenarios, Simulation],
    },
    Mutation {
        name: "a term is moved voluntarily however young it is",
        edits: &[edit(
            "src/protocol/moves.rs",
            "MoveRole::Leads(since) if now < since + self.settings.lease => Err(Refusal::TooSoon),",
            "MoveRole::Leads(since) if now < since => Err(Refusal::TooSoon),",
        )],
        noticed_by: &[Decisions, Simulation],
    },
    Mutation {
        name: "a sick leader searches for a successor however young its term is",
        edits: &[
            edit(
                "src/protocol/moves.rs",
                "Some((since + lease).max(pause_ends))",
                "Some(since.max(pause_ends))",
            ),
            edit(
                "src/protocol/moves.rs",
                "MoveRole::Leads(since) if now < since + self.settings.lease => Err(Refusal::TooSoon),",
                "MoveRole::Leads(since) if now < since => Err(Refusal::TooSoon),",
            ),
        ],
        noticed_by: &[Simulation, Decisions],
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
        name: "a pause forbids what an operator orders",
        edits: &[edit("src/protocol/moves.rs", "if reason.is_voluntary() {", "if true {")],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "a holder that receives no requests states its priority",
        edits: &[edit(
            "src/protocol/context.rs",
            "may_be_asked && self.coverage != Coverage::None;",
            "may_be_asked;",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a leader that steps down does not repeat its notice",
        edits: &[edit(
            "src/protocol/elector/hints.rs",
            "if held && !mine && stopped {",
            "if held && !mine && false {",
        )],
        noticed_by: &[Scenarios],
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
        name: "a pause has no bound",
        edits: &[edit(
            "src/lock/types.rs",
            "self.until_unix_ms.min(now_unix_ms.saturating_add(max));",
            "self.until_unix_ms.min(max.max(u64::MAX));",
        )],
        noticed_by: &[Scenarios],
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
        name: "a sick leader hands over to one that is as sick",
        edits: &[edit(
            "src/protocol/moves.rs",
            "standing < self.standing,",
            "standing <= self.standing,",
        )],
        noticed_by: &[Decisions, Simulation],
    },
    Mutation {
        name: "a leader hands over to one that leads or waits to lead",
        edits: &[edit(
            "src/protocol/moves.rs",
            "included && info.nonce != self.settings.nonce && info.role == Role::Standby",
            "included && info.nonce != self.settings.nonce",
        )],
        noticed_by: &[Decisions, Simulation],
    },
    Mutation {
        name: "a sick leader does not search for a successor",
        edits: &[edit(
            "src/protocol/moves.rs",
            "if self.standing != Standing::Ready || self.asked => {",
            "if self.asked => {",
        )],
        noticed_by: &[Decisions, Simulation],
    },
    Mutation {
        name: "a sick leader that finds nobody searches no more",
        edits: &[edit(
            "src/protocol/moves.rs",
            "if matches!(reason, Reason::Standing | Reason::Preferred) {",
            "if matches!(reason, Reason::Preferred) {",
        )],
        noticed_by: &[Decisions, Simulation],
    },
    Mutation {
        name: "a handover that fails postpones the search of a sick leader",
        edits: &[edit(
            "src/protocol/moves.rs",
            "if matches!(reason, Reason::Standing | Reason::Preferred) {",
            "if !matches!(reason, Reason::Taken(_)) {",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "something voluntary takes the place of an order",
        edits: &[edit(
            "src/protocol/moves.rs",
            "MoveRole::Leads(since) if self.ordered == Some(since) => Err(Refusal::Busy),",
            "",
        )],
        noticed_by: &[Decisions, Simulation],
    },
    Mutation {
        name: "a leader whose term has ended since hands over the next one",
        edits: &[edit(
            "src/protocol/moves.rs",
            "if self.role != MoveRole::Leads(since) {",
            "if !matches!(self.role, MoveRole::Leads(_)) {",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "a candidate that is to be preferred does not ask",
        edits: &[edit("src/protocol/moves.rs", "(is_lower && !self.asked)", "(false && is_lower)")],
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
        name: "a candidate that is not ready asks to be preferred",
        edits: &[edit(
            "src/protocol/moves.rs",
            "self.standing = standing;\n        self.ready_since = (standing == Standing::Ready).then_some(now);",
            "self.standing = standing;\n        self.ready_since = Some(now);",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "a leader gives way to one of its own priority",
        edits: &[edit(
            "src/protocol/moves.rs",
            "if priority <= self.settings.priority {",
            "if priority < self.settings.priority {",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "a leader that is asked hands over to one of a lower priority",
        edits: &[edit(
            "src/protocol/moves.rs",
            "Reason::Preferred => info.priority > self.settings.priority,",
            "Reason::Preferred => true,",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "the answer of an earlier leader settles who is preferred",
        edits: &[edit(
            "src/protocol/moves.rs",
            "if self.asking.take() != Some(self.role) {",
            "if self.asking.take().is_none() {",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "a question that a roll call replaced is awaited forever",
        edits: &[edit(
            "src/protocol/moves.rs",
            "        self.asking = None; // the roll call takes the place of a question to an earlier leader\n",
            "",
        )],
        noticed_by: &[Decisions, Simulation],
    },
    Mutation {
        name: "the requests of those that are to be preferred are not spread",
        edits: &[edit("src/protocol/moves.rs", ".then_some(from + spread)", ".then_some(from)")],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "a handover that drains becomes a resignation",
        edits: &[edit(
            "src/protocol/drain.rs",
            "Event::HandOver { .. } => held.leave = Some(event),",
            "Event::HandOver { .. } => held.leave = Some(Event::Resign),",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "one failure makes a candidate sick",
        edits: &[edit(
            "src/protocol/health.rs",
            "self.against >= self.threshold.get()",
            "self.against >= 1",
        )],
        noticed_by: &[Decisions],
    },
];
