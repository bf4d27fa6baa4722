//! What is wrong with what a candidate believes of entries that were tampered with.

use super::{Mutation, edit};
use crate::instrument::Instrument::{Decisions, Records, Scenarios, Simulation};

pub(super) const OF_TAMPERING: &[Mutation] = &[
    Mutation {
        name: "a create in doubt that is found had no holder before it, as was proven before it",
        edits: &[edit(
            "src/protocol/observations.rs",
            "if !(in_doubt && capabilities.empty_is_proof) {",
            "if !in_doubt {",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a leader takes the writes of its twin for its own",
        edits: &[edit(
            "src/protocol/requests.rs",
            "self.stored.as_ref().is_some_and(|stored| stored.contains(&number))",
            "number > 0",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a candidate takes what a twin with a late clock writes for its own",
        edits: &[edit(
            "src/protocol/requests.rs",
            "stored.contains(&number)",
            "number <= stored[0]",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a holder that was seen counts for nothing once the lock is set back",
        edits: &[edit(
            "src/protocol/observations.rs",
            "self.barrier = self.barrier.max(NotBefore::new(ends, WaitReason::SeenLease));",
            "",
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
        name: "an own entry that comes back after another's is taken for a release",
        edits: &[edit("src/protocol/observations.rs", " || own.is_some_and(is_before)", "")],
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
        name: "a term stays registered under the nonce of a twin",
        edits: &[edit(
            "src/driver/sentinel/registration.rs",
            "before.filter(|before| nonce != Some(before.nonce))",
            "before.filter(|_| nonce.is_none())",
        )],
        noticed_by: &[Decisions],
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
        name: "an evicted holder is waited for although it says that its work has stopped",
        edits: &[edit(
            "src/protocol/cool_down.rs",
            "if *by != Nonce::NOBODY && mark_is_holders(*by) =>",
            "if mark_is_holders(*by) =>",
        )],
        noticed_by: &[Scenarios],
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
        name: "a tombstone over a tombstone counts like the first",
        edits: &[edit(
            "src/protocol/observations.rs",
            "Some(known) if known.is_followed_by(previous) => {",
            "Some(known) if known.is_followed_by(None) => {",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "work that would not stop is forgotten over an empty key",
        edits: &[edit(
            "src/protocol/observations.rs",
            "self.barrier = self.barrier.max(NotBefore::new(deadline, WaitReason::OwnEarlierTerm));",
            "",
        )],
        noticed_by: &[Scenarios, Simulation],
    },
];
