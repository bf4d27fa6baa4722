//! Quirks of NATS, one test each.

use std::time::Duration;

use async_nats::HeaderMap;
use incumbent::lock::{Content, Coverage, Lock, LockErrorKind, Reading, Tombstone};
use incumbent::nats::{Bucket, BucketConfig, BucketErrorKind};
use incumbent_test_support::{Cluster, Proxy, Server, Version, on_versions};

use super::*;
use crate::conformance::soon;

const SECOND: Duration = Duration::from_secs(1);

/// The TTL of a bucket that a test waits for. Longer than a busy machine stands still, most times.
const SHORT: Duration = Duration::from_secs(12);

const EXPIRED: Content = Content::Vacant(Tombstone::Expired);

/// Waits until the server reports that the entry has expired, long before the bucket's own TTL.
async fn expires(hints: &mut Hints) -> Revision {
    let mut stored = hints.stored().await.0;
    while stored.content != EXPIRED {
        stored = hints.stored().await.0;
    }
    stored.revision
}

async fn server_with(version: Version) -> (Server, NatsLock) {
    let server = Server::builder().version(version).start().await;
    let config = BucketConfig::new("B").ttl(Duration::from_secs(3600));
    let lock = bucket_like(&server, config).await.lock();
    (server, lock)
}

on_versions!(#[tokio::test] a_renewal_keeps_its_ttl: v2_11, v2_15);
async fn a_renewal_keeps_its_ttl(version: Version) {
    let (_server, lock) = server_with(version).await;
    let mut hints = Hints::of(&lock, "a");
    hints.coverage(Coverage::Full).await;
    let created = lock.write("a", entry(1, 1, None)).await.unwrap();
    let renewal = living(SECOND, renewal(1, 2, created));
    lock.write("a", renewal).await.unwrap();
    expires(&mut hints).await;
}

on_versions!(
    #[tokio::test]
    an_entry_lives_no_longer_than_the_bucket_keeps_it
);
/// No message with a TTL of its own outlives the `max_age` of its stream. One with `never` does, as
/// of 2.11.
async fn an_entry_lives_no_longer_than_the_bucket_keeps_it(version: Version) {
    let asked = Duration::from_secs(3600);
    let server = Server::builder().version(version).start().await;
    let client = server.connect().await;
    let lock = bucket_like(&server, BucketConfig::new("B").ttl(SHORT)).await.lock();
    let never = HeaderMap::from_iter([("Nats-TTL".parse().unwrap(), "never".parse().unwrap())]);
    client.publish_with_headers("$KV.B.never", never, "x".into()).await.unwrap();
    client.flush().await.unwrap();
    lock.write("a", living(asked, entry(1, 1, None))).await.unwrap();
    let (_, entry) = held(&lock, "a").await;
    assert!(entry.ttl < SHORT + SECOND * 2, "{version}: {:?}", entry.ttl);
    eventually("the end of the entry", async || match read(&lock, "a").await.unwrap() {
        Reading::Found(record) if matches!(record.content, Content::Held(_)) => None,
        _ => Some(()),
    })
    .await;
    if version != Version::V2_10 {
        let (_, never) = held(&lock, "never").await;
        assert!(never.ttl > asked, "{version}: {:?}", never.ttl);
    }
}

on_versions!(#[tokio::test] a_create_over_a_tombstone_keeps_its_ttl: v2_11, v2_15);
async fn a_create_over_a_tombstone_keeps_its_ttl(version: Version) {
    let (_server, lock) = server_with(version).await;
    let mut hints = Hints::of(&lock, "a");
    hints.coverage(Coverage::Full).await;
    let created = lock.write("a", entry(1, 1, None)).await.unwrap();
    lock.release("a", release(1, created)).await.unwrap();
    let tombstone = found(&lock, "a").await.revision;
    lock.write("a", living(SECOND, entry(2, 1, Some(tombstone)))).await.unwrap();
    let marker = expires(&mut hints).await;
    // The marker is the last message: over it, too, a create is one request.
    lock.write("a", living(SECOND, entry(3, 1, Some(marker)))).await.unwrap();
    expires(&mut hints).await;
}

on_versions!(#[tokio::test] a_release_leaves_no_marker: v2_11, v2_15);
/// Three replicas may store one over the entry that the next holder has just created.
async fn a_release_leaves_no_marker(version: Version) {
    let server = Server::builder().version(version).start().await;
    let lock = bucket_like(&server, BucketConfig::new("B").ttl(SHORT)).await.lock();
    let created = lock.write("a", living(SHORT, entry(1, 1, None))).await.unwrap();
    lock.release("a", release(1, created)).await.unwrap();
    eventually("the end of the release", async || match read(&lock, "a").await.unwrap() {
        Reading::Found(record) => {
            assert_ne!(record.content, EXPIRED, "{version}");
            None
        }
        Reading::Empty { .. } => Some(()),
    })
    .await;
}

on_versions!(
    #[tokio::test]
    a_write_of_another_candidate_is_a_conflict
);
async fn a_write_of_another_candidate_is_a_conflict(version: Version) {
    let (_server, lock) = server_with(version).await;
    let first = lock.write("a", entry(1, 1, None)).await.unwrap();
    for expected in [None, Some(Revision(first.0 - 1)), Some(Revision(first.0 + 1))] {
        let refused = lock.write("a", entry(2, 1, expected)).await.unwrap_err();
        assert_eq!(refused.kind(), LockErrorKind::Conflict, "{version}: {refused}");
    }
    let stale = Revision(first.0 - 1);
    let refused = lock.write("a", renewal(2, 2, stale)).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Conflict, "{version}: {refused}");
    let refused = lock.release("a", release(2, Revision(first.0 + 1))).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Conflict, "{version}: {refused}");
}

/// On a cluster a write that meets another in flight is refused as 10164, which clients have taken
/// for a failure.
#[tokio::test]
async fn one_of_many_concurrent_creates_wins_and_the_others_conflict() {
    let cluster = Cluster::start().await;
    let client = cluster.connect().await;
    let bucket = answered(|| Bucket::create(&client, BucketConfig::new("B"))).await.unwrap();
    let lock = bucket.lock();
    tried_again(&lock, "warm-up").await;
    let ten_rounds = async {
        let (mut begun, mut decided) = (0, 0);
        while decided < 10 {
            let name = format!("round{begun}");
            begun += 1;
            let create = |nonce| lock.write(&name, within(ATTEMPT, entry(nonce, 1, None)));
            let answers = futures_util::future::join_all((0..20).map(create)).await;
            let won = answers.iter().filter(|answer| answer.is_ok()).count();
            assert!(won <= 1, "{won} have won");
            let refusals: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
            if refusals.iter().any(|refused| is_passing(refused.kind())) {
                continue; // some have learned nothing
            }
            decided += 1;
            assert_eq!(won, 1);
            for refused in refusals {
                assert_eq!(refused.kind(), LockErrorKind::Conflict, "{refused}");
            }
        }
    };
    soon("ten rounds", ten_rounds).await;
}

#[tokio::test]
async fn a_stored_create_is_told_from_one_of_another_candidate() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.address());
    let bucket = bucket_on(&server).await;
    let unlucky = opened(proxy.connect().await, BucketConfig::new("B")).await.lock();

    let mut lost = proxy.lose_reply(|request| request.subject == "$KV.B.a");
    let create = entry(1, 1, None);
    let unknown = unlucky.write("a", within(Duration::from_millis(500), create.clone())).await;
    assert_eq!(unknown.unwrap_err().kind(), LockErrorKind::OutcomeUnknown);
    lost.sprung().await;
    let (_, ours) = held(&unlucky, "a").await;
    assert_eq!(ours.mark.map(|mark| mark.write), Some(create.mark.write));

    let other = entry(2, 1, None);
    bucket.lock().write("b", other.clone()).await.unwrap();
    let (_, theirs) = held(&unlucky, "b").await;
    assert_eq!(theirs.mark.map(|mark| mark.write), Some(other.mark.write));
}

/// A replica may answer a direct get with an older value; requests go to the stream's leader only.
#[tokio::test]
async fn a_stale_direct_read_is_never_requested() {
    let rights = r#"
        authorization: { users: [ { user: a, password: pw-a, permissions: {
            publish: { deny: ["$JS.API.DIRECT.>"] }
        } } ] }"#;
    let server = Server::builder().config(rights).start().await;
    let proxy = Proxy::start(server.address());
    let mut direct = proxy.lose_request(|request| request.subject.contains("DIRECT"));
    let client = client_of("a", proxy.url()).await;
    let config = BucketConfig::new("B").ttl(TTL);
    let lock = answered(|| Bucket::create(&client, config.clone())).await.unwrap().lock();
    assert!(matches!(read(&lock, "a").await.unwrap(), Reading::Empty { .. }));
    let created = lock.write("a", entry(1, 1, None)).await.unwrap();
    assert_eq!(held(&lock, "a").await.0, created);
    let bucket = lock.bucket();
    answered(|| bucket.health()).await.unwrap();
    assert_eq!(direct.caught(), None);
}

#[tokio::test]
async fn ttls_below_a_second_are_rounded_up_or_refused() {
    let (_server, lock) = server_with(Version::V2_15).await;
    let mut hints = Hints::of(&lock, "a");
    hints.coverage(Coverage::Full).await;
    let brief = living(Duration::from_millis(1), entry(1, 1, None));
    lock.write("a", brief).await.unwrap();
    let (_, entry) = held(&lock, "a").await;
    assert_eq!(entry.ttl, Duration::from_millis(1_250));
    expires(&mut hints).await;

    let server = Server::start().await;
    for (ttl, words) in [(999, ["999ms", "1s"]), (3_600_001, ["3600.001s", "3600s"])] {
        let config = BucketConfig::new("B").ttl(Duration::from_millis(ttl));
        let client = server.connect().await;
        let refused = answered(|| Bucket::create(&client, config.clone())).await.unwrap_err();
        assert_eq!(refused.kind(), BucketErrorKind::Unusable);
        assert!(words.iter().all(|word| refused.to_string().contains(word)), "{refused}");
    }
}
