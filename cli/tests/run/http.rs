//! `--http`: who leads, how it goes, and metrics.

use std::io::{Read, Write};
use std::net::TcpStream;

use incumbent_test_support::{Port, eventually};
use rustix::process::Signal;
use serde_json::Value;

use crate::scene::{Campaigner, Scene, incumbent};

const SERVE: &str = "echo up; exec sleep 1000";

/// The status and the body of an answer; none where nobody listens.
fn get(address: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    // Version 1.0 forbids the server to send the body in chunks.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Some((status.expect("a status"), body.to_owned()))
}

fn leader(address: &str) -> Option<Value> {
    let (status, body) = get(address, "/leader")?;
    assert_eq!(status, 200);
    Some(serde_json::from_str(&body).expect("JSON"))
}

/// A port that is free, and its address.
fn free() -> (String, String) {
    let port = Port::pick().number().to_string();
    let address = format!("127.0.0.1:{port}");
    (port, address)
}

#[tokio::test]
async fn it_tells_who_leads_how_it_goes_and_metrics() {
    let scene = Scene::start().await;
    let ((port, first), (other_port, second)) = (free(), free());
    let flags = ["--identity", "c1.example.net", "--http", &port];
    let mut run = scene.run("my_app", &flags, &format!("echo $INCUMBENT_TOKEN; {SERVE}"));
    let token: u64 = run.line().await.parse().expect("a token");
    let told = leader(&first).expect("it listens");
    assert_eq!((&told["leader"], &told["token"]), (&"c1.example.net".into(), &token.into()));
    assert_eq!(told["mine"], true);
    assert!(told["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{told}");
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
    let mut candidate = Campaigner::start(scene.campaign("my_app", &flags));
    assert_eq!(candidate.line().await, "leader: c1.example.net");
    let told = leader(&second).expect("it listens");
    assert_eq!((&told["leader"], &told["mine"]), (&"c1.example.net".into(), &false.into()));
    let healthy = (200, "ok: c1.example.net leads\n".to_owned());
    assert_eq!(get(&second, "/healthz"), Some(healthy));
    run.signal(Signal::TERM);
    assert_eq!(run.exit_code().await, Some(128 + 15));
    assert_eq!(get(&first, "/leader"), None, "it ends with the program");
    eventually("the other one leads", async || {
        leader(&second).filter(|told| told["mine"] == true && told["leader"] == "c2.example.net")
    })
    .await;
}

/// A client that knows any one of them reaches the leader, also after a takeover.
#[tokio::test]
async fn clients_are_sent_on_to_where_the_leader_can_be_reached() {
    let scene = Scene::start().await;
    let ((first_port, first), (second_port, second)) = (free(), free());
    let flags = |port: &str, address: &str| {
        ["--http", port, "--advertise", address, "--metadata", "zone=a=b"].map(str::to_owned)
    };
    let location = |address: &str, path: &str| {
        let mut stream = TcpStream::connect(address).ok()?;
        write!(stream, "PUT {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").expect("it listens");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        answer.starts_with("HTTP/1.0 307 ").then_some(())?;
        let line = answer.lines().find_map(|line| line.strip_prefix("location: "));
        line.map(str::to_owned)
    };
    let first_flags = flags(&first_port, "10.0.0.1:80");
    let mut run = scene.run("my_app", &first_flags.each_ref().map(String::as_str), SERVE);
    run.says("up").await;
    let second_flags = flags(&second_port, "https://c2.example.net/base/");
    let second_flags = second_flags.each_ref().map(String::as_str);
    let mut candidate = Campaigner::start(scene.campaign("my_app", &second_flags));
    candidate.line().await;
    for address in [&first, &second] {
        let sent_to = location(address, "/redirect/jobs/7?all=1");
        assert_eq!(sent_to.as_deref(), Some("http://10.0.0.1:80/jobs/7?all=1"));
        let told = leader(address).expect("it listens");
        assert_eq!((&told["address"], &told["fresh"]), (&"10.0.0.1:80".into(), &true.into()));
        assert_eq!(told["metadata"]["zone"], "a=b");
    }
    run.signal(Signal::TERM);
    run.exit_code().await;
    eventually("clients are sent to the next leader", async || {
        location(&second, "/redirect/jobs").filter(|to| to == "https://c2.example.net/base/jobs")
    })
    .await;

    let ((port, address), flags) = (free(), "--http");
    let mut silent = Campaigner::start(scene.campaign("other", &[flags, &port]));
    silent.line().await;
    let (status, body) = get(&address, "/redirect/jobs").expect("it listens");
    assert_eq!((status, &*body), (503, "the leader advertises no address to redirect to\n"));
}

/// A probe of liveness must not have every process started anew because a server is away.
#[tokio::test]
async fn a_lock_out_of_reach_is_a_reason_to_be_unready_and_none_to_be_restarted() {
    let scene = Scene::start().await;
    let ((first_port, first), (second_port, second)) = (free(), free());
    let mut run = scene.run("my_app", &["--http", &first_port], SERVE);
    run.says("up").await;
    let mut candidate = Campaigner::start(scene.campaign("my_app", &["--http", &second_port]));
    candidate.line().await;
    let is = async |path: &str, wanted: u16| {
        for address in [&first, &second] {
            let (status, body) = get(address, path)?;
            assert_eq!(body.lines().count(), 1, "{body}");
            if path == "/livez" {
                assert!(status == 200 && body.starts_with("ok: "), "{status}: {body}");
            }
            if status != wanted {
                return None;
            }
        }
        Some(())
    };
    for path in ["/livez", "/readyz"] {
        eventually("all is well", async || is(path, 200).await).await;
    }
    scene.server.pause();
    eventually("neither is ready", async || {
        is("/livez", 200).await?;
        is("/readyz", 503).await
    })
    .await;
    is("/livez", 200).await.expect("they live on");
    scene.server.resume();
    eventually("both are ready again", async || is("/readyz", 200).await).await;
}

/// Nor because it was away from the beginning.
#[tokio::test]
async fn whoever_still_waits_for_its_server_is_alive_and_not_ready() {
    let (port, address) = free();
    let mut command = incumbent();
    command.args(["campaign", "my_app", "-s", "nats://127.0.0.1:1", "--http", &port]);
    let mut candidate = Campaigner::start(command);
    let alive = eventually("it listens", async || get(&address, "/livez")).await;
    assert_eq!(alive, (200, "ok: connecting to the lock\n".to_owned()));
    assert_eq!(get(&address, "/readyz"), Some((503, "connecting to the lock\n".to_owned())));
    assert_eq!(get(&address, "/healthz").map(|(status, _)| status), Some(503));
    assert_eq!(get(&address, "/redirect/x").map(|(status, _)| status), Some(503));
    let told = leader(&address).expect("it listens");
    assert_eq!((&told["leader"], &told["mine"]), (&Value::Null, &false.into()));
    candidate.signal(Signal::TERM);
    candidate.exit().await;
}

/// How many files a process has open.
fn open_files(of: &Campaigner) -> usize {
    let files = format!("/proc/{}/fd", of.pid().as_raw_nonzero());
    std::fs::read_dir(files).expect("it runs").count()
}

/// Connections that are held open, whether nothing or half a head was sent, keep no probe from its answer.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_hold_their_connections_keep_nobody_from_an_answer() {
    let scene = Scene::start().await;
    let (port, address) = free();
    let mut run = scene.run("my_app", &["--http", &port], SERVE);
    run.says("up").await;
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
            eventually("few connections are left", async || {
                (open_files(&run) < before + 80).then_some(())
            })
            .await;
        }
    }
    // The last one is given up, too, though it was sent no answer.
    let mut last = held.pop().expect("a connection");
    last.set_read_timeout(Some(crate::scene::PATIENCE)).expect("a time");
    assert_eq!(last.read_to_end(&mut Vec::new()).ok(), Some(0), "closed without an answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_too_large_is_refused_and_costs_nothing() {
    let scene = Scene::start().await;
    let (port, address) = free();
    let mut run = scene.run("my_app", &["--http", &port], SERVE);
    run.says("up").await;
    let send = |head: &str, filling: usize| {
        let mut stream = TcpStream::connect(&address).expect("it listens");
        stream.set_read_timeout(Some(crate::scene::PATIENCE)).expect("a time");
        stream.set_write_timeout(Some(crate::scene::PATIENCE)).expect("a time");
        let _ = stream.write_all(head.as_bytes());
        let chunk = [b'x'; 4096];
        let sent = (0..filling / chunk.len()).take_while(|_| stream.write_all(&chunk).is_ok());
        let sent = sent.count() * chunk.len();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        (sent, String::from_utf8_lossy(&answer).into_owned())
    };
    const MIB: usize = 1 << 20;
    let (sent, answer) = send("GET /livez HTTP/1.1\r\nHost: a\r\nX-Long: ", 256 * MIB);
    assert!(sent < 64 * MIB, "{sent} bytes of a head were taken");
    assert!(!answer.contains(" 200 "), "{answer}");
    let head =
        format!("POST /redirect/x HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 512 * MIB);
    let (sent, answer) = send(&head, 512 * MIB);
    assert!(sent < 64 * MIB, "{sent} bytes of a body were taken: {answer}");
    let (status, body) = get(&address, "/livez").expect("it listens");
    assert_eq!(status, 200, "{body}");
}

/// For the leader as for those who stand by.
#[tokio::test]
async fn a_lock_out_of_reach_for_longer_than_a_lease_is_unhealthy() {
    let scene = Scene::start().await;
    let ((first_port, first), (second_port, second)) = (free(), free());
    let mut run = scene.run("my_app", &["--http", &first_port], SERVE);
    run.says("up").await;
    let mut candidate = Campaigner::start(scene.campaign("my_app", &["--http", &second_port]));
    candidate.line().await;
    let is = async |wanted: u16| {
        for address in [&first, &second] {
            let (status, body) = get(address, "/healthz")?;
            assert_eq!(body.lines().count(), 1, "{body}");
            if status != wanted {
                return None;
            }
            let told = match status {
                200 => body.starts_with("ok: "),
                _ => body.starts_with("the lock has been unreachable for "),
            };
            assert!(told, "{status}: {body}");
        }
        Some(())
    };
    eventually("all is well", async || is(200).await).await;
    scene.server.pause();
    eventually("both say what is wrong", async || is(503).await).await;
    scene.server.resume();
    eventually("all is well again", async || is(200).await).await;
}

#[tokio::test]
async fn only_an_address_in_full_is_for_others() {
    let scene = Scene::start().await;
    let (port, address) = free();
    let mut run = scene.run("my_app", &["--http", &port], SERVE);
    run.says("up").await;
    assert!(leader(&address).is_some());
    assert_eq!(leader(&format!("127.0.0.2:{port}")), None);
    let (port, _) = free();
    let everywhere = format!("0.0.0.0:{port}");
    let mut open = Campaigner::start(scene.campaign("other", &["--http", &everywhere]));
    open.line().await;
    assert!(leader(&format!("127.0.0.2:{port}")).is_some());
}

/// Before anything else: there is no server to reach.
#[test]
fn an_address_that_cannot_be_used_is_one_clear_line() {
    let (port, address) = free();
    let _taken = std::net::TcpListener::bind(&address).expect("a free port");
    let in_use = format!("incumbent: cannot serve HTTP at {address}: Address already in use");
    for command in [&["campaign", "my_app"][..], &["run", "my_app"]] {
        for (http, code, told) in [
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
            assert!(line.starts_with(told) && line.lines().count() == 1, "{line}");
            assert_eq!(output.status.code(), Some(code), "{line}");
        }
    }
}
