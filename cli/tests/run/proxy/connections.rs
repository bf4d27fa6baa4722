//! What becomes of single connections.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use incumbent_test_support::{Port, eventually};
use rustix::process::Signal;

use super::{HOLD, Proxy, connected, lead};
use crate::env::{Candidate, STEADY, TestEnv, incumbent};

fn accept(listener: &TcpListener) -> TcpStream {
    connected(listener.accept().map(|(stream, _)| stream)).expect("a connection")
}

/// Sends a byte to the other end, which gets it.
fn passes(from: &mut TcpStream, to: &mut TcpStream) {
    from.write_all(b"x").expect("written");
    let mut byte = [0];
    to.read_exact(&mut byte).expect("read");
    assert_eq!(&byte, b"x");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_waits_for_a_leader() {
    let env = TestEnv::calm().await;
    let proxy = Proxy::start(&env, &HOLD);
    proxy.ready().await;
    let mut client = proxy.connect().await;
    proxy.wait_for_metric("incumbent_proxy_held", 1.0).await;
    let (election, listener) = lead(&env).await;
    let mut leader = accept(&listener);
    passes(&mut client, &mut leader);
    passes(&mut leader, &mut client);
    assert_eq!(proxy.metric("incumbent_proxy_held"), Some(0.0));
    let bytes = |to: &str| {
        let labels = format!("{{election=\"my_app\",direction=\"{to}_leader\"}}");
        proxy.metric(&format!("incumbent_proxy_bytes_total{labels}"))
    };
    assert_eq!((bytes("to"), bytes("from")), (Some(1.0), Some(1.0)));
    election.stop().await;
    // It ends with the term.
    assert_eq!(
        client.read_exact(&mut [0]).map_err(|error| error.kind()),
        Err(ErrorKind::ConnectionReset)
    );
    proxy.wait_for_metric("incumbent_proxy_cut_total", 1.0).await;
    let _election = super::lead_at(&env, &listener.local_addr().expect("bound").to_string()).await;
    proxy.wait_for_metric("incumbent_proxy_gap_seconds_count", 1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_is_closed_at_the_end_of_its_hold() {
    let env = TestEnv::calm().await;
    let proxy = Proxy::start(&env, &["--hold", "1s"]);
    proxy.ready().await;
    assert_eq!(proxy.connect().await.read(&mut [0]).expect("its end"), 0);
    // A leader that does not listen.
    let port = Port::pick();
    let address = format!("127.0.0.1:{}", port.number());
    let _election = super::lead_at(&env, &address).await;
    proxy.wait_for_metric("incumbent_proxy_has_leader", 1.0).await;
    assert_eq!(proxy.connect().await.read(&mut [0]).expect("its end"), 0);
    proxy
        .wait_for_metric("incumbent_proxy_refused_total{election=\"my_app\",reason=\"hold", 2.0)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_that_does_not_listen_yet_is_tried_again() {
    let env = TestEnv::calm().await;
    let proxy = Proxy::start(&env, &HOLD);
    let port = Port::pick(); // it is of this test until the leader listens
    let address = format!("127.0.0.1:{}", port.number());
    let _election = super::lead_at(&env, &address).await;
    proxy.wait_for_metric("incumbent_proxy_has_leader", 1.0).await;
    let mut client = proxy.connect().await;
    proxy.wait_for_metric("incumbent_proxy_held", 1.0).await;
    let listener = TcpListener::bind(&address).expect("the port");
    passes(&mut client, &mut accept(&listener));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_direction_ends_by_itself() {
    let env = TestEnv::calm().await;
    let (_election, listener) = lead(&env).await;
    let proxy = Proxy::start(&env, &HOLD);
    for client_is_first in [true, false] {
        let (mut one, mut other) = (proxy.connect().await, accept(&listener));
        if !client_is_first {
            std::mem::swap(&mut one, &mut other);
        }
        one.write_all(b"request").expect("written");
        one.shutdown(Shutdown::Write).expect("half-closed");
        let mut text = String::new();
        other.read_to_string(&mut text).expect("all of it");
        assert_eq!(text, "request");
        other.write_all(b"response").expect("written");
        drop(other);
        let mut text = String::new();
        one.read_to_string(&mut text).expect("all of it");
        assert_eq!(text, "response");
    }
    proxy.wait_for_metric("incumbent_proxy_connections{", 0.0).await;
    assert_eq!(proxy.metric("incumbent_proxy_cut_total"), Some(0.0));
}

/// Neither the leader nor the lock says anything: it is the clock of the proxy that counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_to_a_leader_that_is_not_fresh_is_cut() {
    let env = TestEnv::with_ttl(STEADY).await;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let campaign = Candidate::start(env.campaign("my_app", &["--advertise", &address]));
    let proxy = Proxy::start(&env, &HOLD);
    let mut client = proxy.connect().await;
    let mut leader = accept(&listener);
    passes(&mut client, &mut leader);
    campaign.signal(Signal::STOP);
    env.server.pause();
    for end in [&mut client, &mut leader] {
        let ended = end.read_exact(&mut [0]).map_err(|error| error.kind());
        assert_eq!(ended, Err(ErrorKind::ConnectionReset));
    }
    // Others wait for what comes next.
    let mut client = proxy.connect().await;
    proxy.wait_for_metric("incumbent_proxy_held", 1.0).await;
    env.server.resume();
    campaign.signal(Signal::CONT);
    let mut leader = accept(&listener);
    passes(&mut client, &mut leader);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_read_is_not_buffered_without_end() {
    const MORE_THAN_BUFFERS: usize = 64 * 1024 * 1024;
    let env = TestEnv::calm().await;
    let (_election, listener) = lead(&env).await;
    let proxy = Proxy::start(&env, &HOLD);
    let client = proxy.connect().await;
    let leader = accept(&listener);
    for (mut from, mut to) in [(&client, &leader), (&leader, &client)] {
        from.set_write_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        let (mut sent, block) = (0, [b'x'; 64 * 1024]);
        let full = loop {
            match from.write(&block) {
                Ok(written) => sent += written,
                Err(error) => break error,
            }
            assert!(sent < MORE_THAN_BUFFERS, "it takes everything");
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        let mut read = vec![0; sent];
        to.read_exact(&mut read).expect("all of it");
    }
    // The other direction continues meanwhile.
    let (mut client, mut leader) = (client, leader);
    passes(&mut client, &mut leader);
    passes(&mut leader, &mut client);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_too_many_is_closed() {
    let env = TestEnv::calm().await;
    let (_election, listener) = lead(&env).await;
    let proxy = Proxy::start(&env, &[&HOLD[..], &["--max-connections", "1"]].concat());
    let mut client = proxy.connect().await;
    let mut leader = accept(&listener);
    let ended = proxy.connect().await.read(&mut [0]).map_err(|error| error.kind());
    assert!(matches!(ended, Ok(0) | Err(ErrorKind::ConnectionReset)), "{ended:?}");
    proxy
        .wait_for_metric("incumbent_proxy_refused_total{election=\"my_app\",reason=\"limit", 1.0)
        .await;
    passes(&mut client, &mut leader);
    drop((client, leader));
    proxy.wait_for_metric("incumbent_proxy_connections{", 0.0).await;
    passes(&mut proxy.connect().await, &mut accept(&listener));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_connections_may_end_by_themselves_at_a_stop() {
    let env = TestEnv::calm().await;
    let (_election, listener) = lead(&env).await;
    let mut proxy = Proxy::start(&env, &[&HOLD[..], &["--drain", "1h"]].concat());
    let mut client = proxy.connect().await;
    let mut leader = accept(&listener);
    passes(&mut client, &mut leader);
    proxy.program.signal(Signal::TERM);
    let address = proxy.address.clone();
    eventually("it listens no more", async || TcpStream::connect(&address).err()).await;
    drop(listener); // with the connections that came before
    passes(&mut client, &mut leader);
    drop(client);
    assert_eq!(leader.read(&mut [0]).expect("its end"), 0);
    drop(leader);
    assert_eq!(proxy.program.exit().await.signal(), Some(15));
}

/// A response that was cut off must not look whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_connections_are_reset_when_the_proxy_ends() {
    let env = TestEnv::calm().await;
    let (_election, listener) = lead(&env).await;
    for signal in [Signal::TERM, Signal::KILL] {
        let mut proxy = Proxy::start(&env, &[&HOLD[..], &["--drain", "0s"]].concat());
        let mut client = proxy.connect().await;
        let mut leader = accept(&listener);
        passes(&mut leader, &mut client);
        proxy.program.signal(signal);
        for end in [&mut client, &mut leader] {
            let ended = end.read_exact(&mut [0]).map_err(|error| error.kind());
            assert_eq!(ended, Err(ErrorKind::ConnectionReset));
        }
        assert_eq!(proxy.program.exit().await.signal(), Some(signal.as_raw()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_connect_at_a_unix_socket() {
    let env = TestEnv::calm().await;
    let (_election, listener) = lead(&env).await;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("socket");
    let mut command = incumbent();
    let listen = format!("unix:{}", path.display());
    command.args(["proxy", "my_app", "--listen", &listen, "--server", &env.server.url()]);
    command.args(HOLD);
    let mut proxy = Candidate::start(command);
    let mut client = eventually("it listens", async || UnixStream::connect(&path).ok()).await;
    let served = thread::spawn(move || {
        let mut leader = accept(&listener);
        let mut text = String::new();
        leader.read_to_string(&mut text).expect("all of it");
        leader.write_all(text.as_bytes()).expect("written");
    });
    client.write_all(b"request").expect("written");
    client.shutdown(Shutdown::Write).expect("half-closed");
    let mut text = String::new();
    client.read_to_string(&mut text).expect("all of it");
    assert_eq!(text, "request");
    served.join().expect("no panic");
    proxy.signal(Signal::TERM);
    assert_eq!(proxy.exit().await.signal(), Some(15));
    assert!(!path.exists(), "the socket is removed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxy_does_not_connect_to_itself() {
    let env = TestEnv::calm().await;
    let proxy = Proxy::start(&env, &[]);
    let _election = super::lead_at(&env, &proxy.address).await;
    proxy.wait_for_metric("incumbent_proxy_has_leader", 1.0).await;
    let is_closed = async || {
        let ended = proxy.connect().await.read(&mut [0]).map_err(|error| error.kind());
        assert!(matches!(ended, Ok(0) | Err(ErrorKind::ConnectionReset)), "{ended:?}");
    };
    is_closed().await;
    let mut before = None;
    let total = eventually("the proxy knows itself", async || {
        let now = proxy.metric("incumbent_proxy_connections_total");
        let same = now.filter(|_| std::mem::replace(&mut before, now) == now);
        same.filter(|_| proxy.metric("incumbent_proxy_connections{") == Some(0.0))
    })
    .await;
    is_closed().await;
    proxy.wait_for_metric("incumbent_proxy_connections_total", total + 1.0).await;
}

#[tokio::test]
async fn it_may_open_the_files_that_its_connections_need() {
    let env = TestEnv::start().await;
    let proxy = limited(&env, "ulimit -S -n 100");
    let limits = format!("/proc/{}/limits", proxy.program.pid().as_raw_pid());
    eventually("the limit is raised", async || {
        let limits = std::fs::read_to_string(&limits).ok()?;
        let files = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        (files.split_whitespace().next() == Some("264")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_accepts_no_more_connections_than_it_may_open_files_for() {
    let env = TestEnv::start().await;
    let mut proxy = limited(&env, "ulimit -n 100");
    let mut clients = Vec::new();
    for _ in 0..19 {
        clients.push(proxy.connect().await);
    }
    proxy
        .wait_for_metric("incumbent_proxy_refused_total{election=\"my_app\",reason=\"limit", 1.0)
        .await;
    proxy.wait_for_metric("incumbent_proxy_held", 18.0).await;
    proxy.program.signal(Signal::KILL);
    let lines = proxy.program.stderr();
    let line = "need 264 open files, and 100 are allowed: one more than 18 is closed";
    assert!(lines.contains(line), "{lines}");
}

/// A proxy that may open fewer files than its connections need.
fn limited(env: &TestEnv, limit: &str) -> Proxy {
    let mut command = Command::new("sh");
    let script = format!("{limit}; exec \"$@\"");
    command.args(["-c", &script, "sh"]).arg(incumbent().get_program());
    let flags = [&HOLD[..], &["--max-connections", "100"]].concat();
    Proxy::of_command(command, &["--server", &env.server.url()], &flags)
}
