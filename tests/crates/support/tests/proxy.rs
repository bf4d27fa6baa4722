//! The proxy loses exactly the chosen messages.

use async_nats::jetstream::kv;
use incumbent_test_support::{Cluster, Proxy, Request, Server, eventually, jetstream_on};
use tokio::task::JoinHandle;

/// A bucket reached through the proxy, and the same bucket reached past it.
async fn bucket(server: &Server, proxy: &Proxy) -> (kv::Store, kv::Store) {
    let config = kv::Config { bucket: "B".to_owned(), ..kv::Config::default() };
    let direct = jetstream_on(server.connect().await).create_key_value(config).await.unwrap();
    let context = jetstream_on(proxy.connect().await);
    (context.get_key_value("B").await.unwrap(), direct)
}

/// A write whose answer the test does not wait for.
fn put(store: &kv::Store, value: &'static str) -> JoinHandle<Option<u64>> {
    let store = store.clone();
    tokio::spawn(async move { store.put("key", value.into()).await.ok() })
}

fn writes(request: &Request) -> bool {
    request.subject == "$KV.B.key"
}

#[tokio::test]
async fn a_lost_reply_is_of_a_request_that_was_applied() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.address());
    let (store, direct) = bucket(&server, &proxy).await;
    let mut trap = proxy.lose_reply(writes);
    let first = put(&store, "first");
    assert_eq!(trap.sprung().await.payload, "first");
    assert_eq!(direct.get("key").await.unwrap().unwrap(), "first");

    // The trap was for one request.
    store.put("key", "second".into()).await.unwrap();
    assert_eq!(trap.caught(), None);
    assert!(!first.is_finished());
}

#[tokio::test]
async fn a_lost_request_never_arrives() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.address());
    let (store, direct) = bucket(&server, &proxy).await;
    let mut trap = proxy.lose_request(writes);
    put(&store, "first");
    assert_eq!(trap.sprung().await.payload, "first");
    assert_eq!(direct.get("key").await.unwrap(), None);
    store.put("key", "second".into()).await.unwrap();
}

#[tokio::test]
async fn a_cut_client_comes_back_unless_it_is_refused() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.address());
    let client = proxy.connect().await;
    let connected = || client.connection_state() == async_nats::connection::State::Connected;
    proxy.refuse(true);
    proxy.cut();
    eventually("the loss of the connection", async || (!connected()).then_some(())).await;
    assert!(async_nats::connect(proxy.url()).await.is_err());
    proxy.refuse(false);
    eventually("the connection again", async || connected().then_some(())).await;
    assert_eq!(client.server_info().connect_urls, Vec::<String>::new());
}

#[tokio::test]
async fn a_client_of_the_proxy_learns_of_no_other_server() {
    let cluster = Cluster::start().await;
    let proxy = Proxy::start(cluster.server(0).address());
    let client = proxy.connect().await;
    assert_eq!(client.server_info().connect_urls, Vec::<String>::new());
    let direct = cluster.connect().await;
    assert_ne!(direct.server_info().connect_urls, Vec::<String>::new());
}
