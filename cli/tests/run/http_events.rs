//! `GET /events`: the leader, as server-sent events.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use incumbent_test_support::eventually;
use rustix::process::Signal;
use serde_json::Value;

use crate::env::{Candidate, STEADY, TIMEOUT, TestEnv};
use crate::http::{Pair, SERVE_TOKEN, free_port, get};
use crate::moves::moves_to;
use crate::observe::{observe, responds};

/// How many clients a process sends events.
const CLIENTS: usize = 32;

/// A client that is sent events.
pub struct Events(BufReader<TcpStream>);

/// An event: its id, and the fields of `/leader`.
pub struct LeaderEvent {
    pub id: String,
    pub fields: Value,
}

impl Events {
    /// `known`: the id of the last event that an earlier connection got.
    pub fn follow(address: &str, path: &str, known: Option<&str>) -> Self {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a time");
        let known = known.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n{known}\r\n").expect("it reads");
        let mut events = Self(BufReader::new(stream));
        let head = events.until_blank().expect("a head");
        assert!(head[0].contains(" 200 "), "{head:?}");
        assert!(head.iter().any(|line| line == "content-type: text/event-stream"), "{head:?}");
        events
    }

    /// The lines up to a blank one; `None` at the end.
    fn until_blank(&mut self) -> Option<Vec<String>> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).expect("a line in time") == 0 {
                return None;
            }
            match line.trim_end_matches(['\r', '\n']) {
                "" => return Some(lines),
                line => lines.push(line.to_owned()),
            }
        }
    }

    /// The next event; `None` at the end.
    pub fn next(&mut self) -> Option<LeaderEvent> {
        loop {
            let lines = self.until_blank()?;
            if lines == [":"] {
                continue; // keeps the connection alive
            }
            let [name, id, data] = &lines[..] else { panic!("{lines:?}") };
            assert_eq!(name, "event: leader");
            let id = id.strip_prefix("id: ").expect("an id").to_owned();
            let fields: Value = serde_json::from_str(&data["data: ".len()..]).expect("JSON");
            if fields["fresh"] != true {
                assert_eq!(id, "", "{fields}");
            } else if !id.is_empty() {
                assert_eq!(id, fields["token"].to_string());
            }
            return Some(LeaderEvent { id, fields });
        }
    }

    /// The first event from now on of which this holds. Each differs from the one before.
    pub fn until(&mut self, what: &str, holds: impl Fn(&LeaderEvent) -> bool) -> LeaderEvent {
        let mut last = Value::Null;
        loop {
            let event = self.next().unwrap_or_else(|| panic!("{what}: the end after {last}"));
            assert_ne!(event.fields, last, "an event without a change");
            if holds(&event) {
                return event;
            }
            last = event.fields;
        }
    }
}

fn leads(identity: &str, mine: bool) -> impl Fn(&LeaderEvent) -> bool {
    move |event| {
        event.fields["leader"] == identity && event.fields["mine"] == mine && !event.id.is_empty()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_tell_of_each_change_of_the_leader() {
    let env = TestEnv::calm().await;
    let more = ["--advertise", "10.0.0.2:80"];
    let Pair { token, first, standby, second, run: _run } = Pair::start(&env, &more).await;

    // The state is sent at once, and is that of /leader.
    let mut of_first = Events::follow(&first, "/events", None);
    let mut of_second = Events::follow(&second, "/events", None);
    for (events, address, mine) in [(&mut of_first, &first, true), (&mut of_second, &second, false)]
    {
        let event = events.next().expect("the state");
        assert!(leads("c1", mine)(&event), "{}", event.fields);
        assert_eq!(event.id, token);
        let (_, leader) = get(address, "/leader").expect("it listens");
        assert_eq!(event.fields, serde_json::from_str::<Value>(&leader).expect("JSON"));
    }

    // A move; then a stop of the new leader, which the next one sees, and which ends its events.
    let _moved = moves_to(&env, "c2").await;
    let won = of_second.until("the move", leads("c2", true));
    assert_ne!(won.id, token);
    assert_eq!(won.fields["address"], "10.0.0.2:80");
    let lost = of_first.until("the move", leads("c2", false));
    assert_eq!(lost.id, won.id);
    standby.signal(Signal::TERM);
    while of_second.next().is_some() {}
    let back = of_first.until("the stop", leads("c1", true));
    assert_ne!(back.id, lost.id);
}

/// Also a client that connects again and knows the token: the address may be another one.
#[tokio::test(flavor = "multi_thread")]
async fn each_connection_is_sent_the_state_first() {
    let env = TestEnv::calm().await;
    let (first_port, first) = free_port();
    let mut run = env.run("my_app", &["--identity", "c1", "--http", &first_port], SERVE_TOKEN);
    let token = run.line().await;
    for known in [&*token, "", "0", "x", "18446744073709551616"] {
        let event = Events::follow(&first, "/events", Some(known)).next().expect("the state");
        assert_eq!(event.id, token, "{known}");
    }
    // One that does not know the leader yet says so, and then who it is.
    env.server.pause();
    let (third_port, third) = free_port();
    let mut starts = Candidate::start(env.campaign("my_app", &["--http", &third_port]));
    eventually("it listens", async || get(&third, "/livez")).await;
    let mut of_third = Events::follow(&third, "/events", Some(&token));
    assert_eq!(of_third.next().expect("the state").fields["leader"], Value::Null);
    env.server.resume();
    of_third.until("the leader", |event| !event.id.is_empty());
    starts.signal(Signal::TERM);
    starts.exit().await;
}

/// No message says that the leader is no longer fresh: the clock does.
#[tokio::test(flavor = "multi_thread")]
async fn leader_that_cannot_renew_is_told_as_not_fresh() {
    let env = TestEnv::with_ttl(STEADY).await;
    let pair = Pair::start(&env, &[]).await;
    let (token, first, second) = (&*pair.token, &*pair.first, &*pair.second);
    let (mut of_first, mut of_second) =
        (Events::follow(first, "/events", None), Events::follow(second, "/events", None));
    for events in [&mut of_first, &mut of_second] {
        assert_eq!(events.next().expect("the state").id, token);
    }
    env.server.pause();
    let lapsed = of_second.until("the end of the lease", |event| event.fields["fresh"] == false);
    assert_eq!((&lapsed.fields["leader"], &*lapsed.id), (&"c1".into(), ""));
    of_first.until("the end of the term", |event| event.fields["mine"] == false);
    // A client that connects now is told so, although it knows the token.
    let mut again = Events::follow(second, "/events", Some(token));
    assert_eq!(again.next().expect("the state").fields["fresh"], false);
    env.server.resume();
    let next = of_second.until("the next term", |event| !event.id.is_empty());
    assert!(next.fields["fresh"] == true, "{}", next.fields);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_clients_are_refused_until_one_leaves() {
    let env = TestEnv::calm().await;
    let (port, address) = free_port();
    let mut run = env.run("my_app", &["--http", &port], SERVE_TOKEN);
    run.line().await;
    let mut clients: Vec<_> =
        (0..CLIENTS).map(|_| Events::follow(&address, "/events", None)).collect();
    let (status, line) = get(&address, "/events").expect("it listens");
    assert_eq!((status, line.lines().count()), (503, 1), "{line}");
    assert_eq!(get(&address, "/leading").map(|(status, _)| status), Some(200));
    for client in &mut clients {
        client.next().expect("the state");
    }
    clients.pop();
    eventually("one more is accepted", async || {
        let mut stream = TcpStream::connect(&address).ok()?;
        write!(stream, "GET /events HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).ok()?;
        line.contains(" 200 ").then_some(())
    })
    .await;
}

/// What it has not read yet is replaced, not kept.
#[tokio::test(flavor = "multi_thread")]
async fn slow_client_is_sent_the_newest_state() {
    const CHANGES: usize = 6000; // more than the buffers of a connection take
    let env = TestEnv::with_ttl(Duration::from_secs(60)).await; // in which no entry expires
    let (port, address) = free_port();
    let _observer = observe(&env, &["other"], &port);
    responds(&address).await;
    let mut slow = Events::follow(&address, "/other/events", None);
    let mut prompt = Events::follow(&address, "/other/events", None);
    let name = |number| format!("{number}-{}", "x".repeat(900));
    let reader = std::thread::spawn(move || {
        prompt.until("the last", |event| event.fields["leader"] == name(CHANGES));
    });
    for number in 1..=CHANGES {
        env.put("other", &name(number)).await;
    }
    eventually("a client that reads has the newest state", async || {
        reader.is_finished().then_some(())
    })
    .await;
    reader.join().expect("every event was right");
    let mut events = 1;
    while slow.next().expect("the newest state").fields["leader"] != name(CHANGES) {
        events += 1;
    }
    assert!(events < CHANGES, "{events} events were kept for a client that did not read");
}
