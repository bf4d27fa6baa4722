//! Opening, making and examining buckets.

use std::time::Duration;

use incumbent::lock::{Content, Lock, LockAdmin, LockErrorKind, Tombstone};
use incumbent::nats::{Bucket, BucketConfig, BucketErrorKind, Finding, Severity, Storage};
use incumbent::{Advertisement, new_election};
use incumbent_test_support::{Cluster, Server, Version, on_versions};
use serde_json::json;

use super::*;
use crate::conformance::soon;

fn choria() -> serde_json::Value {
    json!({
        "name": "KV_CHORIA_LEADER_ELECTION", "subjects": ["$KV.CHORIA_LEADER_ELECTION.>"],
        "retention": "limits", "max_consumers": -1, "max_msgs": -1, "max_bytes": -1,
        "max_age": 60_000_000_000_u64, "max_msgs_per_subject": 1, "max_msg_size": 1024,
        "discard": "new", "storage": "file", "num_replicas": 1, "duplicate_window": 60_000_000_000_u64,
        "deny_delete": true, "allow_rollup_hdrs": true, "allow_direct": true,
    })
}

on_versions!(
    #[tokio::test]
    a_bucket_is_created_with_the_features_of_the_server
);
async fn a_bucket_is_created_with_the_features_of_the_server(version: Version) {
    let server = Server::builder().version(version).start().await;
    let client = server.connect().await;
    let config = BucketConfig::new("B").ttl(TTL).description("who leads");
    let bucket = answered(|| Bucket::create(&client, config.clone())).await.unwrap();
    assert_eq!((bucket.name(), bucket.ttl()), ("B", TTL));

    let info = api(&client, "STREAM.INFO.KV_B", json!({})).await;
    let made = &info["config"];
    let nanos = TTL.as_nanos() as u64;
    for (setting, value) in [
        ("max_age", json!(nanos)),
        ("max_msgs_per_subject", json!(1)),
        ("storage", json!("file")),
        ("discard", json!("new")),
        ("num_replicas", json!(1)),
        ("deny_delete", json!(true)),
        ("allow_rollup_hdrs", json!(true)),
        ("allow_direct", json!(true)),
        ("description", json!("who leads")),
        ("republish", json!({ "src": "$KV.B.>", "dest": "incumbent.B.>" })),
    ] {
        assert_eq!(made[setting], value, "{version}: {setting}");
    }
    let findings = answered(|| bucket.health()).await.unwrap();
    if version == Version::V2_10 {
        assert_eq!(codes(&findings), ["no-markers", "no-message-ttl"]);
    } else {
        assert_eq!(made["allow_msg_ttl"], json!(true), "{version}");
        assert_eq!(made["subject_delete_marker_ttl"], json!(nanos), "{version}");
        assert_eq!(findings, [], "{version}");
    }
}

on_versions!(
    #[tokio::test]
    an_entry_is_read_as_it_was_written_and_released
);
async fn an_entry_is_read_as_it_was_written_and_released(version: Version) {
    let server = Server::builder().version(version).start().await;
    let lock = bucket_on(&server).await.lock();
    let create = entry(7, 1, None);
    let created = lock.write("a.b/c", create.clone()).await.unwrap();
    let (revision, entry) = held(&lock, "a.b/c").await;
    assert_eq!((revision, &*entry.identity), (created, "host7"));
    assert_eq!(entry.mark, Some(create.mark));
    let slack = if version == Version::V2_10 { 1_000 } else { 250 };
    assert_eq!(entry.ttl, TTL + Duration::from_millis(slack), "{version}");

    lock.release("a.b/c", release(7, created)).await.unwrap();
    let left = Duration::from_millis(1_500);
    let released = Tombstone::Released {
        by: Nonce(7),
        left,
        cause: Some("resigned".into()),
        to: None,
        pause: None,
    };
    assert_eq!(found(&lock, "a.b/c").await.content, Content::Vacant(released));
}

on_versions!(#[tokio::test] tokens_grow_when_a_bucket_is_recreated: v2_10, v2_15);
async fn tokens_grow_when_a_bucket_is_recreated(version: Version) {
    let server = Server::builder().version(version).start().await;
    let client = server.connect().await;
    let mut last = Revision(0);
    for _ in 0..3 {
        // The server may still be removing the files of the last one.
        let lock = eventually("a new bucket", async || {
            let config = BucketConfig::new("B").ttl(TTL);
            Some(Bucket::create(client.clone(), config).await.ok()?.lock())
        })
        .await;
        for key in ["a", "b", "c"] {
            let token = lock.write(key, entry(1, 1, None)).await.unwrap();
            assert!(token > last, "{version}: {token} after {last}");
            last = token;
        }
        api(&client, "STREAM.DELETE.KV_B", json!({})).await;
    }
}

/// Incident 29: a bucket was "created" again and again with other settings.
/// A fleet starts all at once: a cluster refuses a name that it has given away before it knows the
/// bucket everywhere.
#[tokio::test]
async fn concurrent_creators_of_a_bucket_all_open_it() {
    let cluster = Cluster::start().await;
    let config = || BucketConfig::new("B").ttl(TTL);
    let mut makers = tokio::task::JoinSet::new();
    for number in 0..24 {
        let client = cluster.server(number % 3).connect().await;
        makers.spawn(async move { answered(|| Bucket::create_or_open(&client, config())).await });
    }
    for bucket in makers.join_all().await {
        assert_eq!(bucket.unwrap().ttl(), TTL);
    }
}

#[tokio::test]
async fn an_existing_bucket_is_never_altered() {
    let server = Server::start().await;
    let client = server.connect().await;
    let config = BucketConfig::new("B").ttl(TTL);
    answered(|| Bucket::create(&client, config.clone())).await.unwrap();
    let before = api(&client, "STREAM.INFO.KV_B", json!({})).await["config"].clone();

    let same = answered(|| Bucket::create(&client, config.clone())).await;
    same.expect("the same settings");
    let other = config.ttl(TTL * 2).storage(Storage::Memory);
    let refused = answered(|| Bucket::create(&client, other.clone())).await.unwrap_err();
    assert_eq!(refused.kind(), BucketErrorKind::Exists);
    let says = "bucket B exists with a TTL of 60s instead of 120s, file storage instead of memory";
    assert!(refused.to_string().starts_with(says), "{refused}");

    let existing = answered(|| Bucket::create_or_open(&client, other.clone())).await.unwrap();
    assert_eq!(existing.ttl(), TTL);
    assert_eq!(opened(&client, other).await.ttl(), TTL);
    let after = api(&client, "STREAM.INFO.KV_B", json!({})).await["config"].clone();
    assert_eq!(before, after);
}

on_versions!(#[tokio::test] a_bucket_created_by_choria_works_unchanged: v2_10, v2_15);
async fn a_bucket_created_by_choria_works_unchanged(version: Version) {
    let server = Server::builder().version(version).start().await;
    let client = server.connect().await;
    api(&client, "STREAM.CREATE.KV_CHORIA_LEADER_ELECTION", choria()).await;
    let bucket = opened(&client, BucketConfig::default()).await;
    assert_eq!(bucket.ttl(), Duration::from_secs(60));
    let lock = bucket.lock();

    let longest = lock.capabilities().max_identity_len;
    assert!(longest >= 512, "{longest}");
    let mut create = entry(u64::MAX, u64::MAX, None);
    create.identity = "x".repeat(longest).into();
    create.mark.token = Some(incumbent::lock::Token(u64::MAX));
    create.mark.since_unix_ms = u64::MAX;
    lock.write("a", create.clone()).await.expect("the longest entry fits");
    create.identity = "x".repeat(longest + 1).into();
    let refused = lock.write("b", create.clone()).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Misconfigured, "{refused}");

    let said = Advertisement::new("10.0.0.3:50051");
    create.advertisement = Some(said.clone().into());
    create.identity = "x".repeat(longest - 100).into();
    lock.write("b", create.clone()).await.expect("both fit");
    assert_eq!(held(&lock, "b").await.1.advertisement.as_deref(), Some(&said));
    create.advertisement = Some(said.with("more", "x".repeat(900)).into());
    lock.write("d", create).await.expect("the advertisement is left out");
    assert_eq!(held(&lock, "d").await.1.advertisement, None);

    let subject = "$KV.CHORIA_LEADER_ELECTION.c";
    client.request(subject, "choria1.example.net".into()).await.unwrap();
    let (_, theirs) = held(&lock, "c").await;
    assert_eq!((&*theirs.identity, theirs.mark), ("choria1.example.net", None));

    let findings = answered(|| bucket.health()).await.unwrap();
    assert!(findings[0].to_string().starts_with("values of another kind at c: "), "{findings:?}");
    let expected = ["foreign-values", "no-markers", "no-message-ttl", "no-republish"];
    assert_eq!(codes(&findings), expected);
}

#[tokio::test]
async fn a_bucket_that_cannot_carry_elections_is_refused() {
    let server = Server::start().await;
    let client = server.connect().await;
    let missing = answered(|| Bucket::open(&client, "NONE")).await.unwrap_err();
    assert_eq!(missing.kind(), BucketErrorKind::Missing);
    for (name, setting, says) in [
        ("ETERNAL", json!({ "max_age": 0 }), "has no TTL"),
        (
            "BRIEF",
            json!({ "max_age": 500_000_000 }),
            "its TTL of 500ms is below the minimum for elections, 1s",
        ),
        (
            "LONG",
            json!({ "max_age": 7_200_000_000_000_u64 }),
            "its TTL of 7200s is above the maximum for elections, 3600s",
        ),
        ("TINY", json!({ "max_msg_size": 200 }), "messages of at most 200 bytes"),
        // What removes an entry of a living leader leaves a key as if nobody led.
        ("LIMITED", json!({ "max_bytes": 1_000_000 }), "discard new ones instead"),
        ("CONSUMED", json!({ "retention": "workqueue" }), "retention `limits`"),
        // Copies carry no expected revision.
        ("COPIES", json!({ "sources": [{ "name": "KV_BRIEF" }] }), "remove the sources"),
    ] {
        let mut stream = json!({
            "name": format!("KV_{name}"), "subjects": [format!("$KV.{name}.>")],
            "max_age": 60_000_000_000_u64, "max_msgs_per_subject": 1, "num_replicas": 1,
            "storage": "file",
        });
        for (key, value) in setting.as_object().unwrap() {
            stream[key] = value.clone();
        }
        api(&client, &format!("STREAM.CREATE.KV_{name}"), stream).await;
        let refused = answered(|| Bucket::open(&client, name)).await.unwrap_err();
        assert_eq!(refused.kind(), BucketErrorKind::Unusable);
        assert!(refused.to_string().contains(says), "{refused}");
        let admin = Bucket::for_admin(client.clone(), BucketConfig::new(name)).unwrap();
        let findings = answered(|| admin.health()).await.unwrap();
        assert_eq!(findings[0].severity(), Severity::Critical, "{name}: {findings:?}");
    }
    for name in ["", "a.b", "a b", "é"] {
        let refused = answered(|| Bucket::open(&client, name)).await.unwrap_err();
        assert_eq!(refused.kind(), BucketErrorKind::Unusable);
    }
}

#[tokio::test]
async fn a_bucket_whose_entries_alone_have_ttls_is_fine() {
    let server = Server::start().await;
    let client = server.connect().await;
    let mut stream = json!({
        "name": "KV_B", "subjects": ["$KV.B.>"], "max_msgs_per_subject": 1, "num_replicas": 1,
        "storage": "file", "allow_msg_ttl": true, "allow_rollup_hdrs": true,
    });
    api(&client, "STREAM.CREATE.KV_B", stream.clone()).await;
    // Who knows no lease but its own would wait for that one after a deletion.
    let refused = answered(|| Bucket::open(&client, "B")).await.unwrap_err();
    assert_eq!(refused.kind(), BucketErrorKind::Unusable);
    let admin = Bucket::for_admin(client.clone(), BucketConfig::new("B")).unwrap();
    let findings = answered(|| admin.health()).await.unwrap();
    assert_eq!((findings[0].code(), findings[0].severity()), ("no-ttl", Severity::Critical));

    stream["subject_delete_marker_ttl"] = json!(TTL.as_nanos() as u64);
    api(&client, "STREAM.UPDATE.KV_B", stream).await;
    let lock = opened_on(&server).await.lock();
    assert_eq!(lock.capabilities().max_lease, TTL);
    let created = lock.write("a", entry(1, 1, None)).await.unwrap();
    assert_eq!(held(&lock, "a").await.1.ttl, TTL + Duration::from_millis(250));
    lock.release("a", release(1, created)).await.unwrap();
}

#[tokio::test]
async fn health_reports_dangerous_settings_and_their_fixes() {
    let server = Server::start().await;
    let client = server.connect().await;
    let stream = json!({
        "name": "KV_B", "subjects": ["$KV.B.>"], "max_age": TTL.as_nanos() as u64,
        "max_msgs_per_subject": 5, "max_msg_size": 700, "num_replicas": 1, "storage": "memory",
        "allow_msg_ttl": true, "subject_delete_marker_ttl": 2_000_000_000_u64,
        "allow_rollup_hdrs": true, "deny_delete": true,
    });
    api(&client, "STREAM.CREATE.KV_B", stream).await;
    let bucket = opened_on(&server).await;
    bucket.lock().write("ours", entry(1, 1, None)).await.unwrap();
    client.request("$KV.B.junk", "{}".into()).await.unwrap();
    let findings = answered(|| bucket.health()).await.unwrap();
    for (code, message) in [
        ("history", "5 values are stored per key"),
        ("short-markers", "markers stay 2s, less than the maximum lease of 60s"),
        ("small-messages", "messages of at most 700 bytes: long identities do not fit"),
        ("in-memory", "entries are kept in memory: a restart of the server ends every term"),
        ("foreign-values", "values of another kind at junk: "),
        ("no-republish", "no republish: standbys poll"),
    ] {
        let found = findings.iter().find(|finding| finding.code() == code);
        let found = found.unwrap_or_else(|| panic!("{code} not in {findings:?}"));
        assert!(found.message().starts_with(message) && found.fix().is_some(), "{found}");
    }
    let severities: Vec<Severity> = findings.iter().map(Finding::severity).collect();
    assert!(severities.is_sorted_by(|a, b| a >= b), "{findings:?}");
}

#[tokio::test]
async fn health_on_a_cluster() {
    let cluster = Cluster::start().await;
    for (name, replicas, code) in [("B1", 1, "one-replica"), ("B2", 2, "two-replicas")] {
        let config = BucketConfig::new(name).ttl(Duration::from_secs(5)).replicas(replicas);
        let client = cluster.connect().await;
        let bucket = answered(|| Bucket::create(&client, config.clone())).await.unwrap();
        let findings = answered(|| bucket.health()).await.unwrap();
        assert_eq!(codes(&findings), ["short-ttl-on-cluster", code]);
    }
}

fn codes(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(Finding::code).collect()
}

/// Changes the TTL of the bucket, as `nats stream edit` does.
async fn change_ttl(client: &async_nats::Client, ttl: Duration) {
    let mut config = api(client, "STREAM.INFO.KV_B", json!({})).await["config"].clone();
    config["max_age"] = json!(ttl.as_nanos() as u64);
    config["subject_delete_marker_ttl"] = json!(ttl.as_nanos() as u64);
    let changed = api(client, "STREAM.UPDATE.KV_B", config).await;
    assert_eq!(changed["error"], json!(null), "{changed}");
}

on_versions!(#[tokio::test] a_create_over_an_eviction_asks_for_the_ttl: v2_11, v2_15);
async fn a_create_over_an_eviction_asks_for_the_ttl(version: Version) {
    let server = Server::builder().version(version).start().await;
    let (standby, client) = (bucket_on(&server).await.lock(), server.connect().await);
    let leaders = bucket_on(&server).await.lock();
    let known = leaders.write("a", entry(1, 1, None)).await.unwrap();
    assert_eq!(found(&standby, "a").await.revision, known);
    change_ttl(&client, TTL * 2).await;
    leaders.evict("a", known, TIMEOUT).await.unwrap();
    let evicted = found(&standby, "a").await.revision;

    let refused = standby.write("a", entry(2, 1, Some(evicted))).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Unavailable, "{refused}");
    assert!(refused.to_string().ends_with("its TTL is 120s now, and was 60s"), "{refused}");
    assert_eq!(standby.capabilities().max_lease, TTL * 2);
    standby.write("a", entry(2, 2, Some(evicted))).await.expect("it waits by the new TTL");

    // Back to what the elections began with.
    change_ttl(&client, TTL).await;
    let held = found(&standby, "a").await.revision;
    leaders.evict("a", held, TIMEOUT).await.unwrap();
    let evicted = found(&standby, "a").await.revision;
    standby.write("a", entry(2, 3, Some(evicted))).await.unwrap_err();
    assert_eq!(standby.capabilities().max_lease, TTL);
}

/// An operator's lock outlives changes of the TTL in both directions.
#[tokio::test]
async fn an_eviction_is_timed_by_the_current_ttl() {
    let server = Server::start().await;
    let (client, known) = (server.connect().await, bucket_on(&server).await.lock());
    let admin = Bucket::for_admin(client.clone(), BucketConfig::new("B")).unwrap().lock();
    for ttl in [TTL * 2, TTL, TTL * 2] {
        change_ttl(&client, ttl).await;
        client.request("$KV.B.a", "unmarked".into()).await.unwrap();
        let record = admin.record("a", TIMEOUT).await.unwrap().expect("a record");
        admin.evict("a", record.revision, TIMEOUT).await.unwrap();
        let content = found(&known, "a").await.content;
        let Content::Vacant(Tombstone::Released { left, .. }) = content else {
            panic!("{content:?}")
        };
        assert_eq!(left, ttl);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_waits_for_a_leader_of_a_longer_ttl() {
    const BRIEF: Duration = Duration::from_secs(12);
    const RAISED: Duration = Duration::from_secs(24);
    let server = Server::start().await;
    let client = server.connect().await;
    let leaders = bucket_like(&server, BucketConfig::new("B").ttl(BRIEF)).await.lock();
    let standby = new_election("a", opened_on(&server).await.lock());
    let mut write = entry(1, 1, None);
    (write.mark.lease, write.ttl) = (BRIEF, BRIEF);
    leaders.write("a", write).await.unwrap();
    let standby = standby.start().unwrap();
    eventually("it sees the leader", async || standby.leader()).await;

    change_ttl(&client, RAISED).await;
    let revision = found(&leaders, "a").await.revision;
    let mut write = renewal(1, 2, revision);
    (write.mark.lease, write.ttl) = (RAISED, RAISED);
    let sent = std::time::Instant::now();
    let revision = leaders.write("a", write).await.unwrap();
    leaders.evict("a", revision, TIMEOUT).await.unwrap();
    let leadership = soon("it leads", standby.won()).await.unwrap();
    assert!(sent.elapsed() >= RAISED, "{:?} after the write", sent.elapsed());
    assert!(leadership.is_valid());
}
