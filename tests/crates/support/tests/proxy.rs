//! The proxy loses exactly the chosen messages.

use async_nats::jetstream::{self, kv};
use incumbent_test_support::{Cluster, Flow, Proxy, Request, Server, Way, eventually};
use tokio::task::JoinHandle;

/// A bucket reached through the proxy, and the same bucket reached past it.
async fn bucket(server: &Server, proxy: &Proxy) -> (kv::Store, kv::Store) {
    let config = kv::Config { bucket: "B".to_owned(), ..kv::Config::default() };
    let direct = jetstream::new(server.connect().await).create_key_value(config).await.unwrap();
    let context = jetstream::new(async_nats::connect(proxy.url()).await.unwrap());
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
async fn a_delete_is_recognized_by_its_header() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.address());
    let (store, direct) = bucket(&server, &proxy).await;
    let mut trap = proxy
        .lose_reply(|request| writes(request) && request.header("kv-operation") == Some("DEL"));
    store.put("key", "value".into()).await.unwrap();
    assert_eq!(trap.caught(), None);
    tokio::spawn(async move { store.delete("key").await });
    assert_eq!(trap.sprung().await.header("KV-Operation"), Some("DEL"));
    assert_eq!(direct.get("key").await.unwrap(), None);
}

#[tokio::test]
async fn a_lost_request_never_arrives() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.address());
    let (store, direct) = bucket(&server, &proxy).await;
    let mut trap = proxy.lose_requests(writes);
    for value in ["first", "second"] {
        put(&store, value);
        assert_eq!(trap.sprung().await.payload, value);
    }
    assert_eq!(direct.get("key").await.unwrap(), None);
    drop(trap);
    store.put("key", "third".into()).await.unwrap();
}

#[tokio::test]
async fn held_requests_and_replies_arrive_once_released() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.address());
    let (store, direct) = bucket(&server, &proxy).await;
    let mut trap = proxy.hold_request(writes);
    let late = put(&store, "late");
    trap.sprung().await;
    assert_eq!(direct.get("key").await.unwrap(), None);
    trap.release();
    assert_eq!(late.await.unwrap(), Some(1));

    let mut trap = proxy.hold_reply(writes);
    let later = put(&store, "later");
    trap.sprung().await;
    assert_eq!(direct.get("key").await.unwrap().unwrap(), "later");
    assert!(!later.is_finished());
    trap.release();
    assert_eq!(later.await.unwrap(), Some(2));
}

#[tokio::test]
async fn a_black_hole_swallows_with_the_connection_open() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.address());
    let (store, direct) = bucket(&server, &proxy).await;
    proxy.black_hole();
    let swallowed = put(&store, "swallowed");
    let swallows = async |way| {
        eventually("the end of a message", async || {
            (proxy.swallowed_of_requests(way) > 0).then_some(())
        })
        .await;
    };
    swallows(Way::ToServer).await;
    proxy.flow(Way::ToServer, Flow::Pass);
    let unanswered = put(&store, "unanswered");
    swallows(Way::ToClient).await;
    proxy.pass();
    store.put("key", "heard".into()).await.unwrap();
    assert!(!swallowed.is_finished() && !unanswered.is_finished());
    assert_eq!(direct.entry("key").await.unwrap().unwrap().revision, 2);
}

#[tokio::test]
async fn held_messages_arrive_in_order_once_released() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.address());
    let (store, direct) = bucket(&server, &proxy).await;
    proxy.hold();
    let puts = ["first", "second", "third"].map(|value| put(&store, value));
    assert_eq!(direct.get("key").await.unwrap(), None);
    proxy.pass();
    for (put, revision) in puts.into_iter().zip(1..) {
        assert_eq!(put.await.unwrap(), Some(revision));
    }
}

#[tokio::test]
async fn a_cut_client_comes_back_unless_it_is_refused() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.address());
    let client = async_nats::connect(proxy.url()).await.unwrap();
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
    let client = async_nats::connect(proxy.url()).await.unwrap();
    assert_eq!(client.server_info().connect_urls, Vec::<String>::new());
    let direct = cluster.connect().await;
    assert_ne!(direct.server_info().connect_urls, Vec::<String>::new());
}
