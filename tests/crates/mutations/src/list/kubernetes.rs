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
        name: "Lease: a holder that was seen to renew is waited for from when it was first seen",
        edits: &[edit(
            "src/protocol/evidence.rs",
            "Some(seen) if seen.revision == revision && seen.is_of(&entry) => seen,",
            "Some(seen) if seen.revision == revision && seen.is_of(&entry) => seen,\n            Some(seen) if !expires => SeenEntry { revision, entry, ..seen },",
        )],
        noticed_by: &[Scenarios, Simulation],
    },
    Mutation {
        name: "Lease: each read of a record counts as a change of it",
        edits: &[edit(
            "src/protocol/evidence.rs",
            "Some(seen) if seen.revision == revision && seen.is_of(&entry) => seen,",
            "Some(seen) if seen.is_of(&entry) && expires => seen,",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "Lease: a record that has expired is reported as a new leader each time it is read",
        edits: &[edit(
            "src/protocol/context.rs",
            "|| !self.has_outlived(at) {",
            "|| at >= Instant::ORIGIN {",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "a read that succeeds shows that the write which failed before, and comes next, would too",
        edits: &[edit(
            "src/protocol/lock_health.rs",
            "acquires || matches!(failure.kind",
            "(acquires && failure.message.is_empty()) || matches!(failure.kind",
        )],
        noticed_by: &[Scenarios],
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
        name: "Lease: a late own create is adopted as if no holder had come before it",
        edits: &[edit(
            "src/protocol/evidence.rs",
            "if !created || mark.write.number > self.last_over_nothing {",
            "if !created || mark.write.number > 0 {",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "Lease: a leader leads on by a create of its own that lands late",
        edits: &[edit(
            "src/protocol/holding.rs",
            "if mark.token.is_none() {",
            "if mark.token.is_none() && self.began && !self.began {",
        )],
        noticed_by: &[Scenarios],
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
        name: "Lease: a renewal does not name its object",
        edits: &[edit(
            "src/backends/kubernetes/store.rs",
            "codec::write(self.place, &mut object, &record, mark.clone());",
            "if let Some(metadata) = object.get_mut(\"metadata\").and_then(Value::as_object_mut) {\n                metadata.remove(\"uid\");\n                metadata.remove(\"resourceVersion\");\n            }\n            codec::write(self.place, &mut object, &record, mark.clone());",
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
        name: "Lease: the writer of a changed write is waited for as the change states",
        edits: &[edit(
            "src/backends/kubernetes/codec.rs",
            "ttl: found.ttl.max(lease)",
            "ttl: found.ttl.max(lease * 0)",
        )],
        noticed_by: &[Records],
    },
    Mutation {
        name: "an entry is written over before its holder's lease has ended",
        edits: &[edit(
            "src/protocol/standby.rs",
            "cx.coverage == Coverage::Full && cx.has_outlived(now)",
            "cx.coverage == Coverage::Full && !cx.capabilities.expires_entries",
        )],
        noticed_by: &[Scenarios, Simulation],
    },
    Mutation {
        name: "Lease: a winner that waited for a leader of client-go's leads without a new write",
        edits: &[edit(
            "src/protocol/cool_down.rs",
            "confirm: !c.lock_expires && !is_ours,",
            "confirm: is_ours && !is_ours,",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "Lease: a write that its watch did not report shows a leader nothing",
        edits: &[edit(
            "src/backends/kubernetes/store.rs",
            "election.record_response(known.revision);\n                    let Some(field)",
            "let Some(field)",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "a standby retries once or twice a second, whatever its back-off",
        edits: &[edit(
            "src/protocol/standby.rs",
            "delay = delay.max(delay_of(&mut *cx.settings.backoff, attempt, random));",
            "let _ = (attempt, random);",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "all standbys read an outlived entry at one instant",
        edits: &[edit(
            "src/protocol/standby.rs",
            "            Plan::Read if self.sees_outlived(cx, now) => self.overwrite(cx, now, true),\n",
            "",
        )],
        noticed_by: &[Scenarios],
    },
    Mutation {
        name: "for life: a bookmark does not show that a watch lives",
        edits: &[edit(
            "src/backends/kubernetes/life/watches.rs",
            "EventKind::Nothing => watch.silent_at = silent_at(self.poll),",
            "EventKind::Nothing => {}",
        )],
        noticed_by: &[Records],
    },
    Mutation {
        name: "Lease: a release keeps the holder",
        edits: &[edit(
            "src/backends/kubernetes/store.rs",
            "holder_identity: if keep { holder } else { String::new() },",
            "holder_identity: holder,",
        )],
        noticed_by: &[Objects],
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
        name: "Lease: an eviction keeps the holder, so a leader of client-go's renews it",
        edits: &[edit(
            "src/backends/kubernetes/store.rs",
            "let holder = if evicts { evicted } else { old.holder_identity };",
            "let holder = if evicts && evicted.is_empty() { evicted } else { old.holder_identity };",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "Lease: a release keeps the duration",
        edits: &[edit(
            "src/backends/kubernetes/store.rs",
            "if keep { whole_seconds(left) } else { RELEASED_SECONDS },",
            "if keep { whole_seconds(left) } else { old.lease_duration_seconds },",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "Lease: the first term of all is a transition",
        edits: &[edit(
            "src/backends/kubernetes/store.rs",
            "let begins_anew = begins && old.is_some() && !again;",
            "let begins_anew = begins && !again;",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "Lease: a renewal is a transition",
        edits: &[edit(
            "src/backends/kubernetes/store.rs",
            "let begins_anew = begins && old.is_some() && !again;",
            "let begins_anew = old.is_some() && !again;",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "Lease: one whose holder the API server chooses is stood for",
        edits: &[edit(
            "src/backends/kubernetes/store.rs",
            "if found.record.strategy.is_some() {",
            "if found.record.strategy.is_some() && name.is_empty() {",
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
        name: "Lease: a release of client-go's is waited for by our lease, not by its holder's",
        edits: &[edit(
            "src/backends/kubernetes/known.rs",
            "Some((_, lease)) => *left = lease.max(*left),",
            "Some((_, lease)) => *left = lease.min(*left),",
        )],
        noticed_by: &[Records],
    },
    Mutation {
        name: "Lease: a holder is waited for as long as it states, without a limit",
        edits: &[edit(
            "src/backends/kubernetes/record.rs",
            "(seconds > 0).then(|| Duration::from_secs(seconds).min(MAX_DURATION))",
            "(seconds > 0).then(|| Duration::from_secs(seconds).max(MAX_DURATION / 9999))",
        )],
        noticed_by: &[Records],
    },
    Mutation {
        name: "Lease: one that is declared new counts as new to a candidate that saw its holder",
        edits: &[edit(
            "src/backends/kubernetes/known.rs",
            "state.has_past |= !is_unused;",
            "state.has_past |= is_unused && !is_unused;",
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
        name: "Lease: a create found later had no holder before it, as was proven before it",
        edits: &[edit(
            "src/protocol/evidence.rs",
            "if !(in_doubt && capabilities.empty_is_proof) {",
            "if !in_doubt {",
        )],
        noticed_by: &[Objects],
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
        name: "Lease: a mark counts for any record beside it",
        edits: &[edit(
            "src/backends/kubernetes/codec.rs",
            "Some(Annotation { mark, of, .. }) if *of == record => decode(mark, &record, default_lease),",
            "Some(Annotation { mark, of, .. }) if *of == record || of.is_held() => decode(mark, &record, default_lease),",
        )],
        noticed_by: &[Records],
    },
    Mutation {
        name: "Lease: a token that is refused is not read again",
        edits: &[edit(
            "src/backends/kubernetes/api_client.rs",
            "if *known == now || known.server != now.server {",
            "if *known == now || known.server != now.server || current.number == 0 {",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "for life: a pod takes the lock of one with its name for its own",
        edits: &[edit(
            "src/backends/kubernetes/life/candidate.rs",
            "if matches!(&*owners, [owner] if owner.uid == ours) {",
            "if matches!(&*owners, [owner] if owner.name == self.pod) {",
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
        name: "for life: a stuck lock is deleted whatever has become of it",
        edits: &[edit(
            "src/backends/kubernetes/life/candidate.rs",
            "match self.locks.delete(&self.name, uid, Some(version), by()).await {",
            "match self.locks.delete(&self.name, uid, Some(version).filter(|_| false), by()).await {",
        )],
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
];
