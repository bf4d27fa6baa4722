//! What an election registers with its sentinel.

use std::time::Duration;

use incumbent::lock::{Content, Lock, Reading, Tombstone};
use incumbent::memory::MemoryLock;
use incumbent::protocol::CrashOutcome;
use incumbent::sentinel::{
    HEARTBEAT, Sentinel, SentinelMessage, SentinelReply, VERSION, encode, read_message,
    release_crashed,
};
use incumbent::{CoolDown, Election, new_election};
use tempfile::TempDir;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use crate::conformance::{TIMEOUT, leads};

const LEASE: Duration = Duration::from_secs(60);

/// A socket in the place of a sentinel.
struct FakeSentinel {
    directory: TempDir,
    listener: UnixListener,
}

struct Connection(BufReader<UnixStream>);

impl FakeSentinel {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        Self { directory, listener }
    }

    fn address(&self) -> Sentinel {
        Sentinel::at(self.directory.path().join("socket"))
    }

    fn candidate(&self, lock: &MemoryLock, identity: &str) -> Election {
        let builder = new_election("my_app", lock.clone()).identity(identity);
        builder.sentinel(self.address()).start().unwrap()
    }

    /// The next connection, after its greeting.
    async fn accept(&self) -> Connection {
        let mut connection = Connection(BufReader::new(self.listener.accept().await.unwrap().0));
        let hello = connection.message().await;
        assert!(matches!(hello, SentinelMessage::Hello { version: VERSION, .. }), "{hello:?}");
        connection.reply(&SentinelReply::Watching { version: VERSION }).await;
        connection
    }
}

impl Connection {
    async fn message(&mut self) -> SentinelMessage {
        read_message(&mut self.0, &mut Vec::new()).await.unwrap()
    }

    async fn reply(&mut self, reply: &SentinelReply) {
        self.0.get_mut().write_all(&encode(reply)).await.unwrap();
    }
}

#[tokio::test]
async fn a_term_is_registered_at_its_start_and_at_its_release() {
    let (sentinel, lock) = (FakeSentinel::start(), MemoryLock::with_ttl(LEASE));
    let election = sentinel.candidate(&lock, "first");
    let leadership = leads(&election).await;
    let mut connection = sentinel.accept().await;
    let began = connection.message().await;
    assert_eq!(began.term().map(|term| term.token), Some(leadership.token()));

    drop(leadership);
    let ended = connection.message().await;
    assert!(matches!(&ended, SentinelMessage::Ended { election, .. } if **election == *"my_app"));
    assert_eq!(ended.nonce(), began.nonce());
    assert_eq!(lock.holder("my_app"), None, "it is registered until its entry is released");
}

#[tokio::test]
async fn all_elections_of_a_process_share_a_connection() {
    let (sentinel, lock) = (FakeSentinel::start(), MemoryLock::with_ttl(LEASE));
    let first = sentinel.candidate(&lock, "first");
    let builder = new_election("another", lock.clone()).sentinel(sentinel.address());
    let second = builder.start().unwrap();
    let _leaderships = (leads(&first).await, leads(&second).await);
    let mut connection = sentinel.accept().await;
    let mut names = Vec::new();
    for _ in 0..2 {
        if let SentinelMessage::Began { election, .. } = connection.message().await {
            names.push(election.to_string());
        }
    }
    names.sort();
    assert_eq!(names, ["another", "my_app"]);
}

#[tokio::test]
async fn a_sentinel_that_does_not_read_holds_up_no_term() {
    let (sentinel, lock) = (FakeSentinel::start(), MemoryLock::with_ttl(LEASE));
    let long = "x".repeat(1_000); // together more than a socket takes
    let start = |number| {
        let builder = new_election(format!("{long}{number}"), lock.clone());
        builder.sentinel(sentinel.address()).start().unwrap()
    };
    let elections: Vec<_> = (0..500).map(start).collect();
    for election in &elections {
        leads(election).await.resign();
    }
    for election in elections {
        election.stop().await;
        assert_eq!(lock.holder(election.name()), None);
    }
}

/// A sentinel that hangs, or is full, as its socket accepts connections all the same.
#[tokio::test]
async fn silent_sentinel_is_connected_to_again() {
    let (sentinel, lock) = (FakeSentinel::start(), MemoryLock::with_ttl(LEASE));
    let election = sentinel.candidate(&lock, "first");
    let _leadership = leads(&election).await;
    tokio::time::pause();
    let mut silent = Vec::new();
    for _ in 0..2 {
        let again = tokio::time::timeout(LEASE, sentinel.listener.accept()).await;
        silent.push(again.expect("it does not wait for a reply").unwrap());
    }
}

#[tokio::test]
async fn heartbeats_keep_the_connection() {
    let (sentinel, lock) = (FakeSentinel::start(), MemoryLock::with_ttl(LEASE));
    let election = sentinel.candidate(&lock, "first");
    let _leadership = leads(&election).await;
    let mut connection = sentinel.accept().await;
    tokio::time::pause();
    for _ in 0..10 {
        tokio::time::sleep(HEARTBEAT).await;
        connection.reply(&SentinelReply::Watching { version: VERSION }).await;
        tokio::task::yield_now().await;
    }
    let again = tokio::time::timeout(HEARTBEAT, sentinel.listener.accept()).await;
    assert!(again.is_err(), "it connected again");
}

/// Its entry keeps others out for the sake of an earlier leader.
#[tokio::test]
async fn a_winner_that_still_waits_is_not_registered() {
    let (sentinel, lock) = (FakeSentinel::start(), MemoryLock::with_ttl(LEASE));
    let waits = new_election("my_app", lock.clone())
        .identity("waits")
        .cool_down(CoolDown::For(LEASE / 2))
        .sentinel(sentinel.address());
    let waits = waits.start().unwrap();
    let mut status = waits.watch();
    while status.next().await.is_some_and(|status| status.cool_down.is_none()) {}
    assert_eq!(lock.holder("my_app").as_deref(), Some("waits"));

    // Another election of this process is registered, and this one is not before it.
    let leads_at_once = new_election("another", lock.clone()).sentinel(sentinel.address());
    let leads_at_once = leads_at_once.start().unwrap();
    let _leadership = leads(&leads_at_once).await;
    let began = sentinel.accept().await.message().await;
    assert!(matches!(&began, SentinelMessage::Began { election, .. } if **election == *"another"));
}

#[tokio::test]
async fn a_registered_term_is_released_by_its_sentinel_alone() {
    let (sentinel, lock) = (FakeSentinel::start(), MemoryLock::with_ttl(LEASE));
    let election = sentinel.candidate(&lock, "first");
    let leadership = leads(&election).await;
    let began = sentinel.accept().await.message().await;
    let term = began.term().unwrap();
    let limit = TIMEOUT;

    let of_another = incumbent::protocol::RegisteredTerm {
        token: incumbent::Token(term.token.0 + 1),
        create: term.create + 1,
        ..term
    };
    let outcome = release_crashed(&lock, "my_app", of_another, limit).await;
    assert_eq!(outcome, CrashOutcome::NotHeld);
    assert_eq!(lock.holder("my_app").as_deref(), Some("first"));

    assert_eq!(release_crashed(&lock, "my_app", term, limit).await, CrashOutcome::Released);
    let left = lock.read("my_app", limit).await.unwrap();
    let Reading::Found(record) = left else { panic!("{left:?}") };
    let released = Tombstone::Released {
        by: term.nonce,
        left: Duration::ZERO,
        cause: Some("crashed".into()),
        to: None,
        pause: None,
    };
    assert_eq!(record.content, Content::Vacant(released));
    leadership.ended().await; // this process is not dead, and sees that it was evicted
}
