//! `--check`: a leader that cannot do its work hands over.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use incumbent_test_support::eventually;
use rustix::process::{Pid, Signal, test_kill_process, test_kill_process_group};

use crate::env::{Candidate, STEADY, TestEnv, incumbent};
use crate::http::{free_port, get};

const SERVE: &str = "echo up; exec sleep 1000";
/// The interval is the limit of a check, too: a busy machine starts one that passes within it.
const OFTEN: [&str; 4] = ["--check-interval", "1s", "--check-failures", "2"];

/// Waits until the candidate at this address returns this line.
async fn readyz(address: &str, status: u16, line: &str) {
    let expected = (status, format!("{line}\n"));
    eventually(line, async || get(address, "/readyz").filter(|found| *found == expected)).await;
}

/// A leader with this check, a healthy standby, and the address of the leader.
async fn leader_and_standby(env: &TestEnv, check: &str) -> (Candidate, Candidate, String) {
    let (port, address) = free_port();
    let flags = ["--identity", "first", "--priority", "9", "--http", &port, "--check", check];
    let mut first = env.run("my_app", &[&flags[..], &OFTEN].concat(), SERVE);
    first.wait_for_line("up").await;
    let (other_port, other) = free_port();
    let flags = ["--identity", "second", "--http", &other_port, "--check", "true"];
    let second = env.run("my_app", &[&flags[..], &OFTEN].concat(), SERVE);
    readyz(&other, 200, "ok: first leads").await;
    (first, second, address)
}

#[tokio::test]
async fn leader_whose_command_fails_hands_over_and_does_not_return() {
    let env = TestEnv::with_ttl(STEADY).await;
    let directory = tempfile::tempdir().expect("a directory");
    let sick = directory.path().join("sick");
    let check = format!("[ ! -e {} ] || {{ echo 1; echo disk full >&2; exit 3; }}", sick.display());
    let (mut first, mut second, address) = leader_and_standby(&env, &check).await;
    fs::write(&sick, "").expect("a file");
    second.wait_for_line("up").await;
    readyz(&address, 503, "sick: disk full").await;
    assert_eq!(first.descendants(), [""; 0]);
    let metrics = get(&address, "/metrics").expect("it listens").1;
    assert!(metrics.contains("incumbent_ready{"), "{metrics}");

    fs::remove_file(&sick).expect("a file");
    readyz(&address, 200, "ok: second leads").await;
    assert!(first.is_silent() && second.is_silent(), "the leader stays");
    assert_eq!(env.holder("my_app").await.as_deref(), Some("second"));
}

/// An HTTP server that is healthy until it is not.
fn start_server() -> (String, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/healthz", listener.local_addr().expect("an address"));
    let healthy = Arc::new(AtomicBool::new(true));
    let answers = Arc::clone(&healthy);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 1024]);
            let (status, body) = match answers.load(Ordering::Relaxed) {
                true => ("204 No Content", ""),
                false => ("503 Service Unavailable", "queue:\ndisk full\n"),
            };
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
            let _ = stream.write_all((head + body).as_bytes());
        }
    });
    (url, healthy)
}

#[tokio::test]
async fn leader_whose_url_fails_hands_over() {
    let env = TestEnv::with_ttl(STEADY).await;
    let (url, healthy) = start_server();
    let (first, mut second, address) = leader_and_standby(&env, &url).await;
    healthy.store(false, Ordering::Relaxed);
    second.wait_for_line("up").await;
    readyz(&address, 503, "sick: 503 Service Unavailable: disk full").await;
    assert_eq!(first.descendants(), [""; 0]);
    healthy.store(true, Ordering::Relaxed);
    readyz(&address, 200, "ok: second leads").await;
}

#[tokio::test]
async fn only_candidate_leads_although_it_is_sick() {
    let env = TestEnv::calm().await;
    let (port, address) = free_port();
    let flags = ["--http", &port, "--check", "http://127.0.0.1:1/"];
    let mut only = env.run("my_app", &[&flags[..], &OFTEN].concat(), SERVE);
    only.wait_for_line("up").await;
    eventually("it is sick", async || {
        let (status, line) = get(&address, "/readyz")?;
        (status == 503 && line.starts_with("sick: no response: ")).then_some(())
    })
    .await;
    let (status, line) = get(&address, "/livez").expect("it listens");
    assert!(status == 200 && line.contains("leading with token "), "{line}");
}

/// The groups of checks, each of which wrote its id.
fn groups(file: &Path) -> Vec<Pid> {
    let lines = fs::read_to_string(file).unwrap_or_default();
    lines.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect()
}

#[tokio::test]
async fn check_that_hangs_is_killed_with_all_it_started() {
    let env = TestEnv::calm().await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("groups");
    let check = format!("echo $$ >> {}; sleep 1000 & sleep 1000", file.display());
    let (port, address) = free_port();
    let flags = ["--http", &port, "--check", &check];
    let mut run = env.run("my_app", &[&flags[..], &OFTEN].concat(), SERVE);
    run.wait_for_line("up").await;
    readyz(&address, 503, "sick: the check took longer than 1s").await;
    let is_gone = |group: &Pid| test_kill_process_group(*group).is_err();
    let known = eventually("several checks", async || {
        Some(groups(&file)).filter(|groups| groups.len() >= 3)
    })
    .await;
    eventually("the first ones are gone", async || {
        known.iter().rev().skip(1).all(is_gone).then_some(())
    })
    .await;
    run.signal(Signal::TERM);
    assert_eq!(run.exit_code().await, Some(128 + 15));
    eventually("the last one is gone", async || groups(&file).iter().all(is_gone).then_some(()))
        .await;
}

/// Nor in a candidate that ends by a signal at once.
#[tokio::test]
async fn no_check_outlives_its_campaign() {
    let env = TestEnv::calm().await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("groups");
    let check = format!("echo $$ >> {}; exec sleep 1000", file.display());
    let mut command = env.campaign("my_app", &["--check", &check, "--check-interval", "1h"]);
    command.stdin(std::process::Stdio::null());
    let mut campaign = Candidate::start(command);
    let known =
        eventually("a check", async || Some(groups(&file)).filter(|groups| !groups.is_empty()))
            .await;
    campaign.signal(Signal::TERM);
    campaign.exit().await;
    eventually("it is gone", async || test_kill_process_group(known[0]).err()).await;
}

#[tokio::test]
async fn check_outlives_a_term() {
    let env = TestEnv::start().await;
    let directory = tempfile::tempdir().expect("a directory");
    let (file, done) = (directory.path().join("groups"), directory.path().join("done"));
    let check = format!(
        "echo $$ >> {}; until [ -e {} ]; do sleep 0.02; done",
        file.display(),
        done.display()
    );
    let (port, address) = free_port();
    let flags = ["--http", &port, "--check", &check, "--check-interval", "1h"];
    let mut run = env.run("my_app", &flags, SERVE);
    run.wait_for_line("up").await;
    env.evict("my_app").await;
    run.wait_for_line("up").await;
    fs::write(&done, "").expect("a file");
    eventually("it passes", async || get(&address, "/readyz").filter(|(status, _)| *status == 200))
        .await;
    assert_eq!(groups(&file).len(), 1, "it was not killed");
}

/// What a check leaves is ended, and waited for.
#[tokio::test]
async fn checks_leave_no_process() {
    let env = TestEnv::calm().await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("groups");
    let check =
        format!("setsid sh -c 'echo $$ >> {}; exec sleep 1000' & sleep 0.1", file.display());
    let mut run = env.run("my_app", &[&["--check", &check][..], &OFTEN].concat(), SERVE);
    run.wait_for_line("up").await;
    let known = eventually("several checks", async || {
        Some(groups(&file)).filter(|groups| groups.len() >= 5)
    })
    .await;
    for process in &known[..3] {
        assert!(test_kill_process(*process).is_err(), "{process:?} is left, at least as a zombie");
    }
    run.signal(Signal::TERM);
    assert_eq!(run.exit_code().await, Some(128 + 15));
}

#[tokio::test]
async fn check_does_not_inherit_credentials() {
    let env = TestEnv::calm().await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("environment");
    let check = format!("env > {0}.new && mv {0}.new {0}", file.display());
    let mut command = incumbent();
    command.args(["run", "my_app", "--server", &env.server.url(), "--check", &check]);
    command.args(["--", "sh", "-c", SERVE]);
    let secrets = [("NATS_USER", "u"), ("NATS_PASSWORD", "s3cret"), ("NOTIFY_SOCKET", "/none")];
    command.envs(secrets).env("MINE", "kept");
    let mut run = Candidate::start(command);
    run.wait_for_line("up").await;
    let environment = eventually("it was checked", async || fs::read_to_string(&file).ok()).await;
    assert!(environment.contains("MINE=kept"), "{environment}");
    for (name, _) in secrets {
        assert!(!environment.contains(name), "{environment}");
    }
}
