//! The hints of a lock.

use std::cell::Cell;
use std::time::Duration;

use futures_util::StreamExt;
use incumbent::lock::{
    CandidateRequest, Content, Coverage, Lock, LockErrorKind, Messages, RollCall, StepDownNotice,
    Successor, Token, Tombstone,
};
use incumbent_test_support::{Cluster, Server, Version, eventually, on_versions, repeated};
use serde_json::json;

use super::*;

on_versions!(
    #[tokio::test]
    every_stored_write_is_hinted_with_the_one_it_replaced
);
async fn every_stored_write_is_hinted_with_the_one_it_replaced(version: Version) {
    let server = Server::builder().version(version).start().await;
    let lock = bucket_on(&server).await.lock();
    let other = bucket_on(&server).await.lock();
    let mut hints = Hints::of(&lock, "a");
    hints.coverage(Coverage::Full).await;
    hints.look().await;

    let create = entry(1, 1, None);
    let created = other.write("a", create.clone()).await.unwrap();
    let (record, previous) = hints.stored().await;
    assert_eq!((record.revision, previous), (created, Some(None)), "{version}");
    let Content::Held(entry_told) = record.content else { panic!("{record:?}") };
    assert_eq!(entry_told.mark, Some(create.mark));
    assert_eq!(&*entry_told.identity, "host1");

    let renewed = other.write("a", renewal(1, 2, created)).await.unwrap();
    let (record, previous) = hints.stored().await;
    assert_eq!((record.revision, previous), (renewed, Some(Some(created))), "{version}");

    other.release("a", release(1, renewed)).await.unwrap();
    let (record, previous) = hints.stored().await;
    let left = Duration::from_millis(1_500);
    let released = Content::Vacant(Tombstone::Released {
        by: Nonce(1),
        left,
        cause: Some("resigned".into()),
        to: None,
        pause: None,
    });
    assert_eq!((record.content, previous), (released, Some(Some(renewed))), "{version}");
}

#[tokio::test]
async fn one_subscription_serves_all_elections_of_a_bucket() {
    let server = Server::start().await;
    let lock = bucket_on(&server).await.lock();
    let names: Vec<String> = (0..50).map(|n| format!("election{n}")).collect();
    let mut all = Vec::new();
    for name in &names {
        let mut hints = Hints::of(&lock, name);
        hints.coverage(Coverage::Full).await;
        all.push(hints);
    }
    only_one_is_left(&server, "incumbent.B.>").await;
    for (name, hints) in names.iter().zip(&mut all) {
        let created = lock.write(name, entry(1, 1, None)).await.unwrap();
        assert_eq!(hints.stored().await.0.revision, created);
    }
    // A second listener to one of them.
    let mut second = Hints::of(&lock, &names[7]);
    second.coverage(Coverage::Full).await;
    drop(all);
    lock.write("election8", entry(2, 1, None)).await.unwrap_err();
    let tombstone = found(&lock, &names[7]).await.revision;
    lock.release(&names[7], release(1, tombstone)).await.unwrap();
    second.stored().await;
    drop(second);
    none_is_left(&server).await;
}

/// The server learns of an ended subscription a moment after its end.
async fn only_one_is_left(server: &Server, subject: &str) {
    incumbent_test_support::eventually("a single subscription", async || {
        (subscriptions(server).await == [subject]).then_some(())
    })
    .await;
}

async fn none_is_left(server: &Server) {
    incumbent_test_support::eventually("the end of the subscription", async || {
        subscriptions(server).await.is_empty().then_some(())
    })
    .await;
}

async fn subscriptions(server: &Server) -> Vec<String> {
    let connections = server.connz().await;
    let lists = connections["connections"].as_array().unwrap().iter();
    let all = lists.filter_map(|connection| connection["subscriptions_list"].as_array()).flatten();
    all.filter_map(|subject| subject.as_str())
        .filter(|subject| subject.starts_with("incumbent.") || subject.starts_with("$KV."))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn a_single_election_subscribes_to_its_own_key_only() {
    let server = Server::start().await;
    let lock = bucket_on(&server).await.lock();
    let mut hints = Hints::of(&lock, "a");
    hints.coverage(Coverage::Full).await;
    only_one_is_left(&server, "incumbent.B.a").await;
    let mut second = Hints::of(&lock, "a");
    second.coverage(Coverage::Full).await;
    drop((hints, second));
    none_is_left(&server).await;
    // It can begin again.
    let mut hints = Hints::of(&lock, "b");
    hints.coverage(Coverage::Full).await;
}

#[tokio::test]
async fn a_step_down_notice_reaches_candidates() {
    for republishes in [true, false] {
        let server = Server::start().await;
        let client = server.connect().await;
        if !republishes {
            let stream = json!({
                "name": "KV_B", "subjects": ["$KV.B.>"], "max_age": TTL.as_nanos() as u64,
                "max_msgs_per_subject": 1, "num_replicas": 1, "storage": "file",
            });
            api(&client, "STREAM.CREATE.KV_B", stream).await;
        }
        let lock = bucket_on(&server).await.lock();
        let mut hints = Hints::of(&lock, "a");
        hints.look().await;
        let said = StepDownNotice {
            by: Nonce(3),
            token: Token(17),
            revision: Revision(20),
            left: Duration::from_millis(40),
        };
        let former = bucket_on(&server).await.lock();
        let is_late = |error: &LockError| is_passing(error.kind());
        repeated(|| former.notify_step_down("a", said), is_late).await.unwrap();
        let told = hints.until("notice", |hint| match hint {
            Hint::SteppedDown(notice) => Some(*notice),
            _ => None,
        });
        assert_eq!(told.await, said);
    }
}

/// As Choria creates it: only the writes themselves cause hints.
#[tokio::test]
async fn without_republish_deletes_and_forced_writes_cause_a_read() {
    let server = Server::start().await;
    let client = server.connect().await;
    let stream = json!({
        "name": "KV_B", "subjects": ["$KV.B.>"], "max_age": TTL.as_nanos() as u64,
        "max_msgs_per_subject": 1, "num_replicas": 1, "storage": "file", "allow_rollup_hdrs": true,
    });
    api(&client, "STREAM.CREATE.KV_B", stream).await;
    let lock = bucket_on(&server).await.lock();
    let mut hints = Hints::of(&lock, "a");
    hints.coverage(Coverage::Partial).await;
    hints.look().await;
    let created = lock.write("a", entry(1, 1, None)).await.unwrap();
    lock.write("a", renewal(1, 2, created)).await.unwrap();
    client.publish("$KV.B.a", "junk".into()).await.unwrap();
    hints.look().await;
    assert_eq!(&*held(&lock, "a").await.1.identity, "junk");
    let mut delete = async_nats::HeaderMap::new();
    delete.insert("KV-Operation", "DEL");
    client.publish_with_headers("$KV.B.a", delete, "".into()).await.unwrap();
    hints.look().await;
    assert_eq!(found(&lock, "a").await.content, Content::Vacant(Tombstone::Deleted));
}

/// Incident 23: the watch was dead after a server restart, unnoticed.
#[tokio::test]
async fn hints_return_after_a_server_restart() {
    let server = Server::start().await;
    let lock = bucket_on(&server).await.lock();
    let mut hints = Hints::of(&lock, "a");
    hints.coverage(Coverage::Full).await;
    hints.look().await;
    server.kill();
    hints.coverage(Coverage::None).await;
    server.start_again().await;
    hints.coverage(Coverage::Full).await;
    hints.look().await;
    let created = lock.write("a", entry(1, 1, None)).await.unwrap();
    assert_eq!(hints.stored().await.0.revision, created);
}

#[tokio::test]
async fn hints_return_after_the_bucket_is_recreated() {
    let server = Server::start().await;
    let client = server.connect().await;
    let lock = bucket_on(&server).await.lock();
    let mut hints = Hints::of(&lock, "a");
    hints.coverage(Coverage::Full).await;
    let before = lock.write("a", entry(1, 1, None)).await.unwrap();
    hints.stored().await;
    api(&client, "STREAM.DELETE.KV_B", json!({})).await;
    let gone = lock.write("a", renewal(1, 2, before)).await.unwrap_err();
    assert_eq!(gone.kind(), LockErrorKind::Unavailable, "{gone}");
    bucket_on(&server).await;
    let after = lock.write("a", entry(1, 3, None)).await.unwrap();
    assert!(after > before);
    assert_eq!(hints.stored().await.0.revision, after);
}

#[tokio::test]
async fn hints_reach_every_server_of_a_cluster() {
    let cluster = Cluster::start().await;
    let client = cluster.connect().await;
    let config = BucketConfig::new("B").ttl(Duration::from_secs(25));
    let bucket = answered(|| Bucket::create(&client, config.clone())).await.unwrap();
    let info = async || asked(&client, "STREAM.INFO.KV_B", json!({})).await;
    let info = eventually("its settings", info).await;
    assert_eq!(info["config"]["num_replicas"], json!(3));
    assert_eq!(answered(|| bucket.health()).await.unwrap(), []);
    for server in cluster.servers() {
        let lock = opened_on(server).await.lock();
        // The stream of a young cluster may get another leader meanwhile, which does not know the
        // subscriptions yet. Then the first that is delivered is that the entry is gone.
        let number = Cell::new(0);
        eventually("a create is hints", async || {
            let name = format!("{}-{}", server.name(), number.replace(number.get() + 1));
            let mut hints = Hints::of(&lock, &name);
            hints.coverage(Coverage::Full).await;
            let created = tried_again(&bucket.lock(), &name).await;
            (hints.stored().await.0.revision == created).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_successor_is_notified_of_a_release_that_succeeded() {
    let server = Server::start().await;
    let client = server.connect().await;
    let config = BucketConfig::new("B").ttl(TTL);
    // On the connection of the calls, which keeps their order.
    let opened = answered(|| Bucket::create_or_open(&client, config.clone())).await;
    let lock = opened.expect("a bucket").lock();
    let subject = "incumbent-roll-call.B.a";
    let mut calls = client.subscribe(subject).await.unwrap();
    let created = lock.write("a", entry(1, 1, None)).await.unwrap();
    let handover = |expected| Release { to: Some(Nonce(2)), ..release(1, expected) };
    let refused = lock.release("a", handover(Revision(created.0 + 1))).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Conflict, "{refused}");
    client.publish(subject, "refused".into()).await.unwrap();
    lock.release("a", handover(created)).await.unwrap();
    client.publish(subject, "released".into()).await.unwrap();
    let mut next = async || calls.next().await.expect("a message").payload;
    assert_eq!(next().await, "refused");
    let call: RollCall = serde_json::from_slice(&next().await).expect("a call");
    let successor = Successor::Candidate(Nonce(2));
    assert_eq!(call.request, CandidateRequest::WhoCanSucceed(successor));
    assert_eq!(next().await, "released");
}
