//! Rules of the locks: on NATS, quorums of peers, object stores, Kubernetes and databases.

use super::{Mutation, edit};
use crate::instrument::Instrument::{
    Databases, Decisions, Differential, Elections, Locks, Objects, Quorum, Records, Scenarios,
    Several, Simulation, Stores, Voters,
};

pub(super) const OF_LOCKS: &[Mutation] = &[
    Mutation {
        name: "NATS: a release leaves an expiry marker",
        edits: &[edit(
            "src/backends/nats/codec.rs",
            "put(&mut headers, OPERATION, \"PURGE\");",
            "put(&mut headers, OPERATION, \"DEL\");",
        )],
        noticed_by: &[Locks],
    },
    Mutation {
        name: "NATS: a create over what expires leads before a further write",
        edits: &[edit(
            "src/protocol/cool_down.rs",
            "if expires && (is_entry || vacancy.may_be_marked(now, max_lease)) {",
            "if expires && is_entry && vacancy.may_be_marked(now, max_lease) {",
        )],
        noticed_by: &[Scenarios, Simulation],
    },
    Mutation {
        name: "NATS: a fenced message is published without its condition",
        edits: &[edit(
            "src/fence/nats.rs",
            "let plain = self.conditions(&self.subject_header, headers)?;",
            "let plain = headers.clone();",
        )],
        noticed_by: &[Locks],
    },
    Mutation {
        name: "a fenced object is replaced whatever its version",
        edits: &[
            edit(
                "src/fence/object.rs",
                "self.term.check_found(found.head.token)?;",
                "let _ = self.term.check_found(found.head.token);",
            ),
            edit(
                "src/fence/object.rs",
                "if found.head.token == self.term.token && found.head.handle == self.handle =>",
                "if found.head.token >= self.term.token || found.head.handle == self.handle =>",
            ),
        ],
        noticed_by: &[Stores],
    },
    Mutation {
        name: "NATS: an answer is told by a number that others can guess",
        edits: &[edit("src/backends/nats/reply_inbox.rs", "self.key.hash_one(number)", "0")],
        noticed_by: &[Locks],
    },
    Mutation {
        name: "NATS: a create waits by the TTL that was known before an eviction",
        edits: &[edit(
            "src/backends/nats/lock.rs",
            "let facts = match self.state().doubts_ttl() {",
            "let facts = match false && self.state().doubts_ttl() {",
        )],
        noticed_by: &[Locks],
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
        name: "PostgreSQL: a write runs the functions of strangers",
        edits: &[edit(
            "deploy/postgres.sql",
            "incumbent_tell() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp",
            "incumbent_tell() RETURNS trigger LANGUAGE plpgsql",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: a fence holds no row",
        edits: &[edit(
            "deploy/postgres-fence.sql",
            "WHERE name = election FOR SHARE",
            "WHERE name = election",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "a service takes back the token that it has raised",
        edits: &[edit(
            "src/fence/sql_store.rs",
            "true => check.commit().await.map_err(cannot)?,",
            "true => check.rollback().await.map_err(cannot)?,",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "a service handles the requests of former leaders",
        edits: &[edit(
            "src/fence/http.rs",
            "match token.0 < greatest {",
            "match false && token.0 < greatest {",
        )],
        noticed_by: &[Elections],
    },
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
        name: "PostgreSQL: an entry of before the server's start is replaced at once",
        edits: &[edit(
            "src/backends/sql/postgres/basis.rs",
            "if Some(held) == expected && Instant::now() < until => {",
            "if Some(held) == expected && Instant::now() > until + std::time::Duration::from_secs(9999) => {",
        )],
        noticed_by: &[Databases],
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
    Mutation {
        name: "several locks: the deadline is the latest one",
        edits: &[edit(
            "src/protocol/multi.rs",
            "deadlines?.into_iter().min()",
            "deadlines?.into_iter().max()",
        )],
        noticed_by: &[Several],
    },
    Mutation {
        name: "several locks: they are released in the order in which they were taken",
        edits: &[edit(
            "src/protocol/multi.rs",
            "for index in (0..self.members.len()).rev() {",
            "for index in 0..self.members.len() {",
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
        noticed_by: &[Quorum],
    },
    Mutation {
        name: "quorum: less than half of the voters are a majority",
        edits: &[edit(
            "src/backends/peer/quorum/voter/mod.rs",
            "self.settings.size / 2 + 1",
            "self.settings.size / 2",
        )],
        noticed_by: &[Quorum],
    },
    Mutation {
        name: "quorum: a write may rest on a vote of a start that was replaced",
        edits: &[edit(
            "src/backends/peer/quorum/seats.rs",
            ".all(|(name, stamp)| self.names.contains(name) && self.is_latest(name, *stamp));",
            ".all(|(name, stamp)| self.names.contains(name) && stamp.round > 0);",
        )],
        noticed_by: &[Quorum],
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
            "src/backends/seen.rs",
            "let content = set_back(content, longest);",
            "let _ = longest;",
        )],
        noticed_by: &[Simulation, Stores],
    },
    Mutation {
        name: "object store: a Go leader is waited for one term",
        edits: &[edit(
            "src/backends/vimeo_timing.rs",
            "        let by_wall_clock = stated.saturating_add(self.skew).saturating_add(self.longest);\n        self.longest.saturating_mul(2).max",
            "        let by_wall_clock = stated.saturating_add(self.skew);\n        self.longest.max",
        )],
        noticed_by: &[Simulation, Stores],
    },
];

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
            "let known = self.put(name, Some(expected), deadline, describe, &mark).await?;",
            "let now = self.fetch(&self.elections.get(name), name, deadline).await?;\n        let expected = now.map_or(expected, |now| now.revision);\n        let known = self.put(name, Some(expected), deadline, describe, &mark).await?;",
        )],
        noticed_by: &[Objects],
    },
    Mutation {
        name: "Lease: a winner that waited for a leader of client-go's leads without a new write",
        edits: &[edit(
            "src/protocol/cool_down.rs",
            "wait.doubt = other_program.filter(|_| !is_ours);",
            "wait.doubt = other_program.filter(|_| is_ours && !is_ours);",
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
        name: "Lease: a late response replaces what is known of the object",
        edits: &[edit(
            "src/backends/seen.rs",
            "self.order.is_none_or(|newest| found.order() > newest)",
            "self.order.is_none_or(|newest| found.order() != newest)",
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
            "self.locks.delete(&self.name, &self.uid, Some(pod::version(&lock)), deadline).await;",
            "self.locks.delete(&self.name, &self.uid, None, deadline).await;",
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
];

pub(super) const OF_DATABASES: &[Mutation] = &[
    Mutation {
        name: "PostgreSQL: a write is unconditional",
        edits: &[edit(
            "src/backends/sql/postgres/statements.rs",
            "advertised = {advertised}\n                WHERE name = {name} AND revision = {expected}{same}{history} RETURNING revision",
            "advertised = {advertised}\n                WHERE name = {name} AND {expected} > 0{same}{history} RETURNING revision",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: a row of before a failover counts",
        edits: &[edit(
            "src/backends/sql/postgres/lock.rs",
            "if found.same_history && row.revision >= seen {",
            "if row.revision >= seen {",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: the server's clock ends a lease below a second",
        edits: &[edit(
            "src/backends/sql/postgres/statements.rs",
            "greatest(e.lease_duration, interval '1 second')",
            "e.lease_duration",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "etcd: a write is unconditional",
        edits: &[edit(
            "src/backends/etcd/lock.rs",
            "let mut compare = vec![Compare::written_by(&key, replaced_revision)];\n        compare.extend(replaced.map(|version| Compare::has_value(&key, &version.value)));",
            "let mut compare = Vec::new();\n        let _ = replaced_revision;",
        )],
        noticed_by: &[Differential],
    },
    Mutation {
        name: "etcd: a key that is not there proves that nobody leads",
        edits: &[edit(
            "src/backends/etcd/lock.rs",
            "Ok(Reading::without_proof(found.map(|known| known.record())))",
            "Ok(found.map_or(Reading::Empty { proof: true }, |known| Reading::Found(known.record())))",
        )],
        noticed_by: &[Differential],
    },
    Mutation {
        name: "etcd: a token follows only what its writer has seen",
        edits: &[edit(
            "src/backends/etcd/lock.rs",
            "in_value.max(Revision(of_etcd.unsigned_abs()))",
            "in_value.max(Revision(of_etcd.unsigned_abs().min(1)))",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "etcd: an older candidate of etcd's own elections refuses nobody",
        edits: &[edit(
            "src/backends/etcd/foreign.rs",
            "rest.filter(|_| kv.lease != 0)",
            "rest.filter(|_| kv.lease == 0)",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "etcd: a candidate that came after the read counts for nothing",
        edits: &[edit(
            "src/backends/etcd/messages.rs",
            "let create_revision = Some(revision.saturating_add(1));",
            "let create_revision = Some(revision.max(i64::MAX));",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "etcd: an entry that was seen counts in a restored cluster",
        edits: &[edit(
            "src/backends/etcd/cluster.rs",
            "is_later || (1..self.raft_term)",
            "is_later && (1..self.raft_term)",
        )],
        noticed_by: &[Decisions],
    },
    Mutation {
        name: "SQLite: a write is unconditional",
        edits: &[edit(
            "src/backends/sql/sqlite/statements.rs",
            "WHERE name = ?1 AND revision = ?9 RETURNING revision",
            "WHERE name = ?1 AND ?9 > 0 RETURNING revision",
        )],
        noticed_by: &[Differential],
    },
    Mutation {
        name: "PostgreSQL: a renewal that is visible and not replicated extends the term",
        edits: &[edit(
            "src/backends/sql/postgres/lock.rs",
            "fn reads_are_durable(&self) -> bool {\n        !self.synchronous",
            "fn reads_are_durable(&self) -> bool {\n        !self.synchronous || self.synchronous",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: two primaries give out one revision",
        edits: &[
            edit("deploy/postgres.sql", "OLD.revision + 1000000 *", "OLD.revision + 0 *"),
            edit("deploy/postgres.sql", "1000000000 * (timeline - 1)", "0 * (timeline - 1)"),
        ],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: a create relies on what was read before the server's start",
        edits: &[edit(
            "src/backends/sql/postgres/statements.rs",
            "history = on_history.map_or(String::new(), |on| format!(\" AND {on}\")),",
            "history = on_history.map_or(String::new(), |_| String::new()),",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "PostgreSQL: a restored server gives out the revisions of before again",
        edits: &[edit(
            "deploy/postgres.sql",
            " AND OLD.started = pg_postmaster_start_time() THEN",
            " THEN",
        )],
        noticed_by: &[Databases],
    },
    Mutation {
        name: "SQLite: a backup that is put back counts",
        edits: &[edit(
            "src/backends/sql/sqlite/lock.rs",
            "if row.revision >= seen {",
            "if row.revision >= seen || row.revision > 0 {",
        )],
        noticed_by: &[Databases],
    },
];
