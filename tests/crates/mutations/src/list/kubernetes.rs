//! The ways to break a rule of the locks on Kubernetes.

use super::{Mutation, edit};
use crate::instrument::Instrument::{Objects, Records, Scenarios, Simulation};

pub(super) const OF_KUBERNETES: &[Mutation] = &[
    Mutation {
        name: "Lease: a holder is judged by the time in its record, not by when we saw it change",
        edits: &[edit(
            "src/backends/kubernetes/codec.rs",
            "let life = record.lease().unwrap_or(default_lease);",
            "let renewed = record.renew_time.as_deref().and_then(|t| t.parse::<k8s_openapi::jiff::Timestamp>().ok());\n    let age = renewed.map_or(Duration::ZERO, |t| k8s_openapi::jiff::Timestamp::now().duration_since(t).unsigned_abs());\n    let life = record.lease().unwrap_or(default_lease).saturating_sub(age);",
        )],
        noticed_by: &[Records],
    },
    Mutation {
        name: "Lease: a holder is waited for by our lease, not by its own",
        edits: &[edit(
            "src/backends/kubernetes/codec.rs",
            "let life = record.lease().unwrap_or(default_lease);",
            "let life = record.lease().map_or(default_lease, |_| default_lease);",
        )],
        noticed_by: &[Records],
    },
    Mutation {
        name: "Lease: a holder of client-go is waited for half as long as its record states",
        edits: &[edit(
            "src/lock/types.rs",
            "None if !lock_expires => self.ttl,",
            "None if !lock_expires => self.ttl / 2,",
        )],
        noticed_by: &[Simulation, Scenarios],
    },
    Mutation {
        name: "Lease: a refused write is repeated unconditionally",
        edits: &[edit(
            "src/backends/kubernetes/store.rs",
            "if known.as_ref().map(|known| known.revision) != expected {",
            "if known.is_some() != expected.is_some() {",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "Lease: a release is unconditional",
        edits: &[edit(
            "src/backends/kubernetes/store.rs",
            "let known = self.put(name, Some(expected), by, describe, &mark).await?;",
            "let now = self.fetch(&self.elections.get(name), name, by).await?;\n        let expected = now.map_or(expected, |now| now.revision);\n        let known = self.put(name, Some(expected), by, describe, &mark).await?;",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "Lease: a write that an admission webhook changed counts as it was sent",
        edits: &[edit(
            "src/backends/kubernetes/store.rs",
            "let Some(field) = changed else { return Ok(known) };",
            "let Some(field) = changed.filter(String::is_empty) else { return Ok(known) };",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "an entry is written over before its holder's lease has ended",
        edits: &[edit(
            "src/protocol/standby.rs",
            "cx.coverage == Coverage::Full && cx.is_stale(now)",
            "cx.coverage == Coverage::Full && !cx.capabilities.expires_entries",
        )],
        noticed_by: &[Scenarios, Simulation],
    },
    Mutation {
        name: "Lease: a winner that waited for a leader of client-go's leads without a new write",
        edits: &[edit(
            "src/protocol/cool_down.rs",
            "wait.confirm = !expires && !is_ours;",
            "wait.confirm = is_ours && !is_ours;",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "Lease: an eviction empties the holder, so client-go's candidates lead at once",
        edits: &[edit(
            "src/backends/kubernetes/store.rs",
            "holder_identity: if keep { holder } else { String::new() },",
            "holder_identity: if keep && !evicts { holder } else { String::new() },",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "Lease: an emptied holder of ours counts as released",
        edits: &[edit(
            "src/backends/kubernetes/codec.rs",
            "match released && !of_ours {",
            "match released && !(of_ours && record.is_held()) {",
        )],
        noticed_by: &[Records],
    },
    Mutation {
        name: "Lease: a release of client-go's counts as the end of its work",
        edits: &[edit(
            "src/backends/kubernetes/codec.rs",
            "left: default_lease,",
            "left: Duration::ZERO.min(default_lease),",
        )],
        noticed_by: &[Records],
    },
    Mutation {
        name: "Lease: one that is declared new counts as new whatever its record shows",
        edits: &[edit(
            "src/backends/kubernetes/codec.rs",
            "annotation(object, NEW).is_some() && !was_held(place, object)",
            "annotation(object, NEW).is_some() && (!was_held(place, object) || !object.is_null())",
        )],
        noticed_by: &[Records],
    },
    Mutation {
        name: "Lease: any 404 proves that there is no such object",
        edits: &[edit(
            "src/backends/kubernetes/api.rs",
            "Err(failure) if failure.is_absence_of(name) => Ok(None),",
            "Err(failure) if failure.is_absence_of(name) || failure.code() == 404 => Ok(None),",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "for life: an owner lives as long as there is a pod with its name",
        edits: &[
            edit(
                "src/backends/kubernetes/life/candidate.rs",
                "let Some(pod) = pod.filter(|pod| pod::uid(pod) == owner.uid) else {",
                "let Some(pod) = pod else {",
            ),
            edit(
                "src/backends/kubernetes/life/candidate.rs",
                "owners.iter().filter(|owner| owner.uid != ours) {",
                "owners.iter() {",
            ),
        ],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "for life: a release deletes the lock in whatever version",
        edits: &[edit(
            "src/backends/kubernetes/life/leadership.rs",
            "self.locks.delete(&self.name, &self.uid, Some(pod::version(&lock)), by).await;",
            "self.locks.delete(&self.name, &self.uid, None, by).await;",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "Service: a smaller token replaces a greater one",
        edits: &[edit(
            "src/backends/kubernetes/traffic/mod.rs",
            "Some(found) if found > token => Err(",
            "Some(found) if found.0 == u64::MAX => Err(",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "Service: a late write is applied whoever has written since",
        edits: &[edit(
            "src/backends/kubernetes/traffic/mod.rs",
            "fields[\"metadata\"][\"resourceVersion\"] = read.cloned().unwrap_or_default();",
            "drop(read.and(fields[\"metadata\"].as_object_mut()));",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "Service: a withdrawal leaves a write in doubt to arrive",
        edits: &[edit(
            "src/backends/kubernetes/traffic/service.rs",
            "return if is_absent { Edit::Nothing } else { Edit::Create(empty) };",
            "return Edit::Nothing;",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "Service: a withdrawal in doubt is done if the slice is empty",
        edits: &[edit(
            "src/backends/kubernetes/traffic/service.rs",
            "} else if !is_certain {",
            "} else if !is_certain && !slice::is_empty(slice) {",
        )],
        noticed_by: &[Objects],
    },
];
