//! `--http`: leader, health, redirects and metrics.

use std::io::{Read, Write};
use std::net::TcpStream;

use incumbent_test_support::{Port, eventually};
use rustix::process::Signal;
use serde_json::Value;

use crate::env::{Candidate, TIMEOUT, TestEnv, incumbent};

const SERVE: &str = "echo up; exec sleep 1000";

/// The status and the body of the response to a GET. `None` if no process listens.
pub fn get(address: &str, path: &str) -> Option<(u16, String)> {
    request(address, "GET", path)
}

/// The status and the body of the response to a request. `None` if no process listens.
fn request(address: &str, method: &str, path: &str) -> Option<(u16, String)> {
    let response = response(address, method, path)?;
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Some((status.expect("a status"), body.to_owned()))
}

/// Where a request is redirected to. `None` if it is not.
pub fn location(address: &str, path: &str) -> Option<String> {
    let response = response(address, "PUT", path)?;
    response.starts_with("HTTP/1.0 307 ").then_some(())?;
    let line = response.lines().find_map(|line| line.strip_prefix("location: "));
    line.map(str::to_owned)
}

fn response(address: &str, method: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    // Version 1.0 forbids the server to send the body in chunks.
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").expect("it listens");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("text");
    Some(response)
}

fn get_leader(address: &str) -> Option<Value> {
    let (status, body) = get(address, "/leader")?;
    assert_eq!(status, 200);
    Some(serde_json::from_str(&body).expect("JSON"))
}

/// A free port, and its address.
pub fn free_port() -> (String, String) {
    let port = Port::pick();
    let number = port.number().to_string();
    std::mem::forget(port); // no other test may pick it before the program listens
    let address = format!("127.0.0.1:{number}");
    (number, address)
}

/// Prints its token and stays.
pub const SERVE_TOKEN: &str = "echo $INCUMBENT_TOKEN; exec sleep 1000";

/// The leader `c1` and its standby `c2`, each with its address for HTTP.
pub struct Pair {
    pub run: Candidate,
    pub token: String,
    pub first: String,
    pub standby: Candidate,
    pub second: String,
}

impl Pair {
    /// `more`: flags of the standby.
    pub async fn start(env: &TestEnv, more: &[&str]) -> Self {
        let ((first_port, first), (second_port, second)) = (free_port(), free_port());
        let flags = ["--identity", "c1", "--http", &first_port];
        let mut run = env.run("my_app", &flags, SERVE_TOKEN);
        let token = run.line().await;
        let flags = [&["--identity", "c2", "--http", &second_port], more].concat();
        let mut standby = Candidate::start(env.campaign("my_app", &flags));
        assert_eq!(standby.line().await, "leader: c1");
        Self { run, token, first, standby, second }
    }
}

#[tokio::test]
async fn http_serves_leader_health_and_metrics() {
    let env = TestEnv::calm().await;
    let ((port, first), (other_port, second)) = (free_port(), free_port());
    let flags = ["--identity", "c1.example.net", "--http", &port];
    let mut run = env.run("my_app", &flags, &format!("echo $INCUMBENT_TOKEN; {SERVE}"));
    let token: u64 = run.line().await.parse().expect("a token");
    let response = get_leader(&first).expect("it listens");
    assert_eq!(
        (&response["leader"], &response["token"]),
        (&"c1.example.net".into(), &token.into())
    );
    assert_eq!(response["mine"], true);
    assert!(response["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{response}");
    let healthy = (200, format!("ok: leading with token {token}\n"));
    assert_eq!(get(&first, "/healthz"), Some(healthy));
    let labels = "{election=\"my_app\",identity=\"c1.example.net\"}";
    let metrics = eventually("a renewal is counted", async || {
        let (_, metrics) = get(&first, "/metrics")?;
        metrics.contains("incumbent_renewal_seconds_bucket").then_some(metrics)
    });
    let metrics = metrics.await;
    assert!(metrics.contains(&format!("incumbent_leader{labels} 1\n")), "{metrics}");
    assert!(metrics.contains(&format!("incumbent_terms_total{labels} 1\n")), "{metrics}");
    assert_eq!(get(&first, "/").map(|(status, _)| status), Some(404));

    let flags = ["--identity", "c2.example.net", "--http", &other_port];
    let mut candidate = Candidate::start(env.campaign("my_app", &flags));
    assert_eq!(candidate.line().await, "leader: c1.example.net");
    let response = get_leader(&second).expect("it listens");
    assert_eq!((&response["leader"], &response["mine"]), (&"c1.example.net".into(), &false.into()));
    let healthy = (200, "ok: c1.example.net leads\n".to_owned());
    assert_eq!(get(&second, "/healthz"), Some(healthy));
    run.signal(Signal::TERM);
    assert_eq!(run.exit_code().await, Some(128 + 15));
    assert_eq!(get(&first, "/leader"), None, "the server ends with the program");
    eventually("the other candidate leads", async || {
        get_leader(&second)
            .filter(|response| response["mine"] == true && response["leader"] == "c2.example.net")
    })
    .await;
}

/// A balancer that asks each candidate sends requests to the leader, or to the standbys.
#[tokio::test]
async fn leading_and_standby_are_answered_by_one_each() {
    let env = TestEnv::calm().await;
    let ((port, first), (other_port, second)) = (free_port(), free_port());
    let flags = ["--identity", "c1.example.net", "--http", &port];
    let mut run = env.run("my_app", &flags, SERVE);
    run.wait_for_line("up").await;
    let flags = ["--identity", "c2.example.net", "--http", &other_port, "--ready-when-leading"];
    let mut candidate = Candidate::start(env.campaign("my_app", &flags));
    assert_eq!(candidate.line().await, "leader: c1.example.net");

    let (_, leads) =
        get(&first, "/leading").filter(|(status, _)| *status == 200).expect("it leads");
    assert!(leads.starts_with("ok: leading with token "), "{leads}");
    assert_eq!(get(&first, "/standby"), Some((503, leads.replacen("ok: ", "", 1))));
    let stands_by = "c1.example.net leads\n".to_owned();
    assert_eq!(get(&second, "/leading"), Some((503, stands_by.clone())));
    assert_eq!(get(&second, "/readyz"), Some((503, stands_by.clone())));
    assert_eq!(get(&second, "/standby"), Some((200, format!("ok: {stands_by}"))));
    for (method, has_body) in [("HEAD", false), ("OPTIONS", true)] {
        for (address, expected) in [(&first, 200), (&second, 503)] {
            let (status, body) = request(address, method, "/leading").expect("it listens");
            assert_eq!((status, !body.is_empty()), (expected, has_body), "{method}");
        }
    }

    run.signal(Signal::TERM);
    eventually("the other one leads", async || {
        get(&second, "/leading").filter(|(status, _)| *status == 200)
    })
    .await;
    assert_eq!(get(&second, "/standby").map(|(status, _)| status), Some(503));
    assert_eq!(get(&second, "/readyz").map(|(status, _)| status), Some(200));
    assert_eq!(get(&first, "/leading").map_or(503, |(status, _)| status), 503, "one leads");
}

/// Every candidate redirects its clients to the leader, also after a takeover.
#[tokio::test]
async fn clients_are_redirected_to_the_leader() {
    let env = TestEnv::calm().await;
    let ((first_port, first), (second_port, second)) = (free_port(), free_port());
    let flags = |port: &str, address: &str| {
        ["--http", port, "--advertise", address, "--metadata", "zone=a=b"].map(str::to_owned)
    };
    let first_flags = flags(&first_port, "10.0.0.1:80");
    let mut run = env.run("my_app", &first_flags.each_ref().map(String::as_str), SERVE);
    run.wait_for_line("up").await;
    let second_flags = flags(&second_port, "https://c2.example.net/base/");
    let second_flags = second_flags.each_ref().map(String::as_str);
    let mut candidate = Candidate::start(env.campaign("my_app", &second_flags));
    candidate.line().await;
    for address in [&first, &second] {
        let target = location(address, "/redirect/jobs/7?all=1");
        assert_eq!(target.as_deref(), Some("http://10.0.0.1:80/jobs/7?all=1"));
        let response = get_leader(address).expect("it listens");
        assert_eq!(
            (&response["address"], &response["fresh"]),
            (&"10.0.0.1:80".into(), &true.into())
        );
        assert_eq!(response["metadata"]["zone"], "a=b");
    }
    run.signal(Signal::TERM);
    run.exit_code().await;
    eventually("clients are redirected to the next leader", async || {
        location(&second, "/redirect/jobs").filter(|to| to == "https://c2.example.net/base/jobs")
    })
    .await;

    let ((port, address), flags) = (free_port(), "--http");
    let mut leader = Candidate::start(env.campaign("other", &[flags, &port]));
    while !leader.line().await.starts_with("won") {}
    let (status, body) = get(&address, "/redirect/jobs").expect("it listens");
    assert_eq!((status, &*body), (503, "the leader advertises no address to redirect to\n"));
}

/// A liveness probe must not restart every candidate because a server is unreachable.
#[tokio::test]
async fn candidate_with_unreachable_lock_is_live_but_not_ready() {
    let env = TestEnv::start().await;
    let ((first_port, first), (second_port, second)) = (free_port(), free_port());
    let mut run = env.run("my_app", &["--http", &first_port], SERVE);
    run.wait_for_line("up").await;
    let mut candidate = Candidate::start(env.campaign("my_app", &["--http", &second_port]));
    candidate.line().await;
    let all_return = async |path: &str, expected: u16| {
        for address in [&first, &second] {
            let (status, body) = get(address, path)?;
            assert_eq!(body.lines().count(), 1, "{body}");
            if path == "/livez" {
                assert!(status == 200 && body.starts_with("ok: "), "{status}: {body}");
            }
            if status != expected {
                return None;
            }
        }
        Some(())
    };
    for path in ["/livez", "/readyz", "/healthz"] {
        eventually("all are healthy", async || all_return(path, 200).await).await;
    }
    env.server.pause();
    eventually("no candidate is ready", async || {
        all_return("/livez", 200).await?;
        all_return("/readyz", 503).await
    })
    .await;
    // After a lease without the lock.
    eventually("both are unhealthy", async || all_return("/healthz", 503).await).await;
    let (_, why) = get(&second, "/healthz").expect("it listens");
    assert!(why.starts_with("the lock has been unreachable for "), "{why}");
    all_return("/livez", 200).await.expect("both stay live");
    env.server.resume();
    eventually("both are ready again", async || all_return("/readyz", 200).await).await;
}

/// The server was unreachable from the start.
#[tokio::test]
async fn connecting_candidate_is_live_but_not_ready() {
    let (port, address) = free_port();
    let mut command = incumbent();
    command.args(["campaign", "my_app", "-s", "nats://127.0.0.1:1", "--http", &port]);
    let mut candidate = Candidate::start(command);
    let alive = eventually("it listens", async || get(&address, "/livez")).await;
    assert_eq!(alive, (200, "ok: connecting to the lock\n".to_owned()));
    assert_eq!(get(&address, "/readyz"), Some((503, "connecting to the lock\n".to_owned())));
    assert_eq!(get(&address, "/healthz").map(|(status, _)| status), Some(503));
    assert_eq!(get(&address, "/redirect/x").map(|(status, _)| status), Some(503));
    let response = get_leader(&address).expect("it listens");
    assert_eq!((&response["leader"], &response["mine"]), (&Value::Null, &false.into()));
    candidate.signal(Signal::TERM);
    candidate.exit().await;
}

/// How many files a process has open.
pub fn open_files(of: &Candidate) -> usize {
    let files = format!("/proc/{}/fd", of.pid().as_raw_nonzero());
    std::fs::read_dir(files).expect("it runs").count()
}

/// Probes are answered while clients hold connections open, idle or with half a request.
#[tokio::test(flavor = "multi_thread")]
async fn held_connections_do_not_block_other_clients() {
    let env = TestEnv::calm().await;
    let (port, address) = free_port();
    let mut run = env.run("my_app", &["--http", &port], SERVE);
    run.wait_for_line("up").await;
    let before = open_files(&run);
    let mut held = Vec::new();
    for number in 0..1000 {
        let mut stream = TcpStream::connect(&address).expect("it listens");
        if number % 2 == 0 {
            let _ = write!(stream, "GET /livez HTTP/1.1\r\nHost: slow");
        }
        held.push(stream);
        if number % 100 == 99 {
            let (status, body) = get(&address, "/livez").expect("it listens");
            assert_eq!(status, 200, "{body}");
            eventually("most connections are closed", async || {
                (open_files(&run) < before + 80).then_some(())
            })
            .await;
        }
    }
    // The server closes the last connection too, without a response.
    let mut last = held.pop().expect("a connection");
    last.set_read_timeout(Some(TIMEOUT)).expect("a time");
    assert_eq!(last.read_to_end(&mut Vec::new()).ok(), Some(0), "closed without a response");
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_request_is_refused() {
    let env = TestEnv::calm().await;
    let (port, address) = free_port();
    let mut run = env.run("my_app", &["--http", &port], SERVE);
    run.wait_for_line("up").await;
    let send = |head: &str, filling: usize| {
        let mut stream = TcpStream::connect(&address).expect("it listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a time");
        stream.set_write_timeout(Some(TIMEOUT)).expect("a time");
        let _ = stream.write_all(head.as_bytes());
        let chunk = [b'x'; 4096];
        let sent = (0..filling / chunk.len()).take_while(|_| stream.write_all(&chunk).is_ok());
        let sent = sent.count() * chunk.len();
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        (sent, String::from_utf8_lossy(&response).into_owned())
    };
    const MIB: usize = 1 << 20;
    let (sent, response) = send("GET /livez HTTP/1.1\r\nHost: a\r\nX-Long: ", 256 * MIB);
    assert!(sent < 64 * MIB, "{sent} bytes of a head were taken");
    assert!(!response.contains(" 200 "), "{response}");
    let head =
        format!("POST /redirect/x HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 512 * MIB);
    let (sent, response) = send(&head, 512 * MIB);
    assert!(sent < 64 * MIB, "{sent} bytes of a body were taken: {response}");
    let (status, body) = get(&address, "/livez").expect("it listens");
    assert_eq!(status, 200, "{body}");
}

/// The address is checked before the program connects: there is no server here.
#[test]
fn unusable_http_address_is_reported_in_one_line() {
    let (port, address) = free_port();
    let _taken = std::net::TcpListener::bind(&address).expect("a free port");
    let in_use = format!("incumbent: cannot serve HTTP at {address}: Address already in use");
    for command in [&["campaign", "my_app"][..], &["run", "my_app"]] {
        for (http, code, expected) in [
            (":8080", 2, "incumbent: invalid --http \":8080\": use a port, as in 8080"),
            ("localhost", 2, "incumbent: invalid --http \"localhost\""),
            (&*port, 1, &*in_use),
        ] {
            let command = incumbent()
                .args(command)
                .args(["--http", http, "-s", "nats://127.0.0.1:1"])
                .args(if command[0] == "run" { &["--", "true"][..] } else { &[] })
                .output();
            let output = command.expect("it starts");
            let line = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(line.starts_with(expected) && line.lines().count() == 1, "{line}");
            assert_eq!(output.status.code(), Some(code), "{line}");
        }
    }
}
