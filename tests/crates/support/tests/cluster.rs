//! A cluster is ready when it reports that, and survives the loss of a server.

use async_nats::jetstream::{self, kv};
use incumbent_test_support::{Cluster, Proxy, eventually};

#[tokio::test]
async fn a_stream_of_three_replicas_gets_another_leader() {
    let cluster = Cluster::start().await;
    let context = jetstream::new(cluster.connect().await);
    let config = kv::Config { bucket: "B".to_owned(), num_replicas: 3, ..kv::Config::default() };
    let store = context.create_key_value(config).await.unwrap();
    store.put("key", "first".into()).await.unwrap();

    let first = cluster.await_stream_leader("KV_B").await;
    cluster.server(first).kill();
    let second = cluster.await_stream_leader("KV_B").await;
    assert_ne!(first, second);
    eventually("a write", async || store.put("key", "second".into()).await.ok()).await;

    cluster.server(first).start_again().await;
    cluster.server(second).pause();
    let third = cluster.await_stream_leader("KV_B").await;
    assert_ne!(second, third);
    cluster.server(second).resume();

    for server in cluster.servers() {
        server.kill();
    }
    cluster.start_again().await;
    cluster.await_stream_leader("KV_B").await;
    assert_eq!(eventually("a read", async || store.get("key").await.ok()).await.unwrap(), "second");
}

#[tokio::test]
async fn a_client_of_the_proxy_learns_of_no_other_server() {
    let cluster = Cluster::start().await;
    let proxy = Proxy::start(cluster.server(0).address());
    let client = async_nats::connect(proxy.url()).await.unwrap();
    assert_eq!(client.server_info().connect_urls, Vec::<String>::new());
    let direct = cluster.connect().await;
    assert_ne!(direct.server_info().connect_urls, Vec::<String>::new());
}
