//! Models of stores that are not true: what is put beside the stores themselves must differ.

use super::{Mutation, edit};
use crate::instrument::Instrument::Differential;

pub(super) const OF_MODELS: &[Mutation] = &[
    Mutation {
        name: "the model: an entry outlives the bucket's max_age",
        edits: &[edit(
            "tests/crates/sim/src/server.rs",
            "keeping if keeping.frees() => life.min(self.bucket_ttl),",
            "keeping if keeping.frees() => life,",
        )],
        noticed_by: &[Differential],
    },
    Mutation {
        name: "the model: a tombstone leaves no marker when its time has come",
        edits: &[edit(
            "tests/crates/sim/src/server.rs",
            "if marked && stored.record.content != marker {",
            "if marked && matches!(stored.record.content, Content::Held(_)) {",
        )],
        noticed_by: &[Differential],
    },
    Mutation {
        name: "the model: a row is never reported as over",
        edits: &[edit(
            "tests/crates/sim/src/server.rs",
            "is_judged.then_some(*expires)",
            "is_judged.then_some(*expires).filter(|_| false)",
        )],
        noticed_by: &[Differential],
    },
    Mutation {
        name: "the model: no ETag comes back with its content",
        edits: &[edit(
            "tests/crates/sim/src/objects/store.rs",
            "Version(if self.hashed { place as u64 } else { self.versions })",
            "Version(self.versions)",
        )],
        noticed_by: &[Differential],
    },
    Mutation {
        name: "the model: a generation comes back with its content",
        edits: &[edit(
            "tests/crates/sim/src/objects/store.rs",
            "Version(if self.hashed { place as u64 } else { self.versions })",
            "Version(place as u64)",
        )],
        noticed_by: &[Differential],
    },
    Mutation {
        name: "the model: a deleted Lease leaves something behind",
        edits: &[edit(
            "tests/crates/sim/src/server.rs",
            "Keeping::Forever => self.last = None,",
            "Keeping::Forever if self.last.is_none() => {}",
        )],
        noticed_by: &[Differential],
    },
];
