//! The operations on one server.

use std::time::Duration;

use async_nats::jetstream::{self, kv};
use incumbent_test_support::{Server, Version, eventually};
use tokio::time::timeout;

async fn bucket(client: &async_nats::Client) -> kv::Store {
    let config = kv::Config { bucket: "B".to_owned(), ..kv::Config::default() };
    jetstream::new(client.clone()).create_or_update_key_value(config).await.unwrap()
}

#[tokio::test]
async fn every_version_starts_and_reports_its_number() {
    for version in Version::ALL {
        let server = Server::builder().version(version).start().await;
        assert_eq!(server.varz().await["version"], version.number());
        assert!(server.jsz().await["config"].is_object(), "{version} has no JetStream");
    }
}

#[tokio::test]
async fn a_stop_and_a_kill_keep_the_files_and_the_port() {
    let server = Server::start().await;
    let url = server.url();
    let store = bucket(&server.connect().await).await;
    store.put("key", "value".into()).await.unwrap();

    server.restart().await;
    let store = bucket(&server.connect().await).await;
    assert_eq!(store.get("key").await.unwrap().unwrap(), "value");

    server.kill();
    assert!(!server.is_running());
    assert!(async_nats::connect(&url).await.is_err());
    server.start_again().await;
    assert_eq!(server.url(), url);
    let store = bucket(&server.connect().await).await;
    assert_eq!(store.get("key").await.unwrap().unwrap(), "value");
}

#[tokio::test]
async fn a_paused_server_answers_once_it_is_resumed() {
    let server = Server::start().await;
    let client = server.connect().await;
    for _ in 0..2 {
        server.pause();
        assert!(!server.is_running());
        let mut answer = round_trip(&client);
        assert!(timeout(Duration::from_millis(50), &mut answer).await.is_err());
        server.resume();
        timeout(Duration::from_secs(30), answer).await.unwrap().unwrap();
    }
}

/// A round trip to the server.
fn round_trip(client: &async_nats::Client) -> tokio::task::JoinHandle<()> {
    let client = client.clone();
    tokio::spawn(async move {
        let inbox = client.new_inbox();
        let mut echo = client.subscribe(inbox.clone()).await.unwrap();
        client.publish(inbox, "echo".into()).await.unwrap();
        futures_util::StreamExt::next(&mut echo).await.unwrap();
    })
}

#[tokio::test]
async fn a_reload_takes_a_right_away() {
    let users = |subject: &str| {
        format!(
            "authorization {{ users: [{{ user: u, password: p, permissions: {{ publish: {subject} }} }}] }}"
        )
    };
    let server = Server::builder().config(users("\">\"")).start().await;
    let events = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = events.clone();
    let client = async_nats::ConnectOptions::with_user_and_password("u".into(), "p".into())
        .event_callback(move |event| {
            told.lock().unwrap().push(event.to_string());
            async {}
        })
        .connect(server.url())
        .await
        .unwrap();
    server.reload(users("allowed")).await;
    client.publish("forbidden", "x".into()).await.unwrap();
    eventually("the violation", async || {
        let told = events.lock().unwrap();
        told.iter()
            .any(|event| event.to_lowercase().contains("permissions violation"))
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn servers_and_their_files_end_with_their_owner() {
    let server = Server::start().await;
    server.pause();
    let address = server.address();
    drop(server);
    assert!(std::net::TcpStream::connect(address).is_err());
}
