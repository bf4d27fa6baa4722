//! What a sentinel accepts over its socket, and from whom.

use std::path::Path;
use std::process::id;

use incumbent::sentinel::{
    Sentinel, SentinelMessage, SentinelReply, VERSION, connect, encode, read_message, start_time,
};
use incumbent_test_support::eventually;
use rustix::process::{Resource, Signal, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc::unbounded_channel;

use crate::env::TestEnv;
use crate::listening::Listening;
use crate::setup::{LONG_LEASE, Wrapped, counts, registered, standby_of, won};

/// A connection of this test.
struct Client(BufReader<UnixStream>);

impl Client {
    async fn connect(address: &str) -> Self {
        Self(BufReader::new(connect(Path::new(address)).await.expect("it listens")))
    }

    async fn send(&mut self, bytes: &[u8]) {
        // It may have closed the connection already.
        let _ = self.0.write_all(bytes).await;
    }

    async fn hello(&mut self, started: u64) -> SentinelReply {
        self.send(&encode(&SentinelMessage::Hello { version: VERSION, started })).await;
        read_message(&mut self.0, &mut Vec::new()).await.expect("a reply")
    }

    /// Waits until the sentinel closes the connection. Returns what it sent before.
    async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest).await; // it may be reset
        String::from_utf8(rest).expect("text")
    }
}

fn our_start() -> u64 {
    start_time(None).expect("a time")
}

#[tokio::test]
async fn process_with_another_start_time_is_refused() {
    let env = TestEnv::with_ttl(LONG_LEASE).await;
    let listening = Listening::start(&env).await;
    let mut client = Client::connect(listening.address()).await;
    let reason = format!("process {} cannot be watched: another process has its id", id());
    assert_eq!(client.hello(our_start() - 1).await, SentinelReply::Refused { reason });
    assert_eq!(client.rest().await, "");
    let mut client = Client::connect(listening.address()).await;
    assert_eq!(client.hello(our_start()).await, SentinelReply::Watching { version: VERSION });
}

#[tokio::test]
async fn unknown_version_is_refused() {
    let env = TestEnv::with_ttl(LONG_LEASE).await;
    let listening = Listening::start(&env).await;
    let mut client = Client::connect(listening.address()).await;
    let version = VERSION + 1;
    client.send(&encode(&SentinelMessage::Hello { version, started: our_start() })).await;
    let refused = client.rest().await;
    let reason = format!("version {version} of its messages is unknown");
    assert!(refused.starts_with("{\"refused\"") && refused.contains(&reason), "{refused}");
}

#[tokio::test]
async fn process_outside_of_the_program_is_refused_by_a_wrapper() {
    let env = TestEnv::with_ttl(LONG_LEASE).await;
    let first = Wrapped::campaign(&env).await;
    let mut client = Client::connect(&first.address).await;
    let reason = format!("process {} was not started here", id());
    assert_eq!(client.hello(our_start()).await, SentinelReply::Refused { reason });
    assert_eq!(counts(&first.address).await, (1, 1));
}

#[tokio::test]
async fn first_message_must_be_hello() {
    let env = TestEnv::with_ttl(LONG_LEASE).await;
    let listening = Listening::start(&env).await;
    let mut client = Client::connect(listening.address()).await;
    client.send(b"{\"ended\":{\"election\":\"my_app\",\"nonce\":\"0\"}}\n").await;
    assert_eq!(
        client.rest().await,
        "{\"refused\":{\"reason\":\"the first message must be hello\"}}\n"
    );
}

/// Malformed and overlong lines, and connections that say nothing.
#[tokio::test]
async fn others_are_served_beside_malformed_connections() {
    let env = TestEnv::with_ttl(LONG_LEASE).await;
    let listening = Listening::start(&env).await;
    let first = listening.leader(&env, "my_app", 1).await;
    let mut second = standby_of(&env, "my_app").await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(Client::connect(listening.address()).await);
    }
    let long = vec![b'a'; 1024 * 1024];
    for junk in [b"junk\n".as_slice(), b"\xff\xfe\n", b"\n", b"{}\n", b"null\n", &long] {
        let mut client = Client::connect(listening.address()).await;
        client.send(junk).await;
        assert_eq!(client.rest().await, "");
        let mut client = Client::connect(listening.address()).await;
        client.hello(our_start()).await;
        client.send(junk).await;
        client
            .send(b"{\"began\":{\"election\":\"a\",\"nonce\":\"-\",\"token\":1,\"create\":1}}\n")
            .await;
    }
    counts(listening.address()).await; // its lock responds
    first.signal(Signal::KILL);
    won(&mut second).await;
}

/// More than it serves: programs of this user that hang, or are no programs.
#[tokio::test]
async fn full_sentinel_says_so_and_closes_idle_connections() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("a limit");
    let env = TestEnv::with_ttl(LONG_LEASE).await;
    let listening = Listening::start(&env).await;
    let watching = SentinelReply::Watching { version: VERSION };
    let mut others = Vec::new();
    for _ in 0..1_023 {
        let mut client = Client::connect(listening.address()).await;
        assert_eq!(client.hello(our_start()).await, watching);
        others.push(client);
    }
    let full = SentinelReply::Refused { reason: "it serves 1024 processes already".to_owned() };
    // On a busy machine the idle connection may be closed before the next one comes.
    let mut idle = eventually("it is full", async || {
        let idle = Client::connect(listening.address()).await;
        let reply = Client::connect(listening.address()).await.hello(our_start()).await;
        assert!(reply == full || reply == watching, "{reply:?}");
        (reply == full).then_some(idle)
    })
    .await;
    let serves = async || {
        let reply = Client::connect(listening.address()).await.hello(our_start()).await;
        (reply == watching).then_some(())
    };
    eventually("idle connections are closed", serves).await;
    assert_eq!(idle.rest().await, "");
}

#[tokio::test]
async fn status_is_told_once_a_connection() {
    let env = TestEnv::with_ttl(LONG_LEASE).await;
    let listening = Listening::start(&env).await;
    let mut client = Client::connect(listening.address()).await;
    let status = encode(&SentinelMessage::Status);
    client.send(&[&status[..], &status[..]].concat()).await;
    assert_eq!(client.rest().await.lines().count(), 1);
}

/// A closed connection proves nothing: only the death of the process does.
#[tokio::test]
async fn living_process_without_its_connection_is_not_released() {
    let env = TestEnv::with_ttl(LONG_LEASE).await;
    let listening = Listening::start(&env).await;
    let (sender, mut messages) = unbounded_channel();
    let bucket = env.bucket().await;
    let sink = Sentinel::sink(move |message| drop(sender.send(message)));
    let election = incumbent::new_election("my_app", bucket.lock()).identity("first");
    let election = election.sentinel(sink).start().expect("a start");
    let leadership = election.won().await.expect("a term");
    let began = messages.recv().await.expect("a registration");
    let mut client = Client::connect(listening.address()).await;
    client.hello(our_start()).await;
    client.send(&encode(&began)).await;
    registered(listening.address(), 1).await;
    drop(client);
    registered(listening.address(), 0).await;
    assert!(leadership.is_valid());
    assert_eq!(env.holder("my_app").await.as_deref(), Some("first"));
}

/// An election that the process does not hold, and one that nobody ever held.
#[tokio::test]
async fn entry_that_is_not_found_is_reported_to_the_process() {
    let env = TestEnv::with_ttl(LONG_LEASE).await;
    let listening = Listening::start(&env).await;
    let mut leader = listening.leader(&env, "my_app", 1).await;
    let mut client = Client::connect(listening.address()).await;
    client.hello(our_start()).await;
    for election in ["my_app", "unknown"] {
        let began = format!(
            "{{\"began\":{{\"election\":\"{election}\",\"nonce\":\"0000000000000001\",\"token\":1,\"create\":1}}}}\n"
        );
        client.send(began.as_bytes()).await;
        let reply: SentinelReply =
            read_message(&mut client.0, &mut Vec::new()).await.expect("a reply");
        let reason =
            "its entry is not in the lock of the sentinel: give both the same --lock".to_owned();
        assert_eq!(reply, SentinelReply::Unable { election: election.into(), reason });
    }
    registered(listening.address(), 3).await;
    assert!(leader.is_silent());
}
