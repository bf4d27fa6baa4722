//! `GET /leader?wait`: the answer comes when the leader changes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::JoinHandle;
use std::time::Duration;

use incumbent_test_support::eventually;
use rustix::process::Signal;
use serde_json::Value;

use crate::env::{Candidate, STEADY, TIMEOUT, TestEnv};
use crate::http::{Pair, SERVE_TOKEN, free_port, get, open_files};

/// Sends a request whose answer is read later.
fn ask(address: &str, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a time");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").expect("it listens");
    stream
}

/// Waits for the answer in a thread of its own.
fn answer(mut stream: TcpStream) -> JoinHandle<Value> {
    std::thread::spawn(move || {
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("text");
        let (_, body) = response.split_once("\r\n\r\n").expect("a head");
        serde_json::from_str(body).expect("JSON")
    })
}

/// The answer that the client got, or none so far.
async fn answered(waiting: JoinHandle<Value>) -> Value {
    eventually("an answer", async || waiting.is_finished().then_some(())).await;
    waiting.join().expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_comes_when_the_leader_changes() {
    let env = TestEnv::calm().await;
    let Pair { run, token, first, mut standby, second } = Pair::start(&env, &[]).await;

    // The client does not know this leader yet.
    for known in ["null", "0"] {
        let (status, body) = get(&second, &format!("/leader?wait={known}")).expect("it listens");
        let body: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!((status, body["token"].to_string()), (200, token.clone()), "{known}");
    }
    // A renewal is no change.
    let by_token = answer(ask(&second, &format!("/leader?wait={token}")));
    let by_change = answer(ask(&second, "/leader?wait"));
    let renewals = || {
        let (_, metrics) = get(&first, "/metrics").expect("it listens");
        let count = "incumbent_renewal_seconds_count";
        let line = metrics.lines().find(|line| line.starts_with(count))?;
        line.rsplit(' ').next()?.parse::<u64>().ok()
    };
    let before = eventually("the metric", async || renewals()).await;
    eventually("a renewal", async || renewals().filter(|now| *now > before)).await;
    assert!(!by_token.is_finished() && !by_change.is_finished());

    run.signal(Signal::TERM);
    assert_ne!(answered(by_token).await["token"].to_string(), token);
    assert_ne!(answered(by_change).await["token"].to_string(), token);
    standby.line().await;
    eventually("the other one leads", async || {
        let leader: Value = serde_json::from_str(&get(&second, "/leader")?.1).ok()?;
        (leader["mine"] == true && leader["leader"] == "c2").then_some(())
    })
    .await;
}

/// No message says that the leader is no longer fresh: the clock does, sooner than the wait ends.
#[tokio::test(flavor = "multi_thread")]
async fn wait_ends_when_the_leader_is_no_longer_fresh() {
    let env = TestEnv::with_ttl(STEADY).await;
    let pair = Pair::start(&env, &[]).await;
    let waiting = answer(ask(&pair.second, &format!("/leader?wait={}", pair.token)));
    env.server.pause();
    // The wait would end after a minute.
    let limit = Duration::from_secs(50);
    let answered = tokio::time::timeout(limit, answered(waiting)).await.expect("in time");
    assert_eq!((&answered["leader"], &answered["fresh"]), (&"c1".into(), &false.into()));
    env.server.resume();
}

/// A load balancer that waits at each candidate learns of the leader's start at once.
#[tokio::test(flavor = "multi_thread")]
async fn first_leader_ends_the_wait_of_an_unreached_lock() {
    let (port, address) = free_port();
    let env = TestEnv::start().await;
    env.server.stop().await;
    let mut candidate =
        Candidate::start(env.campaign("my_app", &["--http", &port, "--identity", "c1"]));
    eventually("it listens", async || get(&address, "/livez")).await;
    let waiting = answer(ask(&address, "/leader?wait"));
    let known_none = answer(ask(&address, "/leader?wait=null"));
    env.server.start_again().await;
    candidate.line().await;
    for answer in [answered(waiting).await, answered(known_none).await] {
        assert_eq!(answer["leader"], "c1", "{answer}");
    }
}

#[tokio::test]
async fn unknown_wait_is_refused() {
    let env = TestEnv::calm().await;
    let (port, address) = free_port();
    let mut run = env.run("my_app", &["--http", &port], SERVE_TOKEN);
    run.line().await;
    let (status, body) = get(&address, "/leader?wait=soon").expect("it listens");
    assert_eq!((status, body.lines().count()), (400, 1), "{body}");
    assert_eq!(get(&address, "/leader?other=1").map(|(status, _)| status), Some(200));
}

/// Clients that wait hold no more connections than others, and none once they are gone.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_clients_are_bounded_and_leave_nothing() {
    let env = TestEnv::calm().await;
    let (port, address) = free_port();
    let mut run = env.run("my_app", &["--http", &port], SERVE_TOKEN);
    run.line().await;
    let before = open_files(&run);
    let waiting: Vec<_> = (0..300).map(|_| ask(&address, "/leader?wait")).collect();
    eventually("most connections are closed", async || {
        (open_files(&run) < before + 80).then_some(())
    })
    .await;
    let (status, body) = get(&address, "/livez").expect("it listens");
    assert_eq!(status, 200, "{body}");
    drop(waiting);
    eventually("all connections are closed", async || {
        (open_files(&run) <= before + 2).then_some(())
    })
    .await;
}
