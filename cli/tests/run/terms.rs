//! The command in each term: start, stop, environment and deadline.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use incumbent_test_support::eventually;
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use rustix::process::Signal;

use crate::env::{CALM, STEADY, TestEnv, now, read_deadline};

const SERVE: &str = "echo up; exec sleep 1000";

#[tokio::test]
async fn command_starts_when_elected_and_the_next_after_termination() {
    let env = TestEnv::calm().await;
    let mut first = env.run("my_app", &["--identity", "first"], SERVE);
    first.wait_for_line("up").await;
    let mut second = env.run("my_app", &["--identity", "second"], SERVE);
    assert_eq!(env.holder("my_app").await.as_deref(), Some("first"));
    first.signal(Signal::TERM);
    second.wait_for_line("up").await;
    assert_eq!(first.descendants(), [""; 0], "the command was stopped before the release");
    assert_eq!(env.holder("my_app").await.as_deref(), Some("second"));
    assert_eq!(first.exit_code().await, Some(128 + 15));
    assert_eq!(first.stderr(), "", "no messages in a pipe");
    second.signal(Signal::INT);
    assert_eq!(second.exit_code().await, Some(128 + 2));
    assert_eq!(env.holder("my_app").await, None);
    assert_eq!(second.stderr(), "", "no messages in a pipe, also while waiting");
}

#[tokio::test]
async fn command_restarts_when_the_entry_is_deleted() {
    // It lets others go first for 5 s, in which there is no term.
    let env = TestEnv::calm().await;
    let script = "echo $INCUMBENT_TOKEN; echo $INCUMBENT_DEADLINE_FILE; exec sleep 1000";
    let mut only = env.run("my_app", &[], script);
    let first: u64 = only.line().await.parse().expect("a token");
    let file = only.line().await;
    env.evict("my_app").await;
    let none = (0.0, "0".to_owned());
    eventually("the file shows no term", async || (read_deadline(&file) == none).then_some(()))
        .await;
    let second: u64 = only.line().await.parse().expect("a token");
    assert!(second > first);
    assert_eq!(only.descendants().len(), 1, "one command at a time");
    only.signal(Signal::TERM);
    assert_eq!(only.exit_code().await, Some(128 + 15));
    let lines = only.stderr();
    assert!(lines.starts_with("incumbent: lost my_app: evicted"), "{lines}");
    assert!(lines.ends_with("; campaigning again\n") && lines.lines().count() == 1, "{lines}");
}

#[tokio::test]
async fn command_of_a_killed_candidate_ends_before_the_next_starts() {
    let env = TestEnv::start().await;
    let mut first = env.run_without_cgroup(
        "my_app",
        &[],
        "trap '' TERM; setsid sleep 1000 & ( ( sleep 1000 & ) & ); echo up; sleep 1000",
    );
    first.wait_for_line("up").await;
    let mut second = env.run("my_app", &[], SERVE);
    first.signal(Signal::KILL);
    second.wait_for_line("up").await;
    assert_eq!(first.descendants(), [""; 0]);
}

#[tokio::test]
async fn command_sees_its_term_and_a_moving_deadline() {
    let env = TestEnv::calm().await;
    let flags = ["--identity", "c1.example.net"];
    let script = "echo $INCUMBENT_ELECTION; echo $INCUMBENT_IDENTITY; echo $INCUMBENT_TOKEN; \
                  echo $INCUMBENT_DEADLINE_FILE; exec sleep 1000";
    let mut run = env.run("my_app", &flags, script);
    assert_eq!(run.line().await, "my_app");
    assert_eq!(run.line().await, "c1.example.net");
    let token = run.line().await;
    let file = run.line().await;
    let (first, in_file) = read_deadline(&file);
    assert_eq!(in_file, token);
    assert!(first - now() < CALM.as_secs_f64(), "within a lease: {first}");
    let later = eventually("the deadline moves", async || {
        let (later, in_file) = read_deadline(&file);
        assert_eq!(in_file, token);
        (later > first).then_some(later)
    });
    assert!(later.await - now() < CALM.as_secs_f64());
    run.signal(Signal::TERM);
    run.exit().await;
    assert!(!std::path::Path::new(&file).exists(), "the deadline file is removed");
}

/// The client retries more and more rarely on its own: it would find the server after the lease.
#[tokio::test]
async fn term_survives_a_server_that_is_away_for_half_a_lease() {
    const TRIES: usize = 3; // a busy machine may start the server too late
    let lease = Duration::from_secs(20);
    let env = TestEnv::with_ttl(lease).await;
    let mut run = env.run("my_app", &[], "echo $INCUMBENT_DEADLINE_FILE; exec sleep 1000");
    let file = run.line().await;
    let after = async |known: &(f64, String)| {
        eventually("a renewal, or another term", async || {
            Some(read_deadline(&file)).filter(|line| line != known)
        })
        .await
    };
    // Waits until this part of a lease before a deadline.
    let before = async |deadline: f64, part: f64| {
        let left = deadline - part * lease.as_secs_f64() - now();
        tokio::time::sleep(Duration::from_secs_f64(left.max(0.0))).await;
    };
    for _ in 0..TRIES {
        let first = eventually("a term", async || {
            Some(read_deadline(&file)).filter(|(deadline, _)| *deadline > 0.0)
        });
        let (deadline, _) = after(&first.await).await;
        before(deadline, 0.75).await; // the next renewal is due soon
        env.server.kill();
        let (deadline, token) = read_deadline(&file);
        before(deadline, 0.35).await;
        let known = read_deadline(&file);
        env.server.start_again().await;
        // The term ends a sixth of a lease before its deadline.
        let was_late = now() > known.0 - lease.as_secs_f64() / 4.0;
        if after(&known).await.1 == token {
            return;
        }
        assert!(was_late, "the term was lost although the server was back in time");
    }
    panic!("the server was back too late");
}

const SERVE_WITH_FILE: &str = "echo $INCUMBENT_DEADLINE_FILE; echo up; exec sleep 1000";

/// Blocks every later write of the file, as a disk that hangs does: the writer opens a pipe without
/// a reader.
pub async fn hang(file: &str) {
    eventually("no write is under way", async || {
        mkfifoat(CWD, format!("{file}.new"), Mode::RUSR | Mode::WUSR).ok()
    })
    .await;
}

/// Lets the write through that hangs, as long as the reader of the pipe is kept.
pub fn let_through(file: &str) -> File {
    let without_wait = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(without_wait).open(format!("{file}.new")).expect("a pipe")
}

#[tokio::test]
async fn term_ends_when_its_deadline_cannot_be_written() {
    let env = TestEnv::start().await;
    let mut first = env.run("my_app", &[], SERVE_WITH_FILE);
    let file = first.line().await;
    first.wait_for_line("up").await;
    let mut second = env.run("my_app", &[], SERVE_WITH_FILE);
    hang(&file).await;
    second.wait_for_line("up").await;
    assert_eq!(first.descendants(), [""; 0], "no descendant runs when the next command starts");
    assert_eq!(first.exit_code().await, Some(1));
    let line = first.stderr();
    assert!(line.contains("cannot write the deadline file"), "{line}");
}

/// Says that it stops, and ends once the test has let the write through that hangs: the candidate
/// waits for it for two seconds from then on.
pub const STOPS_WHEN_TOLD: &str = "stop() { echo stops; \
     until [ -e $INCUMBENT_DEADLINE_FILE.stop ]; do sleep 0.05; done; exit; }
    trap stop TERM; echo $INCUMBENT_DEADLINE_FILE; sleep 1000 & wait";

/// Has such a command end.
pub fn stop(file: &str) {
    std::fs::write(format!("{file}.stop"), "").expect("a file beside it");
}

/// A busy machine is no broken disk: the candidate stays.
#[tokio::test]
async fn deadline_that_is_written_late_costs_the_term_alone() {
    let env = TestEnv::with_ttl(STEADY).await;
    let mut run = env.run("my_app", &["--grace", "4s"], STOPS_WHEN_TOLD);
    let file = run.line().await;
    hang(&file).await;
    run.wait_for_line("stops").await;
    let _reader = let_through(&file);
    stop(&file);
    run.wait_for_line(&file).await;
}
