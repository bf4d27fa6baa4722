//! Models of stores that are not true: what is put beside the stores themselves must differ.

use super::{Mutation, edit};
use crate::instrument::Instrument::Differential;

pub(super) const OF_MODELS: &[Mutation] = &[
    Mutation {
        name: "the model: an entry outlives the bucket's max_age",
        edits: &[edit(
            "tests/sim/src/server.rs",
            "keeping if keeping.frees() => life.min(self.bucket_ttl),",
            "keeping if keeping.frees() => life,",
        )],
        noticed_by: &[Differential],
    },
    Mutation {
        name: "the model: a tombstone leaves no marker when its time has come",
        edits: &[edit(
            "tests/sim/src/server.rs",
            "if marked && stored.record.content != marker {",
            "if marked && matches!(stored.record.content, Content::Held(_)) {",
        )],
        noticed_by: &[Differential],
    },
];
