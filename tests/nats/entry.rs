//! What others do to the entry and to the bucket under a leader.

use std::time::Duration;

use incumbent::nats::{Bucket, BucketConfig};
use incumbent::{Cause, Changes, Election, Leadership};
use incumbent_test_support::jetstream_on;

use crate::conformance::{leads, lost, sees, soon};
use crate::env::{BUCKET, TestEnv, answered};

/// Longer than a busy machine holds up a leader.
const TTL: Duration = Duration::from_secs(12);

struct Pair {
    env: TestEnv,
    first: Election,
    second: Election,
    leadership: Leadership,
    changes: Changes<incumbent::Change>,
}

impl Pair {
    async fn open() -> Self {
        let env = TestEnv::with_ttl(TTL).await;
        let first = env.maker("first").start().expect("a start");
        let leadership = leads(&first).await;
        let second = env.start("second").await;
        sees(&second, "first").await;
        let changes = first.changes();
        Self { env, first, second, leadership, changes }
    }

    async fn loss(&mut self) -> Cause {
        lost(&mut self.changes).await
    }

    /// One of the two leads, with a greater token, and not both.
    async fn gets_a_new_leader(self) {
        let before = self.leadership.token();
        drop(self.leadership);
        let next = soon("there is a leader", async {
            tokio::select! {
                next = self.first.won() => next.unwrap(),
                next = self.second.won() => next.unwrap(),
            }
        })
        .await;
        assert!(next.token() > before, "{} after {before}", next.token());
        assert!(self.first.is_leader() != self.second.is_leader());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purged_key_evicts() {
    let mut pair = Pair::open().await;
    let headers = [("KV-Operation", "PURGE"), ("Nats-Rollup", "sub")];
    pair.env.publish(&headers, "").await;
    assert_eq!(pair.loss().await, Cause::Evicted);
    pair.gets_a_new_leader().await;
}

/// A purge of the stream leaves no tombstone, and causes no hint.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purged_stream_evicts() {
    let mut pair = Pair::open().await;
    let js = jetstream_on(pair.env.client().await);
    let stream = js.get_stream(format!("KV_{BUCKET}")).await.unwrap();
    stream.purge().await.unwrap();
    assert_eq!(pair.loss().await, Cause::Evicted);
    pair.gets_a_new_leader().await;
}

/// A bucket that is deleted under a leader ends its term by its own deadline at the latest; when
/// the bucket is made again, the campaigns continue by themselves, and tokens continue growing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_and_recreated_bucket_is_found_again() {
    let mut pair = Pair::open().await;
    let client = pair.env.client().await;
    let js = jetstream_on(client.clone());
    js.delete_stream(format!("KV_{BUCKET}")).await.unwrap();
    pair.loss().await;
    assert!(!pair.first.is_leader() && !pair.second.is_leader());
    let config = BucketConfig::new(BUCKET).ttl(TTL);
    answered(|| Bucket::create(&client, config.clone())).await.unwrap();
    pair.gets_a_new_leader().await;
}

/// Made again at once, so that no request falls into the gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_replaced_under_a_leader_evicts_it() {
    let mut pair = Pair::open().await;
    let client = pair.env.client().await;
    let js = jetstream_on(client.clone());
    js.delete_stream(format!("KV_{BUCKET}")).await.unwrap();
    let config = BucketConfig::new(BUCKET).ttl(TTL);
    answered(|| Bucket::create(&client, config.clone())).await.unwrap();
    pair.loss().await;
    pair.gets_a_new_leader().await;
}
