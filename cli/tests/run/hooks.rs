//! `--on-won` and `--on-lost`: shell commands at the start and the end of a term.

use std::fs;
use std::path::Path;
use std::time::Duration;

use incumbent_test_support::{eventually, jetstream_on};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::env::{BUCKET, Candidate, TestEnv, operator, read_deadline};
use crate::http::{free_port, get};

const SERVE: &str = "echo up; exec sleep 1000";
/// A lease with a grace of 7.5 s, in which a busy machine starts and ends a hook.
const LEASE: Duration = Duration::from_secs(60);

/// A directory, in which hooks append a line to `log`.
fn place() -> (TempDir, String) {
    let place = tempfile::tempdir().expect("a directory");
    let log = place.path().join("log").display().to_string();
    (place, log)
}

fn lines(log: &str) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

async fn logged(log: &str, line: &str) {
    let found = async || lines(log).iter().any(|found| found == line).then_some(());
    eventually(&format!("{line} in the log of the hooks"), found).await;
}

/// Checks that a program that has ended printed this line.
fn said(candidate: &mut Candidate, line: &str) {
    let stderr = candidate.stderr();
    assert!(stderr.lines().any(|found| found == line), "{stderr}");
}

#[tokio::test]
async fn hooks_run_before_and_beside_the_work() {
    let env = TestEnv::with_ttl(LEASE).await;
    let (place, log) = place();
    let won = format!(
        "cat $INCUMBENT_DEADLINE_FILE > {}/deadline; \
         echo $INCUMBENT_EVENT $INCUMBENT_ELECTION $INCUMBENT_IDENTITY $INCUMBENT_TOKEN >> {log}",
        place.path().display()
    );
    let lost = format!("echo $INCUMBENT_EVENT $INCUMBENT_CAUSE $INCUMBENT_TOKEN >> {log}");
    let work = format!("echo work $INCUMBENT_TOKEN >> {log}; {SERVE}");
    let flags = ["--identity", "first", "--on-won", &won, "--on-lost", &lost];
    let mut first = env.run("my_app", &flags, &work);
    first.wait_for_line("up").await;
    let (deadline, token) = read_deadline(place.path().join("deadline").to_str().expect("text"));
    assert!(deadline > 0.0, "the hook sees the deadline");
    first.signal(Signal::TERM);
    assert_eq!(first.exit_code().await, Some(128 + 15));
    let expected = [
        format!("won my_app first {token}"),
        format!("work {token}"),
        format!("lost stopped {token}"),
    ];
    assert_eq!(lines(&log), expected);
    assert_eq!(env.holder("my_app").await, None, "it is released");
}

#[tokio::test]
async fn requests_come_once_the_first_hook_has_ended() {
    let env = TestEnv::calm().await;
    let (place, log) = place();
    let go = place.path().join("go").display().to_string();
    let won = format!("echo won >> {log}; until [ -e {go} ]; do sleep 0.05; done");
    let lost = format!("until [ -e {go}2 ]; do sleep 0.05; done");
    let (port, address) = free_port();
    let flags = ["--http", &port, "--on-won", &won, "--on-lost", &lost];
    let mut run = env.run("my_app", &flags, SERVE);
    logged(&log, "won").await;
    assert!(run.is_silent(), "COMMAND waits for the hook");
    let (status, why) = get(&address, "/leading").expect("a response");
    assert_eq!((status, &*why), (503, "leading, and not serving yet, or no longer\n"));
    fs::write(&go, "").expect("a file");
    run.wait_for_line("up").await;
    assert_eq!(get(&address, "/leading").map(|(status, _)| status), Some(200));
}

#[tokio::test]
async fn refused_term_goes_to_another_candidate() {
    let env = TestEnv::with_ttl(LEASE).await;
    let (_place, log) = place();
    let won = format!("echo tried >> {log}; exit 3");
    let lost = format!("echo $INCUMBENT_EVENT $INCUMBENT_CAUSE >> {log}");
    let flags = ["--identity", "first", "--on-won", &won, "--on-lost", &lost];
    let mut first = env.run("my_app", &flags, SERVE);
    logged(&log, "lost resigned").await;
    let mut second = env.run("my_app", &["--identity", "second"], SERVE);
    second.wait_for_line("up").await;
    assert!(first.is_silent(), "COMMAND was never started");
    let tries = lines(&log).iter().filter(|line| *line == "tried").count();
    assert_eq!(tries, lines(&log).iter().filter(|line| *line == "lost resigned").count());
    first.signal(Signal::TERM);
    assert_eq!(first.exit_code().await, Some(128 + 15));
    said(
        &mut first,
        "incumbent: --on-won exited with code 3: the term is given up; standing aside for 1s",
    );
}

/// Its check fails when the term is refused, which hides that it stands aside.
#[tokio::test]
async fn refused_term_of_a_sick_candidate_leaves_it_standing_aside() {
    let env = TestEnv::with_ttl(Duration::from_secs(8)).await;
    let (place, log) = place();
    let go = place.path().join("go").display().to_string();
    let check = format!("[ -e {go} ]");
    let lost = format!("echo $INCUMBENT_EVENT $INCUMBENT_CAUSE >> {log}");
    let (port, address) = free_port();
    let checked = ["--check", &check, "--check-interval", "1s", "--check-failures", "1"];
    let flags = ["--http", &port, "--stand-aside", "--on-won", &check, "--on-lost", &lost];
    let flags = [&checked[..], &flags, &["--grace", "3s"]].concat();
    let mut run = env.run("my_app", &flags, SERVE);
    logged(&log, "lost resigned").await;
    fs::write(&go, "").expect("a file");
    run.wait_for_line("up").await;
    // Its check may take long on a busy machine, so that it seems sick again.
    eventually("a healthy leader that stands aside", async || {
        let (_, line) = get(&address, "/readyz")?;
        (line.contains("leading") && line.contains("standing aside")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn hook_that_hangs_ends_before_the_deadline() {
    let env = TestEnv::with_ttl(LEASE).await;
    let (_place, log) = place();
    let hang = format!("echo $$ >> {log}; trap '' TERM; setsid sleep 1000; sleep 1000");
    let mut first = env.run("my_app", &["--on-lost", &hang], SERVE);
    first.wait_for_line("up").await;
    first.signal(Signal::TERM);
    assert_eq!(first.exit_code().await, Some(128 + 15));
    assert_eq!(first.descendants(), [""; 0]);
    let pid = lines(&log).first().cloned().expect("it ran");
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    said(&mut first, "incumbent: --on-lost did not end in time; the lock is left to its lease");
}

#[tokio::test]
async fn hook_ends_with_a_killed_candidate() {
    let env = TestEnv::calm().await;
    let (_place, log) = place();
    let won = format!("echo won >> {log}; setsid sleep 1000");
    let first = env.run("my_app", &["--on-won", &won], SERVE);
    logged(&log, "won").await;
    first.signal(Signal::KILL);
    first.wait_for_no_descendants().await;
}

#[tokio::test]
async fn hooks_of_a_campaign_run_in_each_term() {
    let env = TestEnv::with_ttl(LEASE).await;
    let (_place, log) = place();
    let won = format!("echo won $INCUMBENT_TOKEN >> {log}; echo noise");
    let lost = format!("echo lost $INCUMBENT_CAUSE >> {log}");
    let flags = ["-o", "json", "--on-won", &won, "--on-lost", &lost];
    let mut campaign = Candidate::start(env.campaign("my_app", &flags));
    let won = loop {
        let line = campaign.line().await;
        let event: serde_json::Value =
            serde_json::from_str(&line).expect("JSON alone on standard output");
        if event["event"] == "won" {
            break event;
        }
    };
    logged(&log, &format!("won {}", won["token"])).await;
    env.evict("my_app").await;
    logged(&log, "lost evicted").await;
    eventually("it wins again", async || {
        (lines(&log).iter().filter(|line| line.starts_with("won ")).count() == 2).then_some(())
    })
    .await;
    campaign.signal(Signal::TERM);
    campaign.exit_code().await;
    assert_eq!(lines(&log).last().map(String::as_str), Some("lost stopped"));
    assert_eq!(env.holder("my_app").await, None, "it is released");
}

/// The work that a hook has started elsewhere still has to end.
#[tokio::test]
async fn last_hook_runs_late_after_a_suspension() {
    let env = TestEnv::with_ttl(Duration::from_secs(10)).await;
    let (_place, log) = place();
    let won = format!("echo won >> {log}");
    let lost = format!("echo lost $INCUMBENT_CAUSE >> {log}");
    // Also once it is late it has its grace.
    let hooks = ["--on-won", &won, "--on-lost", &lost, "--grace", "5s"];
    let first = Candidate::start(env.campaign("my_app", &hooks));
    // A term that ends before its first hook has none.
    logged(&log, "won").await;
    let mut second = env.run("my_app", &[], SERVE);
    first.signal(Signal::STOP);
    second.wait_for_line("up").await;
    first.signal(Signal::CONT);
    eventually("the hook runs", async || {
        lines(&log).iter().any(|line| line.starts_with("lost ")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn hooks_do_not_go_with_seats() {
    let env = TestEnv::start().await;
    let mut run = env.run("my_app", &["--seats", "2", "--on-won", "true"], SERVE);
    assert_eq!(run.exit_code().await, Some(2));
    let stderr = run.stderr();
    assert!(stderr.contains("cannot be used with --seats"), "{stderr}");
}

#[tokio::test]
async fn watch_runs_a_command_at_each_change() {
    let env = TestEnv::calm().await;
    let (_place, log) = place();
    let exec = format!(
        "echo \"$INCUMBENT_EVENT $INCUMBENT_ELECTION $INCUMBENT_IDENTITY $INCUMBENT_ADDRESS \
         $INCUMBENT_CAUSE\" >> {log}; test $INCUMBENT_EVENT = leader"
    );
    let mut watch = operator();
    watch.args(["election", "watch", "my_app", "--server", &env.server.url(), "--exec", &exec]);
    let mut watch = Candidate::start(watch);
    let flags = ["--identity", "first; touch /dev/shm/x", "--advertise", "c1:80"];
    let mut first = env.run("my_app", &flags, SERVE);
    logged(&log, "leader my_app first; touch /dev/shm/x c1:80 ").await;
    first.signal(Signal::TERM);
    logged(&log, "vacant my_app   work_ended").await;
    assert_eq!(first.exit_code().await, Some(128 + 15));
    watch.signal(Signal::TERM);
    watch.exit().await;
    said(&mut watch, "incumbent: --exec exited with code 1");
}

#[tokio::test]
async fn watch_follows_while_its_command_runs() {
    let env = TestEnv::with_ttl(LEASE).await; // in which no entry expires
    let (place, log) = place();
    let go = place.path().join("go").display().to_string();
    let exec = format!("until [ -e {go} ]; do sleep 0.05; done; echo $INCUMBENT_IDENTITY >> {log}");
    let mut watch = operator();
    watch.args(["election", "watch", "my_app", "--server", &env.server.url(), "--exec", &exec]);
    let mut watch = Candidate::start(watch);
    let leaders = ["first", "second", "third"];
    for leader in leaders {
        env.put("my_app", leader).await;
        while !watch.line().await.contains(&format!("{leader} leads")) {}
    }
    assert_eq!(lines(&log), [""; 0], "the first command runs");
    let context = jetstream_on(env.server.connect().await);
    context.delete_key_value(BUCKET).await.expect("it is deleted");
    fs::write(&go, "").expect("a file");
    assert_ne!(watch.exit_code().await, Some(0));
    let run: Vec<_> = lines(&log).into_iter().filter(|line| !line.is_empty()).collect();
    assert_eq!(run, leaders, "each change, in order");
}
