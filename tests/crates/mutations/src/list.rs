//! The ways to break a rule.

mod elections;
mod stores;

use crate::instrument::Instrument::{
    self, Decisions, Elections, Locks, Model, Records, Scenarios, Simulation,
};
use elections::{OF_ELECTIONS, OF_PROGRAMS};
use stores::{OF_DATABASES, OF_KUBERNETES, OF_LOCKS};

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
        name: "a short entry that was read counts as vacant before its lease is over",
        edits: &[edit(
            "src/protocol/context.rs",
            "is_stale_first.then(|| ends.max(seen.at + shortest))",
            "is_stale_first.then(|| match seen.entry.mark {\n            Some(_) if expires => seen.at,\n            _ => ends.max(seen.at + shortest),\n        })",
        )],
        noticed_by: &[Scenarios, Simulation],
    },
    Mutation {
        name: "a short entry beside Choria's candidates counts as vacant after its lease",
        edits: &[edit(
            "src/protocol/context.rs",
            "is_short(entry) && !self.settings.with_choria",
            "is_short(entry)",
        )],
        noticed_by: &[Scenarios],
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
        name: "no cool-down",
        edits: &[edit(
            "src/protocol/cool_down.rs",
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
        name: "an unchanged entry is written over after half of its holder's lease",
        edits: &[
            edit(
                "src/protocol/context.rs",
                "is_stale_first.then(|| ends.max(seen.at + shortest))",
                "is_stale_first.then(|| seen.at + seen.entry.ttl / 2)",
            ),
            edit(
                "src/protocol/cool_down.rs",
                "if strict || seen.from_hint || !expires || !seen.lived_its_lease(max_lease) =>",
                "if strict || seen.from_hint && expires =>",
            ),
        ],
        noticed_by: &[Simulation, Scenarios],
    },
    Mutation {
        name: "an expired entry proves the end of a right that it could not outlive",
        edits: &[edit(
            "src/protocol/cool_down.rs",
            " || !seen.lived_its_lease(max_lease) =>",
            " =>",
        )],
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
        name: "a Choria candidate is waited for like one of ours",
        edits: &[edit(
            "src/protocol/observations.rs",
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
            "                self.last_failure = Some(failure);\n                let delay = timing.scaled(self.retries.get_or_insert(fresh).delay());\n                self.renew_at",
            "                if failure.kind == LockErrorKind::OutcomeUnknown {\n                    return self.ends(Cause::Superseded { by: None }, false);\n                }\n                let delay = timing.scaled(self.retries.get_or_insert(fresh).delay());\n                self.renew_at",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a candidate gives up when it has lost",
        edits: &[edit(
            "src/protocol/stepping_down.rs",
            "        if cx.stopping {\n            return Transition::Finish;",
            "        if cx.stopping || self.step == Step::Done {\n            return Transition::Finish;",
        )],
        noticed_by: &[Scenarios, Elections],
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
        noticed_by: &[Locks],
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
            "src/driver/term.rs",
            "        let stopped = self.stop_work().await;\n        self.term",
            "        let told = self.on_lost.clone();\n        self.call_on_lost().await;\n        self.on_lost = told.filter(|_| false);\n        let stopped = self.stop_work().await;\n        self.term",
        )],
        noticed_by: &[Elections],
    },
    Mutation {
        name: "a leader takes the writes of its twin for its own",
        edits: &[edit(
            "src/protocol/context.rs",
            "self.stored.as_ref().is_some_and(|stored| stored.contains(&number))",
            "number > 0",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a step-down is told by its revision alone",
        edits: &[edit(
            "src/protocol/cool_down.rs",
            "self.term.map_or(self.revision == step_down.revision, of_term)",
            "self.revision == step_down.revision || self.term.is_some_and(of_term)",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a release of an earlier term that is put back is believed on Kubernetes",
        edits: &[edit(
            "src/backends/kubernetes/known.rs",
            "is_some_and(|(t, _)| record.leader_transitions < t)",
            "is_some_and(|(t, _)| record.leader_transitions < t.min(0))",
        )],
        noticed_by: &[Records],
    },
    Mutation {
        name: "an evicted holder is not waited for as long as it may lead",
        edits: &[edit(
            "src/lock/request.rs",
            "let left = entry.lease(max_lease, lock_expires);",
            "let left = entry.lease(max_lease, lock_expires) / 9;",
        )],
        noticed_by: &[Simulation, Scenarios],
    },
    Mutation {
        name: "a release by any candidate is believed",
        edits: &[edit(
            "src/protocol/cool_down.rs",
            "seen.term().is_some_and(|(holder, _)| holder == by)",
            "seen.term().is_none_or(|(holder, _)| holder == by || holder != by)",
        )],
        noticed_by: &[Simulation, Scenarios],
    },
    Mutation {
        name: "rights once seen are forgotten over an empty key",
        edits: &[edit(
            "src/protocol/observations.rs",
            "self.seen_leases_end = self.seen_leases_end.max(ends);",
            "self.seen_leases_end = self.seen_leases_end.min(ends);",
        )],
        noticed_by: &[Simulation],
    },
    Mutation {
        name: "work that would not stop is forgotten over an empty key",
        edits: &[edit(
            "src/protocol/cool_down.rs",
            "self.barrier = self.barrier.max(NotBefore::new(deadline, WaitReason::OwnEarlierTerm));",
            "",
        )],
        noticed_by: &[Scenarios, Simulation],
    },
    Mutation {
        name: "a sentinel does not compare the candidate of an entry",
        edits: &[edit(
            "src/protocol/crash_release.rs",
            "mark.write.nonce == self.nonce && of_term",
            "of_term",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a sentinel does not compare the term of an entry",
        edits: &[edit(
            "src/protocol/crash_release.rs",
            "mark.write.nonce == self.nonce && of_term",
            "mark.write.nonce == self.nonce && (of_term || self.token.0 < u64::MAX)",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a winner that still waits is registered with its sentinel",
        edits: &[
            edit(
                "src/protocol/elector.rs",
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
        name: "a create in doubt that is found had no holder before it, as was proven before it",
        edits: &[edit(
            "src/protocol/cool_down.rs",
            "if !(in_doubt && capabilities.empty_is_proof) {",
            "if !in_doubt {",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a holder that was seen counts for nothing once the lock is set back",
        edits: &[edit(
            "src/protocol/cool_down.rs",
            "let ends = self.seen_leases_end;",
            "let ends = Instant::ORIGIN;",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "an own entry that comes back after another's is taken for a release",
        edits: &[edit("src/protocol/cool_down.rs", " || own.is_some_and(is_before)", "")],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a tombstone over a tombstone counts like the first",
        edits: &[edit(
            "src/protocol/observations.rs",
            "Some(known) if known.is_followed_by(previous) => {",
            "Some(known) if known.is_followed_by(None) => {",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "an evicted holder is waited for although it says that its work has stopped",
        edits: &[edit(
            "src/protocol/cool_down.rs",
            "if *by != Nonce::NOBODY && mark_is_holders(*by) =>",
            "if mark_is_holders(*by) =>",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a term is registered until its work stops, not until its entry is released",
        edits: &[edit(
            "src/protocol/elector.rs",
            "Phase::SteppingDown(stepping_down) => stepping_down.releasable(),",
            "Phase::SteppingDown(stepping_down) => stepping_down
                .releasable()
                .filter(|_| stepping_down.next_wake().is_none()),",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a term stays registered under the nonce of a twin",
        edits: &[edit(
            "src/driver/sentinel/registration.rs",
            "before.filter(|before| nonce != Some(before.nonce))",
            "before.filter(|_| nonce.is_none())",
        )],
        noticed_by: &[Decisions],
    },
];
