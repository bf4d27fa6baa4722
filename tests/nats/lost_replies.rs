//! Replies that are lost after the server has executed the request.

use std::time::Duration;

use incumbent::{Cause, new_election};
use incumbent_test_support::{Proxy, Request, eventually};

use crate::conformance::{leads, lost, sees, working};
use crate::env::{KEY, TestEnv, lock_at};

const TTL: Duration = Duration::from_secs(6);

fn is_create(request: &Request) -> bool {
    request.subject == KEY
        && request.header("KV-Operation").is_none()
        && request.header("Incumbent-Token").is_none()
}

fn is_renewal(request: &Request) -> bool {
    request.subject == KEY && request.header("Incumbent-Token").is_some()
}

fn is_read(request: &Request) -> bool {
    request.subject.starts_with("$JS.API.STREAM.MSG.GET.")
}

fn is_release(request: &Request) -> bool {
    request.subject == KEY && request.header("KV-Operation") == Some("DEL")
}

/// The write was applied, the reply was lost, the lock must not be thrown away
/// (cirello-io/dynamolock#280).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_that_landed_and_whose_reply_was_lost_wins() {
    let env = TestEnv::with_ttl(TTL).await;
    let proxy = Proxy::start(env.server.address());
    let mut trap = proxy.lose_reply(is_create);
    let election = env.start_at(&proxy.url(), "only").await;
    trap.sprung().await;
    let stands = env.message().await.expect("the entry stands");
    let leadership = leads(&election).await;
    assert!(
        leadership.token().0 > stands.sequence,
        "the term began over the candidate's own entry"
    );
    assert!(leadership.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stored_renewal_without_a_reply_keeps_the_term() {
    let env = TestEnv::with_ttl(TTL).await;
    let proxy = Proxy::start(env.server.address());
    let lock = lock_at(&proxy.url()).await;
    let election = working(new_election("my_app", lock).identity("only")).start().unwrap();
    let leadership = leads(&election).await;
    let mut changes = election.changes();
    let mut trap = proxy.lose_reply(is_renewal);
    trap.sprung().await;
    let landed = env.message().await.expect("the renewal stands");
    // The next renewal builds on the one whose reply was lost.
    let mut next = proxy.hold_request(is_renewal);
    loop {
        let request = next.sprung().await;
        next.release();
        let expected = request.header("Nats-Expected-Last-Subject-Sequence");
        if expected == Some(landed.sequence.to_string().as_str()) {
            break;
        }
        next = proxy.hold_request(is_renewal);
    }
    assert!(leadership.is_valid());
    assert_eq!(election.token(), Some(leadership.token()));
    drop(next);
    election.stop().await;
    let first_loss = lost(&mut changes);
    assert_eq!(first_loss.await, Cause::Stopped);
}

/// The server refuses the repeated release, and a read shows why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stored_release_without_a_reply_frees_the_entry() {
    let env = TestEnv::with_ttl(TTL).await;
    let proxy = Proxy::start(env.server.address());
    let first = env.start_at(&proxy.url(), "first").await;
    drop(leads(&first).await);
    let second = env.start("second").await;
    sees(&second, "first").await;
    let mut trap = proxy.lose_reply(is_release);
    let repeated = async {
        trap.sprung().await;
        let mut repeated = proxy.hold_request(is_release);
        repeated.sprung().await;
        let mut read = proxy.hold_request(is_read);
        repeated.release();
        read.sprung().await;
        read.release();
    };
    tokio::join!(repeated, first.stop());
    drop(leads(&second).await);
}

/// A silence is no refusal: a leader whose first read on a connection gets no reply finds, with the
/// next one, the renewal whose reply is lost thereafter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_read_after_a_reconnect_costs_no_term() {
    let env = TestEnv::with_ttl(TTL).await;
    let proxy = Proxy::start(env.server.address());
    let lock = lock_at(&proxy.url()).await;
    let election = working(new_election("my_app", lock).identity("only")).start().unwrap();
    let leadership = leads(&election).await;
    let mut lost_read = proxy.lose_reply(is_read);
    proxy.cut();
    lost_read.sprung().await;
    let mut lost_renewal = proxy.lose_reply(is_renewal);
    lost_renewal.sprung().await;
    let landed = env.message().await.expect("the renewal stands").sequence;
    eventually("a renewal over the one whose reply was lost", async || {
        let stands = env.message().await?.sequence;
        (stands > landed).then_some(())
    })
    .await;
    assert!(leadership.is_valid());
    assert_eq!(election.token(), Some(leadership.token()));
}
