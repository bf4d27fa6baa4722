//! The ways to break a rule.

mod databases;
mod elections;
mod kubernetes;
mod locks;
mod programs;
mod sentinels;
mod tampering;

use crate::instrument::Instrument::{self, Elections, Locks, Model, Scenarios, Simulation};
use databases::OF_DATABASES;
use elections::OF_ELECTIONS;
use kubernetes::OF_KUBERNETES;
use locks::OF_LOCKS;
use programs::OF_PROGRAMS;
use sentinels::OF_SENTINELS;
use tampering::OF_TAMPERING;

/// A rule broken: every text of `edits` occurs in its file exactly once, and is replaced.
pub struct Mutation {
    /// What is wrong then.
    pub name: &'static str,
    pub edits: &'static [Edit],
    /// The instruments that must notice, the first one to run first.
    pub noticed_by: &'static [Instrument],
}

pub struct Edit {
    pub file: &'static str,
    pub from: &'static str,
    pub to: &'static str,
}

const fn edit(file: &'static str, from: &'static str, to: &'static str) -> Edit {
    Edit { file, from, to }
}

/// All of them.
pub fn mutations() -> impl Iterator<Item = &'static Mutation> {
    OF_THE_PROTOCOL
        .iter()
        .chain(OF_KUBERNETES)
        .chain(OF_LOCKS)
        .chain(OF_DATABASES)
        .chain(OF_ELECTIONS)
        .chain(OF_SENTINELS)
        .chain(OF_TAMPERING)
        .chain(OF_PROGRAMS)
}

const OF_THE_PROTOCOL: &[Mutation] = &[
    Mutation {
        name: "the deadline counts from the reply, not from before the send",
        edits: &[
            edit(
                "src/protocol/holding.rs",
                "self.renewed(cx, request.sent, number);",
                "self.renewed(cx, now, number);",
            ),
            edit(
                "src/protocol/holding.rs",
                "deadline: sent + cx.settings.timing.validity(),",
                "deadline: now + cx.settings.timing.validity(),",
            ),
        ],
        noticed_by: &[Simulation, Model],
    },
    Mutation {
        name: "a renewal found by a read counts from the read, not from its send",
        edits: &[edit(
            "src/protocol/holding.rs",
            "Some(sent) if durable => self.renewed(cx, sent, number),",
            "Some(_) if durable => self.renewed(cx, now, number),",
        )],
        noticed_by: &[Simulation, Model],
    },
    Mutation {
        name: "a renewal that a read finds extends the term, though it may still be lost",
        edits: &[edit(
            "src/protocol/holding.rs",
            "let durable = cx.capabilities.reads_are_durable;",
            "let durable = true;",
        )],
        noticed_by: &[Simulation, Scenarios],
    },
    Mutation {
        name: "two writes of one revision count as one",
        edits: &[edit(
            "src/protocol/observations.rs",
            "seen.revision == revision && seen.is_of(&entry) => seen,",
            "seen.revision == revision => seen,",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "no cool-down",
        edits: &[edit(
            "src/protocol/observations.rs",
            "        wait.begins(now);\n",
            "        wait.not_before = NotBefore::new(now, WaitReason::NothingToWaitFor);\n",
        )],
        noticed_by: &[Simulation, Model, Scenarios],
    },
    Mutation {
        name: "an unknown vacancy earns no wait",
        edits: &[edit(
            "src/protocol/cool_down.rs",
            "(None, _) if vacancy.empty_is_proof && !strict => {",
            "(None, _) if !strict => {",
        )],
        noticed_by: &[Simulation, Model, Scenarios],
    },
    Mutation {
        name: "a lock's word that a watched entry has expired is believed",
        edits: &[edit(
            "src/protocol/observations.rs",
            "let previous = if itself { Some(revision) } else { previous };",
            "",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "entries do not live as long as their writer's cool-down",
        edits: &[edit(
            "src/protocol/context.rs",
            "self.settings.timing.lease().max(with_drift(left))",
            "self.settings.timing.lease().max(left.min(Duration::ZERO))",
        )],
        noticed_by: &[Simulation, Model],
    },
    Mutation {
        name: "the rest of a cool-down is not passed on at a release or step-down notice",
        edits: &[edit(
            "src/protocol/stepping_down.rs",
            "let left = with_drift(cx.own_cool_down(now));",
            "let left = with_drift(Duration::ZERO);",
        )],
        noticed_by: &[Simulation, Model],
    },
    Mutation {
        name: "a create that was refused, and landed all the same, forgets its wait",
        edits: &[edit(
            "src/protocol/standby.rs",
            "if let (Err(_), Some(wait)) = (&result, wait) {",
            "if let (Err(_), Some(wait), false) = (&result, wait, known) {",
        )],
        noticed_by: &[Simulation, Scenarios],
    },
    Mutation {
        name: "the work has not stopped when the entry is given up",
        edits: &[edit(
            "src/protocol/stepping_down.rs",
            "step: if began { Step::StopWork } else { Step::Notify },",
            "step: Step::Notify,",
        )],
        noticed_by: &[Simulation, Model, Scenarios],
    },
    Mutation {
        name: "an entry is released though its work would not stop",
        edits: &[edit("src/protocol/stepping_down.rs", "self.release &= work_stopped;", "")],
        // Not the simulation: such a release passes the rest of the term on as a wait.
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "clocks are taken to run at exactly the same rate",
        edits: &[edit(
            "src/time/timing.rs",
            "let drift = lease / DRIFT_DIVISOR;",
            "let drift = lease / DRIFT_DIVISOR - lease / DRIFT_DIVISOR;",
        )],
        noticed_by: &[Simulation],
    },
    Mutation {
        name: "an expiry by the server's clock is believed under Strict",
        edits: &[edit(
            "src/protocol/cool_down.rs",
            "(Some(Expired), None) if strict => row(seen_at + unknown, UnknownHolder),",
            "(Some(Expired), None) if strict => row(now, UnknownHolder),",
        )],
        noticed_by: &[Simulation, Scenarios],
    },
    Mutation {
        name: "the late hint of an entry that the lock called expired vouches for the one before",
        edits: &[edit(
            "src/protocol/observations.rs",
            "            && matches!(record.content, Content::Vacant(_))\n",
            "",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "an unchanged entry is written over after half of its holder's lease",
        edits: &[
            edit(
                "src/protocol/context.rs",
                "Some(seen.lease_ends(self.capabilities.max_lease, false))",
                "Some(seen.at + seen.entry.ttl / 2)",
            ),
            edit(
                "src/protocol/cool_down.rs",
                "if strict || seen.from_hint || !expires || !seen.is_allowed(max_lease) =>",
                "if strict || seen.from_hint && expires =>",
            ),
        ],
        noticed_by: &[Simulation, Scenarios],
    },
    Mutation {
        name: "an expired entry proves the end of a right that it could not outlive",
        edits: &[edit("src/protocol/cool_down.rs", " || !seen.is_allowed(max_lease) =>", " =>")],
        noticed_by: &[Simulation, Scenarios],
    },
    Mutation {
        name: "a watched holder is waited for by no more than the TTL known so far",
        edits: &[edit(
            "src/protocol/cool_down.rs",
            "until_step_down(seen.lease_ends(max_lease, expires), SeenLease)",
            "until_step_down(seen.at + seen.lease(max_lease, true).min(max_lease), SeenLease)",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a holder of unknown last write is waited for by no longer lease that was seen",
        edits: &[edit(
            "src/protocol/cool_down.rs",
            "let full = with_drift(max_lease).max(seen.unwrap_or_default());",
            "let full = with_drift(max_lease).max(seen.unwrap_or_default().min(max_lease));",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "what was seen in a bucket that is gone hides what follows in the next one",
        edits: &[edit(
            "src/protocol/observations.rs",
            "self.last_seen.take_if(|seen| seen.revision > created);",
            "let _ = self.last_seen.take_if(|seen| seen.revision < created && false);",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a tombstone means for ever what it meant when it was first seen",
        edits: &[edit(
            "src/protocol/observations.rs",
            "known.tombstone == tombstone;",
            "known.revision() == tombstone.as_ref().map(|t| t.0);",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a create that was sent before the TTL was raised waits by the old one",
        edits: &[edit(
            "src/protocol/observations.rs",
            "if is_blind || max_lease > wait.max_lease {",
            "if is_blind {",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a Choria candidate is waited for like one of ours",
        edits: &[edit(
            "src/protocol/cool_down.rs",
            "with_drift(next_renewal.saturating_add(REQUEST_TIMEOUT))",
            "with_drift(next_renewal.min(bucket_ttl))",
        )],
        noticed_by: &[Simulation, Scenarios],
    },
    Mutation {
        name: "entries are distinguished by identity, not by nonce",
        edits: &[edit(
            "src/protocol/context.rs",
            "entry.mark.as_ref().filter(|_| is_own)",
            "entry.mark.as_ref().filter(|_| is_own || entry.identity == self.settings.identity)",
        )],
        noticed_by: &[Simulation, Model],
    },
    Mutation {
        name: "the token does not grow from term to term",
        edits: &[edit("src/protocol/holding.rs", "token: created.into(),", "token: Token(1),")],
        noticed_by: &[Simulation, Model, Scenarios],
    },
    Mutation {
        name: "a lost reply to a renewal is taken for a loss",
        edits: &[edit(
            "src/protocol/holding.rs",
            "                self.last_failure = Some(failure);\n                let delay = self.retries.get_or_insert(fresh).delay();\n                self.renew_at",
            "                if failure.kind == LockErrorKind::OutcomeUnknown {\n                    return self.ends(Cause::Superseded { by: None }, false);\n                }\n                let delay = self.retries.get_or_insert(fresh).delay();\n                self.renew_at",
        )],
        noticed_by: &[Scenarios, Elections],
    },
    Mutation {
        name: "requests that fail are repeated without a delay",
        edits: &[edit(
            "src/protocol/holding.rs",
            "                let delay = self.retries.get_or_insert(fresh).delay();\n                self.renew_at = now + delay;\n            }\n        }\n        Next::Stay\n    }\n\n    /// A write of the holder's",
            "                self.renew_at = now;\n            }\n        }\n        Next::Stay\n    }\n\n    /// A write of the holder's",
        )],
        noticed_by: &[Simulation, Scenarios],
    },
    Mutation {
        name: "a candidate gives up when it has lost",
        edits: &[edit(
            "src/protocol/stepping_down.rs",
            "        if cx.stopping {\n            return Next::Finish;",
            "        if cx.stopping || self.step == Step::Done {\n            return Next::Finish;",
        )],
        noticed_by: &[Scenarios, Elections],
    },
    Mutation {
        name: "candidates that wake together all acquire at once",
        edits: &[edit(
            "src/protocol/acquire.rs",
            "window.mul_f64(((uniform * LAMBDA.exp_m1()).ln_1p() / LAMBDA).clamp(0.0, 1.0))",
            "window.mul_f64(uniform * LAMBDA.exp_m1() * 0.0)",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a renewal overwrites whatever is there",
        edits: &[edit(
            "src/backends/nats/codec.rs",
            "    let mut headers = expecting(write.expected);\n    if ttl {",
            "    let renews = write.mark.token.is_some();\n    let mut headers = if renews { HeaderMap::new() } else { expecting(write.expected) };\n    if ttl {",
        )],
        noticed_by: &[Locks],
    },
    Mutation {
        name: "a renewal carries no TTL",
        edits: &[edit(
            "src/backends/nats/codec.rs",
            "    if ttl {\n        put(&mut headers, TTL, ceil_seconds(write.ttl)",
            "    if ttl && write.mark.token.is_none() {\n        put(&mut headers, TTL, ceil_seconds(write.ttl)",
        )],
        noticed_by: &[Locks],
    },
    Mutation {
        name: "a release does not carry its holder's mark",
        edits: &[edit(
            "src/backends/nats/codec.rs",
            "    put(&mut headers, BY, release.by.to_string());\n    put(&mut headers, LEFT",
            "    put(&mut headers, LEFT",
        )],
        noticed_by: &[Locks, Elections],
    },
    Mutation {
        name: "a delete by any client counts as an expiry",
        edits: &[edit(
            "src/backends/nats/codec.rs",
            "released(headers).unwrap_or(Tombstone::Deleted)",
            "released(headers).unwrap_or(Tombstone::Expired)",
        )],
        noticed_by: &[Locks],
    },
    Mutation {
        name: "an empty key proves that there is no leader, however young the bucket",
        edits: &[edit(
            "src/backends/nats/lock.rs",
            "Ok(Reading::Empty { proof: proof.map_err(BucketError::into_lock_error)? })",
            "Ok(Reading::Empty { proof: proof.map_err(BucketError::into_lock_error).map(|_| true)? })",
        )],
        noticed_by: &[Locks],
    },
    Mutation {
        name: "is_leader is the last report, not a comparison with the clock",
        edits: &[edit(
            "src/election/term.rs",
            "until != 0 && now < Instant::from_nanos(until)",
            "until != 0 && now < Instant::from_nanos(u64::MAX)",
        )],
        noticed_by: &[Elections],
    },
    Mutation {
        name: "the loss is reported before the work has stopped",
        edits: &[edit(
            "src/driver/term_end.rs",
            "        let stopped = self.stop_work().await;\n        self.term",
            "        let told = self.on_lost.clone();\n        self.call_on_lost().await;\n        self.on_lost = told.filter(|_| false);\n        let stopped = self.stop_work().await;\n        self.term",
        )],
        noticed_by: &[Elections],
    },
];
