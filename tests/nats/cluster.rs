//! Three servers, one stream on all of them.

use std::time::Duration;

use incumbent::nats::{Bucket, BucketConfig};
use incumbent::{Change, Election, new_election};
use incumbent_test_support::{Cluster, eventually};

use crate::conformance::{leads, sees, working};
use crate::env::BUCKET;

const TTL: Duration = Duration::from_secs(20);
const STREAM: &str = "KV_CHORIA_LEADER_ELECTION";

async fn start(cluster: &Cluster, identity: &str) -> Election {
    let client = async_nats::ConnectOptions::new()
        .reconnect_delay_callback(|_| Duration::from_millis(50))
        .connect(cluster.urls())
        .await
        .unwrap();
    let config = BucketConfig::new(BUCKET).ttl(TTL);
    let lock = Bucket::create_or_open(client, config).await.unwrap().lock();
    let builder = new_election("my_app", lock).identity(identity);
    working(builder.renewal(Duration::from_millis(500))).start().unwrap()
}

/// A bucket made on a cluster has three replicas; a stream leader that dies costs no term, and the
/// next takeover is still a matter of hearing.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_death_of_the_stream_leader_costs_no_term() {
    let cluster = Cluster::start().await;
    let first = start(&cluster, "first").await;
    let leadership = leads(&first).await;
    let second = start(&cluster, "second").await;
    sees(&second, "first").await;
    let info = async_nats::jetstream::new(cluster.connect().await).get_stream(STREAM).await;
    assert_eq!(info.unwrap().cached_info().config.num_replicas, 3);

    let mut changes = first.changes();
    let dead = cluster.await_stream_leader(STREAM).await;
    cluster.server(dead).kill();
    let moved = eventually("another stream leader", async || {
        cluster.stream_leader(STREAM).await.filter(|leader| *leader != dead)
    })
    .await;
    assert_ne!(moved, dead);
    let before = leadership.deadline();
    eventually("a renewal", async || (leadership.deadline() > before).then_some(())).await;
    assert_eq!(first.token(), Some(leadership.token()), "the term continues");
    drop(leadership);

    first.stop().await;
    drop(leads(&second).await);
    let mut losses = 0;
    while let Some(change) = changes.next().await {
        losses += usize::from(matches!(change, Change::Lost { .. }));
    }
    assert_eq!(losses, 1, "the stop is the only end of a term");
}

/// A stream without a quorum serves no request: the leader stops by its own deadline, and there is
/// a leader again with the quorum.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_lost_quorum_ends_the_term_and_its_return_begins_another() {
    let cluster = Cluster::start().await;
    let first = start(&cluster, "first").await;
    let leadership = leads(&first).await;
    cluster.server(0).pause();
    cluster.server(1).pause();
    eventually("the leader is out", async || (!first.is_leader()).then_some(())).await;
    assert!(!leadership.is_valid());
    drop(leadership);
    cluster.server(0).resume();
    cluster.server(1).resume();
    drop(leads(&first).await);
}
