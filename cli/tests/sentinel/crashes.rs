//! A program that crashes: another candidate leads long before the lease is over.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use incumbent_test_support::{Server, eventually};
use rustix::process::Signal;

use crate::env::{Candidate, STEADY, TestEnv, incumbent, operator};
use crate::listening::{Listening, wait_for_socket};
use crate::program::{program, without_core};
use crate::setup::{
    INTRODUCE, LONG_LEASE, Watch, Wrapped, is_alive, registered, revision, standby, standby_of,
    won, wrapped,
};

/// A program that crashes when its input says so.
async fn crashing(env: &TestEnv) -> Wrapped {
    let mut command = wrapped(env, &without_core(INTRODUCE), &program(&env.server.url(), 1));
    command.stdin(Stdio::piped());
    Wrapped::start(command).await
}

/// Crashes a leader in this way. Returns the exit code of its sentinel.
async fn crash(how: &str) -> Option<i32> {
    let env = TestEnv::with_ttl(LONG_LEASE).await;
    let mut first = crashing(&env).await;
    let mut second = standby(&env).await;
    first.candidate.write(&format!("{how}\n"));
    won(&mut second).await;
    first.candidate.exit_code().await
}

#[tokio::test]
async fn leader_that_aborts_is_replaced() {
    assert_eq!(crash("abort").await, Some(128 + 6));
}

#[tokio::test]
async fn leader_that_exits_without_release_is_replaced() {
    assert_eq!(crash("exit").await, Some(3));
}

/// As the kernel does when memory is short.
#[tokio::test]
async fn killed_leader_is_replaced_and_the_cause_is_shown() {
    let env = TestEnv::with_ttl(LONG_LEASE).await;
    let mut first = Wrapped::campaign(&env).await;
    let mut second = standby(&env).await;
    let mut watch = Watch::start(&env).await;
    let mut command = operator();
    command.args(["election", "watch", "my_app", "--server", &env.server.url()]);
    let mut lines = Candidate::start(command);
    assert!(lines.line().await.contains("my_app: first leads"));
    first.kill_program(Signal::KILL);
    won(&mut second).await;
    assert_eq!(watch.cause().await, "crashed");
    let line = lines.line().await;
    assert!(line.ends_with("no leader: first crashed: released by its sentinel"), "{line}");
    assert_eq!(first.candidate.exit_code().await, Some(128 + 9));
    assert_eq!(first.candidate.stderr(), "");
}

/// `ELECTIONS=5000` measures more of them.
#[tokio::test]
async fn thousand_elections_of_a_killed_process_are_led_again() {
    let elections = std::env::var("ELECTIONS").map_or(1_000, |count| count.parse().unwrap());
    let server = Server::start().await;
    let url = server.url();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("own/socket");
    let mut command = incumbent();
    command.args(["sentinel", "--server", &url, "--listen"]).arg(&path);
    // It tries to release for a minute, and one that starts its program for a few seconds.
    let _sentinel = Candidate::start(command);
    wait_for_socket(&path).await;
    let words = program(&url, elections);
    let start = |sentinel: Option<&Path>| {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).envs(sentinel.map(|path| ("INCUMBENT_SENTINEL", path)));
        command.stdin(Stdio::piped());
        Candidate::start(command)
    };
    let mut first = start(Some(&path));
    won(&mut first).await;
    registered(path.to_str().expect("text"), elections).await;
    let mut second = start(None);
    second.wait_for_line("started").await;
    let before = Instant::now();
    first.signal(Signal::KILL);
    won(&mut second).await;
    eprintln!("{elections} elections were led again after {:?}", before.elapsed());
    assert_eq!(first.exit().await.signal(), Some(9));
}

/// The leader of a killed sentinel continues; after its death the lease decides.
#[tokio::test]
async fn leader_outlives_its_sentinel() {
    let env = TestEnv::with_ttl(STEADY).await;
    let mut first = Wrapped::campaign(&env).await;
    let mut second = standby(&env).await;
    let mut watch = Watch::start(&env).await;
    first.candidate.signal(Signal::KILL);
    first.candidate.exit().await;
    let written = revision(&env).await;
    let renewed = async || (revision(&env).await > written).then_some(());
    eventually("a renewal", renewed).await;
    assert!(is_alive(first.pid) && second.is_silent());
    first.kill_program(Signal::KILL);
    assert_eq!(watch.cause().await, "expired");
    won(&mut second).await;
}

/// A sentinel that continues after another leader took over.
#[tokio::test]
async fn paused_sentinel_does_not_touch_the_entry_of_the_next_leader() {
    let env = TestEnv::with_ttl(STEADY).await;
    let listening = Listening::start(&env).await;
    let first = listening.leader(&env, "my_app", 1).await;
    let mut second = standby_of(&env, "my_app").await;
    let mut watch = Watch::start(&env).await;
    listening.sentinel.signal(Signal::STOP);
    first.signal(Signal::KILL);
    assert_eq!(watch.cause().await, "expired");
    won(&mut second).await;
    listening.sentinel.signal(Signal::CONT);
    listening.logs("the entry was gone before the release").await;
    assert_eq!(env.holder("my_app").await.as_deref(), Some("standby"));
    assert!(second.is_silent(), "it still leads");
}

/// A sentinel whose server is another one cannot release.
#[tokio::test]
async fn sentinel_with_another_lock_releases_nothing() {
    let env = TestEnv::with_ttl(STEADY).await;
    let other = TestEnv::start().await;
    let listening = Listening::start(&other).await;
    let first = listening.leader(&env, "my_app", 1).await;
    let mut second = standby_of(&env, "my_app").await;
    let mut watch = Watch::start(&env).await;
    listening.logs("its entry is not in the lock of the sentinel").await;
    first.signal(Signal::KILL);
    assert_eq!(watch.cause().await, "expired");
    won(&mut second).await;
}
