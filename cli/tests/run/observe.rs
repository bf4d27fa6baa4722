//! `incumbent observe`: the leader, as a process that is no candidate sees it.

use std::os::unix::process::ExitStatusExt;

use incumbent_test_support::eventually;
use rustix::process::Signal;
use serde_json::Value;

use crate::env::{Candidate, STEADY, TestEnv, incumbent};
use crate::http::{free_port, get, location};
use crate::http_events::Events;

const SERVE: &str = "echo up; exec sleep 1000";

pub fn observe(env: &TestEnv, names: &[&str], port: &str) -> Candidate {
    let mut command = incumbent();
    command.arg("observe").args(names).args(["--http", port, "--server", &env.server.url()]);
    Candidate::start(command)
}

/// Waits until the lock has responded to the observer.
pub async fn responds(address: &str) {
    eventually("the lock has responded", async || {
        get(address, "/readyz").filter(|(status, _)| *status == 200)
    })
    .await;
}

fn leader(address: &str, path: &str) -> Option<Value> {
    let (status, body) = get(address, path)?;
    (status == 200).then(|| serde_json::from_str(&body).expect("JSON"))
}

#[tokio::test]
async fn observer_names_the_leaders_of_many_elections() {
    let env = TestEnv::calm().await;
    let (port, address) = free_port();
    let flags = |identity, to| ["--identity", identity, "--advertise", to];
    let mut first = env.run("my_app", &flags("c1", "10.0.0.1:80"), SERVE);
    let mut other = env.run("other", &flags("c9", "10.0.0.9:80"), SERVE);
    first.wait_for_line("up").await;
    other.wait_for_line("up").await;
    let mut observer = observe(&env, &["my_app", "other", "absent"], &port);
    responds(&address).await;
    for (name, identity) in [("my_app", "c1"), ("other", "c9")] {
        let of = leader(&address, &format!("/{name}/leader")).expect("a leader");
        let fields = ["leader", "mine", "fresh"].map(|field| of[field].clone());
        assert_eq!(fields, [Value::from(identity), Value::from(false), Value::from(true)], "{of}");
    }
    assert_eq!(leader(&address, "/absent/leader").expect("it answers")["leader"], Value::Null);
    let to = location(&address, "/my_app/redirect/a%2Fb?c=1");
    assert_eq!(to.as_deref(), Some("http://10.0.0.1:80/a%2Fb?c=1"));
    assert_eq!(get(&address, "/absent/redirect/a").map(|(status, _)| status), Some(503));
    let (status, line) = get(&address, "/unknown/leader").expect("it listens");
    assert_eq!((status, line.lines().count()), (404, 1), "{line}");
    assert_eq!(get(&address, "/unknown/events").map(|(status, _)| status), Some(404));
    assert_eq!(get(&address, "/my_app/leading").map(|(status, _)| status), Some(404));

    // The next leader is named without a poll.
    let token = leader(&address, "/my_app/leader").expect("a leader")["token"].clone();
    let mut second = env.run("my_app", &flags("c2", "10.0.0.2:80"), SERVE);
    let waiting = {
        let (address, path) = (address.clone(), format!("/my_app/leader?wait={token}"));
        tokio::task::spawn_blocking(move || leader(&address, &path))
    };
    first.signal(Signal::TERM);
    second.wait_for_line("up").await;
    let changed = waiting.await.expect("an answer").expect("JSON");
    assert_ne!(changed["token"], token, "{changed}");
    eventually("the next leader is named", async || {
        location(&address, "/my_app/redirect/jobs").filter(|to| to == "http://10.0.0.2:80/jobs")
    })
    .await;
    observer.signal(Signal::TERM);
    assert_eq!(observer.exit().await.signal(), Some(15));
}

#[tokio::test(flavor = "multi_thread")]
async fn observer_sends_the_events_of_many_elections() {
    let env = TestEnv::with_elections(STEADY, &["my_app", "other"]).await;
    let (port, address) = free_port();
    let mut first = env.run("my_app", &["--identity", "c1", "--no-sentinel"], SERVE);
    let mut other = env.run("other", &["--identity", "c9"], SERVE);
    first.wait_for_line("up").await;
    other.wait_for_line("up").await;
    let mut observer = observe(&env, &["my_app", "other", "absent"], &port);
    responds(&address).await;
    let follow = |name: &str| Events::follow(&address, &format!("/{name}/events"), None);
    let (mut of_first, mut of_other, mut of_none) =
        (follow("my_app"), follow("other"), follow("absent"));
    for (events, identity) in [(&mut of_first, "c1"), (&mut of_other, "c9")] {
        let event = events.next().expect("the state");
        assert_eq!(event.fields["leader"], identity);
        assert_eq!((&event.fields["mine"], event.id.is_empty()), (&false.into(), false));
    }
    assert_eq!(of_none.next().expect("the state").fields["leader"], Value::Null);

    // A leader that is stopped is told as not fresh, or as none once its entry has expired.
    first.signal(Signal::STOP);
    of_first.until("the end of the lease", |event| event.fields["fresh"] != true);
    // What concerns one election is told to its clients alone.
    other.signal(Signal::TERM);
    of_other.until("the stop", |event| event.fields["leader"] == Value::Null);
    observer.signal(Signal::TERM);
    assert!(of_none.next().is_none(), "the events end with the program");
    observer.exit().await;
}

/// Of a lock that no longer responds nothing arrives, not even a failure, when the lease ends.
#[tokio::test(flavor = "multi_thread")]
async fn events_tell_of_the_end_of_a_lease_by_the_clock() {
    const TRIES: usize = 3; // on a machine that stands still the failure may be known by then
    let env = TestEnv::start().await;
    let (port, address) = free_port();
    let _run = env.run("my_app", &[], SERVE);
    let _observer = observe(&env, &["my_app"], &port);
    responds(&address).await;
    let mut events = Events::follow(&address, "/my_app/events", None);
    for _ in 0..TRIES {
        events.until("a term", |event| !event.id.is_empty());
        env.server.pause();
        let lapsed = events.until("the end of the lease", |event| event.fields["fresh"] == false);
        let is_by_the_clock = get(&address, "/readyz").is_some_and(|(status, _)| status == 200);
        env.server.resume();
        if is_by_the_clock {
            assert_eq!(lapsed.id, "");
            events.until("the next term", |event| !event.id.is_empty());
            return;
        }
    }
    panic!("the events were as late as the failure of the lock");
}

#[tokio::test]
async fn bad_input_is_refused_in_one_line() {
    let env = TestEnv::start().await;
    let (port, _) = free_port();
    let mut no_address = observe(&env, &["my_app"], "nowhere");
    assert_eq!(no_address.exit_code().await, Some(2));
    assert!(no_address.stderr().contains("invalid --http \"nowhere\""));
    let mut no_key = observe(&env, &["a name"], &port);
    assert_eq!(no_key.exit_code().await, Some(2));
    let refusal = no_key.stderr();
    assert_eq!(refusal.trim_end().lines().count(), 1, "{refusal}");
    assert!(refusal.contains("a name"));
}
