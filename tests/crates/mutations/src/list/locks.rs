//! The ways to break a rule of several locks at once, of a quorum of peers, and of object storage.

use super::{Mutation, edit};
use crate::instrument::Instrument::{Locks, Records, Several, Simulation, Stores, Voters};

pub(super) const OF_LOCKS: &[Mutation] = &[
    Mutation {
        name: "a roll call of any id is answered",
        edits: &[edit(
            "src/lock/codec/mod.rs",
            "if hex { u64::from_str_radix(text, 16).ok() } else { None }",
            "u64::from_str_radix(text, 16).ok().or(Some(u64::from(hex)))",
        )],
        noticed_by: &[Records],
    },
    Mutation {
        name: "NATS: a read without a response counts as refused",
        edits: &[edit(
            "src/backends/nats/lock.rs",
            "Err(ApiFailure::Request(RequestFailure::Denied(_))) => {",
            "Err(ApiFailure::Request(RequestFailure::Denied(_) | RequestFailure::TimedOut(_))) => {",
        )],
        noticed_by: &[Locks],
    },
    Mutation {
        name: "NATS: an answer is told by a number that others can guess",
        edits: &[edit("src/backends/nats/reply_inbox.rs", "self.key.hash_one(number)", "0")],
        noticed_by: &[Locks],
    },
    Mutation {
        name: "a NATS create waits by the TTL that was known before an eviction",
        edits: &[edit(
            "src/backends/nats/lock.rs",
            "let facts = match self.state().doubts_ttl() {",
            "let facts = match false && self.state().doubts_ttl() {",
        )],
        noticed_by: &[Locks],
    },
    Mutation {
        name: "several locks are given back in the order in which they were taken",
        edits: &[edit(
            "src/protocol/multi/giving_back.rs",
            "for index in (0..self.members.len()).rev() {",
            "for index in 0..self.members.len() {",
        )],
        noticed_by: &[Several],
    },
    Mutation {
        name: "several locks: the deadline is the latest one",
        edits: &[edit(
            "src/protocol/multi/mod.rs",
            "deadlines?.into_iter().min()",
            "deadlines?.into_iter().max()",
        )],
        noticed_by: &[Several],
    },
    Mutation {
        name: "quorum: a voter that begins again votes at once",
        edits: &[edit(
            "src/backends/peer/quorum/acceptor.rs",
            "lease + longest_round(lease) * 2 + lease / 100",
            "lease / 100",
        )],
        noticed_by: &[Voters],
    },
    Mutation {
        name: "quorum: a promise is good for whatever start of its voter",
        edits: &[edit(
            "src/backends/peer/quorum/acceptor.rs",
            "if to != self.incarnation || !self.votes(now) {",
            "if to != self.incarnation && !self.votes(now) {",
        )],
        noticed_by: &[Voters],
    },
    Mutation {
        name: "quorum: what was accepted is forgotten before a lease is over",
        edits: &[edit(
            "src/backends/peer/quorum/acceptor.rs",
            "accepted.at + self.lease < now",
            "accepted.at + self.lease / 4 < now",
        )],
        noticed_by: &[Voters],
    },
    Mutation {
        name: "quorum: a write may rest on a vote of a start that was replaced",
        edits: &[edit(
            "src/backends/peer/quorum/seats.rs",
            ".all(|(name, stamp)| self.names.contains(name) && self.is_latest(name, *stamp));",
            ".all(|(name, stamp)| self.names.contains(name) && stamp.round > 0);",
        )],
        noticed_by: &[Voters],
    },
    Mutation {
        name: "quorum: a replacement needs the grant of one voter only",
        edits: &[edit(
            "src/backends/peer/quorum/seats.rs",
            "(size / 2 + 1).min(size.saturating_sub(1))",
            "1.min(size)",
        )],
        noticed_by: &[Voters],
    },
    Mutation {
        name: "quorum: a word for a seat counts for whatever start of its name",
        edits: &[edit("src/backends/peer/quorum/seats.rs", "|| to != self.stamp ", "")],
        noticed_by: &[Voters],
    },
    Mutation {
        name: "quorum: a round waits no longer on a slow network",
        edits: &[edit(
            "src/backends/peer/quorum/voter/proposing.rs",
            "let least = (self.resend_interval() * 4).max(now.saturating_since(proposal.began) * 2);\n        let grown = least.saturating_mul(1 << proposal.abandoned.min(MAX_DOUBLINGS));",
            "let grown = self.resend_interval() * 4;",
        )],
        noticed_by: &[Voters],
    },
    Mutation {
        name: "peers: a signed datagram is taken as often as it comes",
        edits: &[edit(
            "src/backends/peer/seal/guard.rs",
            "let new = known.window.take(parts.number);",
            "let new = known.window.take(parts.number) || parts.number > 0;",
        )],
        noticed_by: &[Voters],
    },
    Mutation {
        name: "quorum: a voter that cannot remember an election is silent",
        edits: &[edit(
            "src/backends/peer/quorum/acceptor.rs",
            "return Some(Body::Full { ballot });",
            "return None;",
        )],
        noticed_by: &[Voters],
    },
    Mutation {
        name: "quorum: a replacement votes at once when it has its seat",
        edits: &[edit(
            "src/backends/peer/quorum/voter/seating.rs",
            "self.acceptor.set_votes_from(now + silence(self.settings.lease));",
            "self.acceptor.set_votes_from(now);",
        )],
        noticed_by: &[Voters],
    },
    Mutation {
        name: "object store: what a slow store has shown of its conditions is forgotten",
        edits: &[edit(
            "src/backends/object_storage/lock.rs",
            "            if refused.load(Ordering::Relaxed) {\n                continue;\n            }\n",
            "",
        )],
        noticed_by: &[Stores],
    },
    Mutation {
        name: "object store: each address is taken for a cloud's own",
        edits: &[edit(
            "src/backends/object_storage/store.rs",
            "!self.place.starts_with(\"s3:\") && !self.connector.reached_another_store()",
            "!self.place.starts_with(\"s3:\")",
        )],
        noticed_by: &[Stores],
    },
    Mutation {
        name: "object store: a write is unconditional",
        edits: &[edit(
            "src/backends/object_storage/store.rs",
            "Some(version) => PutMode::Update(version.clone()),",
            "Some(_) => PutMode::Overwrite,",
        )],
        noticed_by: &[Stores],
    },
    Mutation {
        name: "object store: an entry that was set back counts as it did then",
        edits: &[edit(
            "src/backends/object_storage/known.rs",
            "let content = terms.set_back(content);",
            "let _ = terms;",
        )],
        noticed_by: &[Simulation, Stores],
    },
    Mutation {
        name: "object store: an object is distinguished from an older one by its number, not by its version",
        edits: &[edit(
            "src/backends/object_storage/known.rs",
            "if let Some(known) = state.known.as_ref().filter(|known| known.version == version) {",
            "if let Some(known) = state.known.as_ref().filter(|known| known.number == number) {",
        )],
        noticed_by: &[Simulation],
    },
    Mutation {
        name: "object store: an answer from before another candidate's write counts as put back",
        edits: &[edit(
            "src/backends/object_storage/known.rs",
            "if let Some(known) = before.known.as_ref().filter(|known| known.version == version) {",
            "if let Some(known) = before.known.as_ref().filter(|known| known.number == u64::MAX) {",
        )],
        noticed_by: &[Simulation],
    },
    Mutation {
        name: "object store: numbers continue from the current object only",
        edits: &[edit(
            "src/backends/object_storage/known.rs",
            "next.max(self.newest().map_or(0, |newest| newest.0)).max(clock)",
            "next.max(clock)",
        )],
        noticed_by: &[Simulation],
    },
    Mutation {
        name: "object store: the expiry for Go's candidates has no allowance for skew",
        edits: &[edit(
            "src/backends/object_storage/vimeo_timing.rs",
            "life => life.saturating_add(self.skew),",
            "life => life,",
        )],
        noticed_by: &[Simulation],
    },
    Mutation {
        name: "object store: a Go leader is waited for one term",
        edits: &[edit(
            "src/backends/object_storage/vimeo_timing.rs",
            "        let by_wall_clock = stated.saturating_add(self.skew).saturating_add(self.longest);\n        self.longest.saturating_mul(2).max",
            "        let by_wall_clock = stated.saturating_add(self.skew);\n        self.longest.max",
        )],
        noticed_by: &[Simulation, Stores],
    },
];
