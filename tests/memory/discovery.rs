//! Clients of tower that follow the leader.

use std::io;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use incumbent::discovery::{ConnectError, LeaderConnector, Leaders};
use incumbent::memory::MemoryLock;
use incumbent::{Election, new_election, observe};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tower::discover::{Change, Discover};

use crate::STEADY;
use crate::conformance::{LEASE, becomes_true, leads, soon};

/// A candidate whose server answers each request with its name, and never closes a connection.
struct Server {
    election: Election,
    serves: JoinHandle<()>,
}

impl Server {
    async fn start(lock: &MemoryLock, name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serves = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, name));
            }
        });
        let election = new_election("my_app", lock.clone()).identity(name).advertise(address);
        Self { election: election.start().unwrap(), serves }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serves.abort();
    }
}

async fn answer(mut stream: TcpStream, name: &str) -> io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    loop {
        stream.read_exact(&mut byte).await?;
        head.push(byte[0]);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            let length = name.len();
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{name}");
            stream.write_all(response.as_bytes()).await?;
        }
    }
}

#[tokio::test]
async fn hyper_reaches_the_leader_on_connections_ended_by_its_term() {
    let lock = MemoryLock::with_ttl(STEADY);
    let first = Server::start(&lock, "first").await;
    let leadership = leads(&first.election).await;
    let connector = LeaderConnector::new(observe("my_app", lock.clone()).unwrap());
    let client = Client::builder(TokioExecutor::new())
        .build::<_, Empty<Bytes>>(connector.hold(Duration::from_secs(3600)));
    let ask = async || {
        let request = Request::get("http://leader/").body(Empty::new()).unwrap();
        let response = client.request(request).await.ok()?;
        Some(response.into_body().collect().await.ok()?.to_bytes())
    };
    for _ in 0..2 {
        assert_eq!(soon("a response", ask()).await.as_deref(), Some(&b"first"[..]));
    }
    let second = Server::start(&lock, "second").await;
    drop(leadership);
    first.election.stop().await; // its server continues
    let _leadership = leads(&second.election).await;
    soon("the next leader answers", async { while ask().await.as_deref() != Some(b"second") {} })
        .await;
}

#[tokio::test]
async fn without_an_accepting_leader_a_connection_fails_after_hold() {
    let lock = MemoryLock::with_ttl(STEADY);
    let observer = observe("my_app", lock.clone()).unwrap();
    let connector = LeaderConnector::new(observer.clone()).hold(LEASE);
    let failure = connector.connect().await.unwrap_err();
    assert!(matches!(failure, ConnectError::NoLeader), "{failure}");
    for (address, reason) in [
        ("127.0.0.1:1", "only leads, and cannot be connected to: "),
        ("nowhere", "only leads, and advertises \"nowhere\": the address is neither "),
    ] {
        let election = new_election("my_app", lock.clone()).identity("only").advertise(address);
        let election = election.start().unwrap();
        let leadership = leads(&election).await;
        // A busy machine may take longer than the hold to learn of it.
        becomes_true(reason, async || {
            connector.connect().await.unwrap_err().to_string().starts_with(reason)
        })
        .await;
        drop(leadership);
        election.stop().await;
    }
    observer.stop().await;
    let failure = soon("a failure", connector.connect()).await.unwrap_err();
    assert!(matches!(failure, ConnectError::Stopped), "{failure}");
}

#[tokio::test]
async fn the_leader_is_the_one_service_that_is_discovered() {
    let lock = MemoryLock::with_ttl(STEADY);
    let observer = observe("my_app", lock.clone()).unwrap();
    let leaders = Leaders::new(observer.clone());
    let discovered = leaders.discover(|leader| {
        let advertised = leader.advertisement.as_ref()?;
        (advertised.address() != "nowhere").then(|| advertised.address().to_owned())
    });
    let mut discovered = pin!(discovered);
    let mut inserted = Vec::new();
    for address in ["10.0.0.1:80", "nowhere", "10.0.0.2:80"] {
        let election = new_election("my_app", lock.clone()).advertise(address).start().unwrap();
        let leadership = leads(&election).await;
        if address != "nowhere" {
            let change = soon("it is inserted", is_discover(&mut discovered).next()).await;
            let Some(Ok(Change::Insert(key, service))) = change else { panic!("not inserted") };
            assert_eq!((service.as_str(), key.token), (address, Some(leadership.token())));
            inserted.push(key);
        }
        drop(leadership);
        election.stop().await;
        if address != "nowhere" {
            let change = soon("it is removed", discovered.next()).await;
            let Some(Ok(Change::Remove(key))) = change else { panic!("not removed") };
            assert_eq!(Some(&key), inserted.last());
        }
    }
    let election = new_election("my_app", lock.clone()).advertise("10.0.0.3:80").start().unwrap();
    let _leadership = leads(&election).await;
    assert!(matches!(
        soon("it is inserted", discovered.next()).await,
        Some(Ok(Change::Insert(..)))
    ));
    observer.stop().await;
    assert!(matches!(soon("it is removed", discovered.next()).await, Some(Ok(Change::Remove(_)))));
    assert!(soon("the end", discovered.next()).await.is_none());
}

/// It may be given to a balancer.
fn is_discover<D: Discover>(discover: D) -> D {
    discover
}
