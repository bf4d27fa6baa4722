//! The ways to break a rule.

use crate::instrument::Instrument::{
    self, Elections, Locks, Model, Objects, Records, Several, Simulation, Stores, Stories, Voters,
};

/// A rule broken: every text of `edits` stands in its file exactly once, and is replaced.
pub struct Mutation {
    /// What is wrong then.
    pub name: &'static str,
    pub edits: &'static [Edit],
    /// The instruments that must notice, the one to ask first in front.
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

pub const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "the deadline counts from the reply, not from before the send",
        edits: &[
            edit("src/protocol/office.rs", "self.renewed(outstanding.sent);", "self.renewed(now);"),
            edit(
                "src/protocol/office.rs",
                "deadline: sent + self.settings.timing.tenure(),",
                "deadline: now + self.settings.timing.tenure(),",
            ),
        ],
        noticed_by: &[Simulation, Model],
    },
    Mutation {
        name: "a renewal found by looking counts from the look, not from its send",
        edits: &[edit(
            "src/protocol/office.rs",
            "Some(sent) => self.renewed(sent),",
            "Some(_) => self.renewed(now),",
        )],
        noticed_by: &[Simulation, Model],
    },
    Mutation {
        name: "no cool-down",
        edits: &[edit("src/protocol/office.rs", "lead_at: wait.ends(now),", "lead_at: now,")],
        noticed_by: &[Simulation, Model, Stories],
    },
    Mutation {
        name: "an unknown vacancy earns no wait",
        edits: &[edit(
            "src/protocol/vacancy.rs",
            "if !self.empty_is_proof || c.policy == CoolDown::Strict {",
            "if c.policy == CoolDown::Strict {",
        )],
        noticed_by: &[Simulation, Model, Stories],
    },
    Mutation {
        name: "a lock's word that a watched entry has expired is believed",
        edits: &[edit(
            "src/protocol/knowledge.rs",
            "let previous = if itself { Some(Some(record.revision)) } else { previous };",
            "",
        )],
        noticed_by: &[Stories],
    },
    Mutation {
        name: "a watched holder is waited for by one's own lease, not by its",
        edits: &[edit(
            "src/protocol/vacancy.rs",
            "until = until.min(seen.right_ends(c.longest_lease, c.lock_expires));",
            "until = until.min(seen.at + c.lease);",
        )],
        noticed_by: &[Simulation],
    },
    Mutation {
        name: "entries do not live as long as their writer's cool-down",
        edits: &[edit(
            "src/protocol/standby.rs",
            "let life = self.settings.timing.lease().max(with_drift(left));",
            "let life = self.settings.timing.lease().max(left.min(Duration::ZERO));",
        )],
        noticed_by: &[Simulation, Model],
    },
    Mutation {
        name: "what is left of a cool-down is not passed on at a release or concession",
        edits: &[edit(
            "src/protocol/leaving.rs",
            "let left = with_drift(self.own_wait(now));",
            "let left = with_drift(Duration::ZERO);",
        )],
        noticed_by: &[Simulation, Model],
    },
    Mutation {
        name: "a create that was refused, and landed all the same, forgets its wait",
        edits: &[edit(
            "src/protocol/standby.rs",
            "if let (Err(_), Some(wait)) = (&answer, wait) {",
            "if let (Err(_), Some(wait), false) = (&answer, wait, known) {",
        )],
        noticed_by: &[Simulation, Stories],
    },
    Mutation {
        name: "the work has not stopped when the entry is given up",
        edits: &[edit(
            "src/protocol/leaving.rs",
            "step: if office.began { Step::Work } else { Step::Concede },",
            "step: Step::Concede,",
        )],
        noticed_by: &[Simulation, Model, Stories],
    },
    Mutation {
        name: "an entry is released though its work would not stop",
        edits: &[edit("src/protocol/leaving.rs", "leaving.release &= work_stopped;", "")],
        // Not the simulation: such a release passes the rest of the term on as a wait.
        noticed_by: &[Stories],
    },
    Mutation {
        name: "clocks are taken to run at exactly the same rate",
        edits: &[edit(
            "src/protocol/timing.rs",
            "let drift = lease / DRIFT_DIVISOR;",
            "let drift = lease / DRIFT_DIVISOR - lease / DRIFT_DIVISOR;",
        )],
        noticed_by: &[Simulation],
    },
    Mutation {
        name: "an expiry by the server's clock is believed under Strict",
        edits: &[edit(
            "src/protocol/vacancy.rs",
            "_ if c.policy == CoolDown::Strict => self.first_seen + full,",
            "_ if c.policy == CoolDown::Strict => c.now,",
        )],
        noticed_by: &[Simulation, Stories],
    },
    Mutation {
        name: "an unchanged entry is written over after half of its holder's lease",
        edits: &[
            edit(
                "src/protocol/standby.rs",
                "Some(seen.right_ends(self.capabilities.longest_lease, false))",
                "Some(seen.at + seen.entry.life / 2)",
            ),
            edit(
                "src/protocol/vacancy.rs",
                "Some(seen) if seen.heard || !c.lock_expires =>",
                "Some(seen) if seen.heard && c.lock_expires =>",
            ),
        ],
        noticed_by: &[Simulation, Stories],
    },
    Mutation {
        name: "a Choria campaigner is waited for like one of ours",
        edits: &[edit(
            "src/protocol/vacancy.rs",
            "with_drift(next_renewal.saturating_add(CHORIA_HANGS))",
            "with_drift(next_renewal.min(longest_lease))",
        )],
        noticed_by: &[Simulation, Stories],
    },
    Mutation {
        name: "entries are told apart by identity, not by nonce",
        edits: &[edit(
            "src/protocol/knowledge.rs",
            "entry.mark.as_ref().is_some_and(|mark| mark.write.nonce == self.settings.nonce)",
            "entry.mark.is_some() && entry.identity == self.settings.identity",
        )],
        noticed_by: &[Simulation, Model],
    },
    Mutation {
        name: "the token does not grow from term to term",
        edits: &[edit("src/protocol/office.rs", "token: created.into(),", "token: Token(1),")],
        noticed_by: &[Simulation, Model, Stories],
    },
    Mutation {
        name: "a lost reply to a renewal is taken for a loss",
        edits: &[edit(
            "src/protocol/office.rs",
            "                office.last_failure = Some(failure);\n                let delay = office.retries.get_or_insert(fresh).next();\n                office.renew_at",
            "                if failure.kind == LockErrorKind::Unknown {\n                    return self.leave_office(now, Cause::Usurped { by: None }, false);\n                }\n                let delay = office.retries.get_or_insert(fresh).next();\n                office.renew_at",
        )],
        noticed_by: &[Stories, Elections],
    },
    Mutation {
        name: "requests that fail are repeated without a delay",
        edits: &[edit(
            "src/protocol/office.rs",
            "                let delay = office.retries.get_or_insert(fresh).next();\n                office.renew_at = now + delay.unwrap_or(Duration::from_secs(1));\n            }\n        }\n    }\n\n    /// A write of the holder's",
            "                office.renew_at = now;\n            }\n        }\n    }\n\n    /// A write of the holder's",
        )],
        noticed_by: &[Simulation, Stories],
    },
    Mutation {
        name: "a campaign gives up when it has lost",
        edits: &[edit(
            "src/protocol/leaving.rs",
            "        if self.stopping {\n            return self.finish();",
            "        if self.stopping || matches!(self.phase, Phase::Leaving(_)) {\n            return self.finish();",
        )],
        noticed_by: &[Stories, Elections],
    },
    Mutation {
        name: "candidates that wake together all ask at once",
        edits: &[edit(
            "src/protocol/spread.rs",
            "window.mul_f64(((uniform * LAMBDA.exp_m1()).ln_1p() / LAMBDA).clamp(0.0, 1.0))",
            "window.mul_f64(uniform * LAMBDA.exp_m1() * 0.0)",
        )],
        noticed_by: &[Stories],
    },
    Mutation {
        name: "a renewal overwrites whatever is there",
        edits: &[edit(
            "src/nats/wire.rs",
            "    let mut headers = expecting(write.expected);\n    if ttl {",
            "    let renews = write.mark.token.is_some();\n    let mut headers = if renews { HeaderMap::new() } else { expecting(write.expected) };\n    if ttl {",
        )],
        noticed_by: &[Locks],
    },
    Mutation {
        name: "a renewal carries no TTL",
        edits: &[edit(
            "src/nats/wire.rs",
            "    if ttl {\n        put(&mut headers, TTL, whole_seconds(write.life)",
            "    if ttl && write.mark.token.is_none() {\n        put(&mut headers, TTL, whole_seconds(write.life)",
        )],
        noticed_by: &[Locks],
    },
    Mutation {
        name: "a release does not carry its holder's mark",
        edits: &[edit(
            "src/nats/wire.rs",
            "    put(&mut headers, BY, release.by.to_string());\n    put(&mut headers, LEFT",
            "    put(&mut headers, LEFT",
        )],
        noticed_by: &[Locks, Elections],
    },
    Mutation {
        name: "a delete by anybody counts as an expiry",
        edits: &[edit(
            "src/nats/wire.rs",
            "released(headers).unwrap_or(Tombstone::Deleted)",
            "released(headers).unwrap_or(Tombstone::Expired)",
        )],
        noticed_by: &[Locks],
    },
    Mutation {
        name: "an empty key proves that nobody leads, however young the bucket",
        edits: &[edit(
            "src/nats/lock.rs",
            "Ok(Reading::Empty { proof: proof.map_err(BucketError::into_lock_error)? })",
            "Ok(Reading::Empty { proof: proof.map_err(BucketError::into_lock_error).map(|_| true)? })",
        )],
        noticed_by: &[Locks],
    },
    Mutation {
        name: "is_leader is what was told last, not a comparison with the clock",
        edits: &[edit(
            "src/shared.rs",
            "until != 0 && self.clock.now() < from_ns(until)",
            "until != 0",
        )],
        noticed_by: &[Elections],
    },
    Mutation {
        name: "the loss is told before the work has stopped",
        edits: &[edit(
            "src/term_end.rs",
            "        let stopped = self.stop_work().await;\n        let (token,",
            "        let told = self.on_lost.clone();\n        self.tell_loss().await;\n        self.on_lost = told.filter(|_| false);\n        let stopped = self.stop_work().await;\n        let (token,",
        )],
        noticed_by: &[Elections],
    },
    Mutation {
        name: "Lease: a holder is judged by the time in its record, not by when we saw it change",
        edits: &[edit(
            "src/kubernetes/mark.rs",
            "let life = record.lease().unwrap_or(unsaid);",
            "let renewed = record.renew_time.as_deref().and_then(|t| t.parse::<k8s_openapi::jiff::Timestamp>().ok());\n    let age = renewed.map_or(Duration::ZERO, |t| k8s_openapi::jiff::Timestamp::now().duration_since(t).unsigned_abs());\n    let life = record.lease().unwrap_or(unsaid).saturating_sub(age);",
        )],
        noticed_by: &[Records],
    },
    Mutation {
        name: "Lease: a holder is waited for by our lease, not by its own",
        edits: &[edit(
            "src/kubernetes/mark.rs",
            "let life = record.lease().unwrap_or(unsaid);",
            "let life = record.lease().map_or(unsaid, |_| unsaid);",
        )],
        noticed_by: &[Records],
    },
    Mutation {
        name: "Lease: a holder that was seen to renew is waited for from when it was first seen",
        edits: &[edit(
            "src/protocol/knowledge.rs",
            "Some(seen) if seen.revision == record.revision => seen,",
            "Some(seen) if seen.revision == record.revision => seen,\n                    Some(seen) if !self.capabilities.expires => Sighting { revision: record.revision, entry, ..seen },",
        )],
        noticed_by: &[Stories, Simulation],
    },
    Mutation {
        name: "Lease: a record is looked at anew each time, as if it had changed",
        edits: &[edit(
            "src/protocol/knowledge.rs",
            "Some(seen) if seen.revision == record.revision => seen,",
            "Some(seen) if seen.revision == record.revision && self.capabilities.expires => seen,",
        )],
        noticed_by: &[Stories],
    },
    Mutation {
        name: "Lease: a holder of client-go is waited for half as long as it says",
        edits: &[edit(
            "src/protocol/vacancy.rs",
            "None if !lock_expires => self.at + self.entry.life,",
            "None if !lock_expires => self.at + self.entry.life / 2,",
        )],
        noticed_by: &[Simulation, Stories],
    },
    Mutation {
        name: "Lease: a write that was refused is sent again over whatever stands there",
        edits: &[edit(
            "src/kubernetes/entry.rs",
            "if known.as_ref().map(|known| known.revision) != expected {",
            "if known.is_some() != expected.is_some() {",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "Lease: a release is of whatever stands there",
        edits: &[edit(
            "src/kubernetes/entry.rs",
            "let known = self.put(name, Some(expected), by, describe, &says).await?;",
            "let now = self.look(&self.elections.get(name), name, by).await?;\n        let expected = now.map_or(expected, |now| now.revision);\n        let known = self.put(name, Some(expected), by, describe, &says).await?;",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "Lease: a renewal does not say which object it means",
        edits: &[edit(
            "src/kubernetes/entry.rs",
            "Some(known) => {\n                    let mut object = Value::clone(&known.object);",
            "Some(known) => {\n                    let mut object = Value::clone(&known.object);\n                    if let Some(metadata) = object.get_mut(\"metadata\").and_then(Value::as_object_mut) {\n                        metadata.remove(\"uid\");\n                        metadata.remove(\"resourceVersion\");\n                    }",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "Lease: a release keeps the holder",
        edits: &[edit(
            "src/kubernetes/entry.rs",
            "holder_identity: if keep { old.holder_identity } else { String::new() },",
            "holder_identity: old.holder_identity,",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "Lease: a release keeps the duration",
        edits: &[edit(
            "src/kubernetes/entry.rs",
            "if keep { whole_seconds(left) } else { RELEASED_SECONDS },",
            "if keep { whole_seconds(left) } else { old.lease_duration_seconds },",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "Lease: the first term of all is a transition",
        edits: &[edit(
            "src/kubernetes/entry.rs",
            "let begins_anew = begins && old.is_some() && !again;",
            "let begins_anew = begins && !again;",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "Lease: a renewal is a transition",
        edits: &[edit(
            "src/kubernetes/entry.rs",
            "let begins_anew = begins && old.is_some() && !again;",
            "let begins_anew = old.is_some() && !again;",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "Lease: one whose holder the API server chooses is stood for",
        edits: &[edit(
            "src/kubernetes/entry.rs",
            "if found.record.strategy.is_some() {",
            "if found.record.strategy.is_some() && name.is_empty() {",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "Lease: an emptied holder of ours counts as released",
        edits: &[edit(
            "src/kubernetes/mark.rs",
            "match released && !of_ours {",
            "match released && !(of_ours && record.is_held()) {",
        )],
        noticed_by: &[Records],
    },
    Mutation {
        name: "Lease: a mark counts for whatever record it stands beside",
        edits: &[edit(
            "src/kubernetes/mark.rs",
            "Some(Annotation { says, of, .. }) if *of == record => said(says, &record, unsaid),",
            "Some(Annotation { says, of, .. }) if *of == record || of.is_held() => said(says, &record, unsaid),",
        )],
        noticed_by: &[Records],
    },
    Mutation {
        name: "Lease: a token that is refused is not read again",
        edits: &[edit(
            "src/kubernetes/access.rs",
            "if current.token.as_ref() == Some(&token) {",
            "if current.token.as_ref() == Some(&token) || !token.is_empty() {",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "for life: a pod takes the lock of one with its name for its own",
        edits: &[edit(
            "src/kubernetes/life/candidate.rs",
            "if matches!(&*owners, [owner] if owner.uid == ours) {",
            "if matches!(&*owners, [owner] if owner.name == self.pod) {",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "for life: an owner lives as long as there is a pod with its name",
        edits: &[
            edit(
                "src/kubernetes/life/candidate.rs",
                "let Some(pod) = pod.filter(|pod| pod::uid(pod) == owner.uid) else {",
                "let Some(pod) = pod else {",
            ),
            edit(
                "src/kubernetes/life/candidate.rs",
                "owners.iter().filter(|owner| owner.uid != ours) {",
                "owners.iter() {",
            ),
        ],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "for life: a stuck lock is deleted whatever has become of it",
        edits: &[edit(
            "src/kubernetes/life/candidate.rs",
            "match self.locks.delete(&self.name, uid, Some(version), by()).await {",
            "match self.locks.delete(&self.name, uid, Some(version).filter(|_| false), by()).await {",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "for life: a release deletes the lock in whatever version",
        edits: &[edit(
            "src/kubernetes/life/leadership.rs",
            "self.locks.delete(&self.name, &self.uid, Some(pod::version(&lock)), by).await;",
            "self.locks.delete(&self.name, &self.uid, None, by).await;",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "several locks are given back in the order in which they were taken",
        edits: &[edit(
            "src/protocol/joint/giving_back.rs",
            "for index in (0..self.parts.len()).rev() {",
            "for index in 0..self.parts.len() {",
        )],
        noticed_by: &[Several],
    },
    Mutation {
        name: "several locks: the deadline is the latest one",
        edits: &[edit(
            "src/protocol/joint.rs",
            "deadlines?.into_iter().min()",
            "deadlines?.into_iter().max()",
        )],
        noticed_by: &[Several],
    },
    Mutation {
        name: "quorum: a voter that begins again votes at once",
        edits: &[edit(
            "src/peer/quorum/acceptor.rs",
            "lease + longest_round(lease) * 2 + lease / 100",
            "lease / 100",
        )],
        noticed_by: &[Voters],
    },
    Mutation {
        name: "quorum: a promise is good for whatever start of its voter",
        edits: &[edit(
            "src/peer/quorum/acceptor.rs",
            "if to != self.incarnation || !self.votes(now) {",
            "if to != self.incarnation && !self.votes(now) {",
        )],
        noticed_by: &[Voters],
    },
    Mutation {
        name: "quorum: what was accepted is forgotten before a lease is over",
        edits: &[edit(
            "src/peer/quorum/acceptor.rs",
            "accepted.at + self.lease < now",
            "accepted.at + self.lease / 4 < now",
        )],
        noticed_by: &[Voters],
    },
    Mutation {
        name: "object store: a write goes over whatever stands there",
        edits: &[edit(
            "src/objects/store.rs",
            "Some(version) => PutMode::Update(version.clone()),",
            "Some(_) => PutMode::Overwrite,",
        )],
        noticed_by: &[Stores],
    },
    Mutation {
        name: "object store: an entry that was set back counts as it did then",
        edits: &[edit(
            "src/objects/elections.rs",
            "let content = set_back(content, terms);",
            "let _ = (set_back, terms);",
        )],
        noticed_by: &[Stores],
    },
    Mutation {
        name: "object store: a Go leader is waited for one term",
        edits: &[edit(
            "src/objects/entry.rs",
            "    let by_wall_clock = said.saturating_add(terms.skew).saturating_add(terms.longest);\n    terms.longest.saturating_mul(2).max",
            "    let by_wall_clock = said.saturating_add(terms.skew);\n    terms.longest.max",
        )],
        noticed_by: &[Stores],
    },
];
