//! `record --runs`: the runs of jobs, and what `election history --runs` makes of them.

use std::collections::BTreeSet;

use incumbent_test_support::{Port, Server, SmallDisk, poll};
use serde_json::Value;

use crate::record::{FILE, query, record};
use crate::record_file::fill;
use crate::shell::{BUCKET, Running, Shell};

const EVERY_SECOND: &[&str] = &["--schedule", "* * * * * *"];

/// A host that runs a job each second. A machine that stands still for 5 s does not end its term.
fn cron(shell: &Shell, identity: &str, more: &[&str], script: &str) -> Running {
    let flags = ["cron", "my_app", "--identity", identity, "--lease", "12s"];
    shell.start(&[&flags[..], EVERY_SECOND, more, &["--", "/bin/sh", "-c", script]].concat())
}

/// A server with a bucket.
async fn serving() -> (Server, Shell) {
    let (server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", BUCKET, "--election", "--ttl", "12s", "-q"]);
    (server, shell)
}

/// The lines of the runs of `my_app`, once they are so.
async fn runs(shell: &Shell, more: &[&str], are_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let mut last = Value::Null;
    let found = poll(async || {
        let args = [&["election", "history", "my_app", "--runs", "-o", "json"], more].concat();
        last = serde_json::from_str(&shell.run(&args).stdout).ok()?;
        let lines = last["runs"].as_array()?;
        are_so(lines).then(|| lines.clone())
    });
    found.await.unwrap_or_else(|| panic!("{last}"))
}

const FROM: &[&str] = &["--from", FILE];

fn count(lines: &[Value], state: &str) -> usize {
    lines.iter().filter(|line| line["state"] == state).count()
}

/// All runs are there, each once.
fn assert_whole(lines: &[Value]) {
    assert!(lines.iter().all(|line| line["kind"] == "run"), "{lines:?}");
    let slots: BTreeSet<_> = lines.iter().map(|line| line["slot"].as_str()).collect();
    assert_eq!(slots.len(), lines.len(), "{lines:?}");
}

/// Also those that ran while nobody recorded.
#[tokio::test]
async fn runs_are_recorded_with_their_hosts_and_exit_codes() {
    let (_server, admin, observer) = Shell::with_observer(&[]).await;
    admin.out(&["kv", "add", "B", "--election", "--ttl", "12s", "-q"]);
    let bucket = ["--bucket", "B"];
    let first = cron(&admin, "first", &bucket, "exit 3");
    let recorder = record(&observer, &[&bucket[..], &["--runs"]].concat());
    let lines = runs(&observer, FROM, |lines| count(lines, "ended") > 2).await;
    let run = &lines[0];
    assert_eq!((&run["job"], &run["leader"]), (&"my_app".into(), &"first".into()), "{run}");
    assert_eq!(run["exit_code"], 3, "{run}");
    assert!(run["duration_ms"].is_u64() && run["token"].is_u64(), "{run}");
    let last = |lines: &[Value]| lines.last().map(|run| run["slot"].to_string());
    recorder.end_with("KILL");
    let learned = "SELECT learned FROM run WHERE state = 'ended' ORDER BY id";
    let at_first = query(&observer, learned).await;

    let before = last(&lines);
    runs(&admin, &bucket, |lines| last(lines) > before && count(lines, "ended") > 9).await;
    let ended = runs(&admin, &bucket, |_| true).await;
    assert!(ended.iter().rev().all(|line| line["leader"] == "first"), "{ended:?}");
    let recorder = record(&observer, &[&bucket[..], &["--runs"]].concat());
    let since = last(&ended);
    let lines = runs(&observer, FROM, |lines| last(lines) > since).await;
    assert_whole(&lines);
    first.end_with("TERM");
    let table = observer.out(&["election", "history", "my_app", "--runs", "--from", FILE]);
    assert!(table.contains("EXIT CODE") && table.contains("first"), "{table}");
    assert!(table.contains("SUCCEEDED  FAILED  CUT SHORT"), "{table}");
    let learned = query(&observer, learned).await;
    let (same, later) = learned.split_at(at_first.len());
    assert_eq!(same, at_first, "when each was learned first");
    assert!(!later.is_empty() && later.iter().all(|at| Some(at) > at_first.iter().max()));
    assert_eq!(recorder.end_with("INT"), Some(2));
}

#[tokio::test]
async fn run_of_a_killed_host_is_cut_short() {
    let (_server, shell) = serving().await;
    let recorder = record(&shell, &["--runs", "my_app"]);
    let first = cron(&shell, "first", &[], "sleep 1000");
    runs(&shell, FROM, |lines| count(lines, "begun") == 1).await;
    first.end_with("KILL");
    let second = cron(&shell, "second", &[], "exit 0");
    let lines = runs(&shell, FROM, |lines| count(lines, "ended") > 0).await;
    let cut = |line: &&Value| line["state"] == "cut_short";
    let cut = lines.iter().find(cut).expect("the first run");
    assert_eq!((&cut["leader"], &cut["exit_code"]), (&"first".into(), &Value::Null), "{cut}");
    second.end_with("TERM");
    recorder.end_with("TERM");
}

#[tokio::test]
async fn runs_are_kept_while_the_disk_is_full() {
    let Some(disk) = SmallDisk::mount("runs on a full disk") else {
        return;
    };
    let (_server, shell) = serving().await;
    let file = disk.path().join("rec.sqlite").display().to_string();
    let mut recorder = shell.start_with_errors(&["record", "--to", &file, "--runs"]);
    recorder.line_with("recording ");
    let _cron = cron(&shell, "first", &[], "exit 0");
    let from = ["--from", &file];
    runs(&shell, &from, |lines| count(lines, "ended") > 0).await;
    let filler = fill(&disk);
    recorder.line_with("not recording for now");
    std::fs::remove_file(&filler).expect("it is there");
    recorder.line_with("recording again");
    let before = runs(&shell, &from, |_| true).await.len();
    assert_whole(&runs(&shell, &from, |lines| count(lines, "ended") > before + 2).await);
    assert_eq!(recorder.end_with("TERM"), Some(15));
}

#[tokio::test]
async fn runs_on_sqlite_are_recorded() {
    let shell = Shell::bare();
    let lock = ["--lock", "sqlite:elections.db"];
    let _cron = cron(&shell, "first", &lock, "exit 0");
    runs(&shell, &lock, |lines| count(lines, "ended") > 0).await;
    let recorder = record(&shell, &[&lock[..], &["--runs"]].concat());
    assert_whole(&runs(&shell, FROM, |lines| count(lines, "ended") > 2).await);
    recorder.end_with("TERM");
}

#[tokio::test]
async fn what_has_no_runs_says_so() {
    let (_server, shell) = Shell::with_leaders(&[("my_app", "one")]).await;
    let recorder = record(&shell, &[]);
    recorder.end_with("TERM");
    let history = ["election", "history", "my_app", "--runs"];
    shell.expect_refusal(&[&history[..], FROM].concat(), "`incumbent record --runs` records", 3);
    shell.expect_refusal(&history, "it has run no job", 3);
    let ports = [(); 3].map(|()| Port::pick());
    let address = |port: &Port| format!("127.0.0.1:{}", port.number());
    let all = ports.iter().map(address).collect::<Vec<_>>().join(",");
    let peers = format!("peer:{}?quorum=3&lease=2s&peers={all}", address(&ports[0]));
    let args = ["record", "--to", "other", "--runs", "my_app", "--lock", &peers];
    shell.expect_refusal(&args, "this lock stores no checkpoints", 2);
}
