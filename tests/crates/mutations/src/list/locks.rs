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
        name: "quorum: a write may rest on a vote of a start that was replaced",
        edits: &[edit(
            "src/backends/peer/quorum/seats.rs",
            ".all(|(name, stamp)| self.names.contains(name) && self.is_latest(name, *stamp));",
            ".all(|(name, stamp)| self.names.contains(name) && stamp.round > 0);",
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
        name: "object store: a Go leader is waited for one term",
        edits: &[edit(
            "src/backends/object_storage/vimeo_timing.rs",
            "        let by_wall_clock = stated.saturating_add(self.skew).saturating_add(self.longest);\n        self.longest.saturating_mul(2).max",
            "        let by_wall_clock = stated.saturating_add(self.skew);\n        self.longest.max",
        )],
        noticed_by: &[Simulation, Stores],
    },
];
