//! When an empty key proves that there is no leader.

use std::time::Duration;

use incumbent::lock::{Content, Lock, LockErrorKind, Reading, Tombstone};
use incumbent::nats::Storage;
use incumbent_test_support::{Server, Version, eventually, on_versions};
use serde_json::json;

use super::*;

/// Of a bucket whose entries are to expire.
const BRIEF: Duration = Duration::from_secs(2);

fn brief() -> BucketConfig {
    BucketConfig::new("B").ttl(BRIEF)
}

async fn proof(lock: &NatsLock, name: &str) -> bool {
    match read(lock, name).await.unwrap() {
        Reading::Empty { proof } => proof,
        Reading::Found(record) => panic!("{record:?}"),
    }
}

on_versions!(
    #[tokio::test]
    a_new_bucket_is_known_to_be_fresh_and_others_after_a_lease
);
async fn a_new_bucket_is_known_to_be_fresh_and_others_after_a_lease(version: Version) {
    // A busy machine takes long to open it, too.
    let config = brief().ttl(Duration::from_secs(15));
    let server = Server::builder().version(version).start().await;
    let maker = new_bucket(&server, config.clone()).await.lock();
    let opener = bucket_like(&server, config).await.lock();
    assert!(proof(&maker, "a").await, "{version}");
    assert!(!proof(&opener, "a").await, "{version}");
    eventually("a bucket older than a lease", async || proof(&opener, "a").await.then_some(()))
        .await;
    assert!(opener.capabilities().empty_is_proof);
}

/// A server on a cluster that restarts has it again, with its times and without its entries.
#[tokio::test]
async fn a_bucket_in_memory_proves_nothing() {
    let server = Server::start().await;
    let config = brief().storage(Storage::Memory);
    let lock = bucket_like(&server, config).await.lock();
    assert!(!proof(&lock, "a").await);
}

#[tokio::test]
async fn a_recreated_bucket_proves_nothing_to_a_client_of_the_old_one() {
    let server = Server::start().await;
    let client = server.connect().await;
    let bucket = new_bucket(&server, brief().ttl(TTL)).await;
    assert!(proof(&bucket.lock(), "a").await);
    api(&client, "STREAM.DELETE.KV_B", json!({})).await;
    let missing = read(&bucket.lock(), "a").await.unwrap_err();
    assert_eq!(missing.kind(), LockErrorKind::Unavailable);
    assert!(missing.to_string().contains("bucket B does not exist"), "{missing}");
    bucket_on(&server).await;
    assert!(!proof(&bucket.lock(), "a").await);
}

on_versions!(#[tokio::test] an_expired_entry_leaves_a_marker_or_a_key_empty_for_a_lease: v2_10, v2_15);
async fn an_expired_entry_leaves_a_marker_or_a_key_empty_for_a_lease(version: Version) {
    let server = Server::builder().version(version).start().await;
    // The marker stays for the TTL of the bucket, which ends the entry where there are none.
    let ttl = if version == Version::V2_10 { BRIEF } else { TTL };
    let lock = bucket_like(&server, brief().ttl(ttl)).await.lock();
    lock.write("a", living(BRIEF, entry(1, 1, None))).await.unwrap();
    let vacant = eventually("an expiry", async || match read(&lock, "a").await.unwrap() {
        Reading::Found(record) => match record.content {
            Content::Vacant(tombstone) => Some(Some(tombstone)),
            Content::Held(_) => None,
        },
        Reading::Empty { proof } => proof.then_some(None),
    })
    .await;
    let marker = (version > Version::V2_10).then_some(Tombstone::Expired);
    assert_eq!(vacant, marker, "{version}");
}

on_versions!(
    #[tokio::test]
    a_purged_bucket_proves_nothing_for_a_lease
);
/// A purge of the stream leaves no tombstone, only the time of the last write.
async fn a_purged_bucket_proves_nothing_for_a_lease(version: Version) {
    let server = Server::builder().version(version).start().await;
    let client = server.connect().await;
    let lock = bucket_on(&server).await.lock();
    lock.write("a", entry(1, 1, None)).await.unwrap();
    api(&client, "STREAM.PURGE.KV_B", json!({})).await;
    match read(&lock, "a").await.unwrap() {
        Reading::Empty { proof } => assert!(!proof, "{version}"),
        Reading::Found(record) => {
            assert_eq!(record.content, Content::Vacant(Tombstone::Deleted), "{version}");
        }
    }
}
