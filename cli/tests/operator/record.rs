//! `record`: what it writes, whatever happens to it, and what `election history` makes of it.

use incumbent_test_support::{Proxy, Way, eventually, poll};
use serde_json::Value;
use sqlx::{Connection, SqliteConnection};

use crate::screen::Screen;
use crate::shell::{BUCKET, Running, Shell};

pub const FILE: &str = "rec.sqlite";

/// A recorder that has opened its file and its lock.
pub fn record(shell: &Shell, args: &[&str]) -> Running {
    let mut recorder = shell.start_with_errors(&[&["record", "--to", FILE], args].concat());
    recorder.line_with("recording ");
    recorder
}

pub fn history(shell: &Shell, election: &str) -> Option<Value> {
    let args = ["election", "history", election, "--from", FILE, "-o", "json"];
    let output = shell.run(&args);
    (output.code == Some(0)).then(|| serde_json::from_str(&output.stdout).expect("JSON"))
}

/// The spans of a history in words: kind, leader, and the cause.
pub fn spans(history: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let line = |span: &Value| [&span["kind"], &span["leader"], &span["cause"]].map(text).join(" ");
    history["spans"].as_array().expect("spans").iter().map(line).collect()
}

/// Waits until the recording has these spans.
pub async fn recorded(shell: &Shell, election: &str, expected: &[&str]) -> Value {
    let found = poll(async || {
        let history = history(shell, election)?;
        (spans(&history) == expected).then_some(history)
    });
    found.await.unwrap_or_else(|| panic!("{election}: {:?}", history(shell, election)))
}

pub async fn query(shell: &Shell, sql: &'static str) -> Vec<(i64,)> {
    let url = format!("sqlite:{}", shell.home().join(FILE).display());
    let mut connection = SqliteConnection::connect(&url).await.expect("a file");
    sqlx::query_as(sql).fetch_all(&mut connection).await.expect("rows")
}

#[tokio::test]
async fn each_change_is_recorded_with_its_cause() {
    let (_server, shell) = Shell::serving().await;
    let campaign =
        |identity| shell.start(&["campaign", "my_app", "--lease", "24s", "--identity", identity]);
    let mut first = campaign("first");
    first.line_with("won");
    let recorder = record(&shell, &[]);
    recorded(&shell, "my_app", &["term first -"]).await;
    first.end_with("KILL");
    recorded(&shell, "my_app", &["term first expired", "gap - expired"]).await;
    let mut second = campaign("second");
    second.line_with("won");
    // Changes that are read at once are one change: each waits for the record of the one before.
    let expected = [
        "term first expired",
        "gap - expired",
        "term second evicted",
        "gap - evicted",
        "term second stopped",
        "gap - stopped",
    ];
    recorded(&shell, "my_app", &[&expected[..2], &["term second -"]].concat()).await;
    second.signal("STOP"); // it would soon lead again
    shell.out(&["election", "evict", "my_app", "--force", "--wait", "0s"]);
    recorded(&shell, "my_app", &expected[..4]).await;
    second.signal("CONT");
    second.line_with("lost");
    second.line_with("won");
    recorded(&shell, "my_app", &[&expected[..4], &["term second -"]].concat()).await;
    second.end_with("TERM");
    let history = recorded(&shell, "my_app", &expected).await;
    assert_eq!(history["spans"][0]["begin_seen"], false, "it led before: {history}");
    assert_eq!(history["spans"][2]["begin_seen"], true, "{history}");
    let statistics = &history["statistics"];
    assert_eq!(statistics["changes"], 3);
    assert_eq!(statistics["changes_by_cause"]["evicted"], 1);
    let gap = &statistics["longest_gap"];
    assert!(gap["ms"].as_u64() >= history["spans"][1]["ms"].as_u64(), "{history}");
    assert!(statistics["availability_percent"].as_f64().is_some_and(|p| p > 0.0 && p < 100.0));
    assert_eq!(statistics["days"].as_array().map(|days| !days.is_empty()), Some(true));
    let silent = query(&shell, "SELECT unrenewed_ms FROM transition WHERE cause = 'expired'").await;
    assert!(silent[0].0 >= 24_000, "{silent:?}");

    let table = shell.out(&["election", "history", "my_app", "--from", FILE]);
    assert!(table.contains("BEGIN (UTC)") && table.contains("second"), "{table}");
    assert!(table.contains("ends of terms: 3 (evicted 1, expired 1, stopped 1)"), "{table}");
    assert_eq!(recorder.end_with("INT"), Some(2), "as `election watch`");
    assert!(!shell.home().join("rec.sqlite-wal").exists(), "one file is all there is");
}

#[tokio::test]
async fn restarted_recorder_doubles_nothing_and_knows_what_it_missed() {
    let (_server, shell) = Shell::with_leaders(&[]).await;
    let recorder = record(&shell, &[]);
    for election in ["stays", "changes", "ends"] {
        shell.put(election, "one");
        recorded(&shell, election, &["term one -"]).await;
    }
    assert_eq!(recorder.end_with("TERM"), Some(15));
    shell.put("changes", "two");
    shell.out(&["kv", "del", BUCKET, "ends", "--force"]);
    let recorder = record(&shell, &[]);
    let changed = ["term one -", "unknown - -", "term two -"];
    let changes = recorded(&shell, "changes", &changed).await;
    assert_eq!(changes["spans"][0]["end_seen"], false, "{changes}");
    assert_eq!(changes["statistics"]["changes_by_cause"]["unknown"], 1, "{changes}");
    recorded(&shell, "stays", &["term one -", "unknown - -"]).await;
    let ends = recorded(&shell, "ends", &["term one -", "unknown - -", "gap - evicted"]).await;
    assert!(ends["statistics"]["unknown_ms"].as_u64().is_some_and(|ms| ms > 0), "{ends}");
    let rows = query(&shell, "SELECT count(*) FROM transition").await;

    // Nothing happens between these two.
    recorder.end_with("TERM");
    let recorder = record(&shell, &[]);
    shell.put("new", "one");
    recorded(&shell, "new", &["term one -"]).await;
    let after = query(&shell, "SELECT count(*) FROM transition WHERE election < 4").await;
    assert_eq!(after, rows);
    recorder.end_with("TERM");
}

#[tokio::test]
async fn killed_recorder_leaves_a_readable_file_and_an_unknown_time() {
    let (_server, shell) = Shell::with_leaders(&[]).await;
    let recorder = record(&shell, &["e"]);
    shell.put("e", "one");
    recorded(&shell, "e", &["term one -"]).await;
    recorder.end_with("KILL");
    let left = history(&shell, "e").expect("a readable file");
    assert_eq!(spans(&left), ["term one -"]);
    let _recorder = record(&shell, &["e"]);
    let history = recorded(&shell, "e", &["term one -", "unknown - -"]).await;
    let statistics = &history["statistics"];
    assert!(statistics["unknown_ms"].as_u64().is_some_and(|ms| ms > 0), "{history}");
    assert_eq!(statistics["availability_percent"], 100.0, "of what is known");
    shell.put("e", "two");
    recorded(&shell, "e", &["term one -", "unknown - -", "term two -"]).await;
}

#[tokio::test]
async fn recorder_continues_when_the_server_returns() {
    let (server, shell) = Shell::with_leaders(&[]).await;
    shell.put("e", "one");
    let mut recorder = record(&shell, &[]);
    recorded(&shell, "e", &["term one -"]).await;
    server.stop().await;
    recorder.line_with("lock failing: ");
    server.start_again().await;
    recorder.line_with("lock recovered");
    shell.put("e", "two");
    let history = recorded(&shell, "e", &["term one -", "unknown - -", "term two -"]).await;
    assert_eq!(history["spans"][0]["end_seen"], true, "{history}");
}

#[tokio::test]
async fn lock_without_watchers_is_recorded_with_the_rest() {
    let shell = Shell::bare();
    let lock = ["--lock", "sqlite:locks.db"];
    let campaign = |identity| {
        let args = ["campaign", "e", "--lease", "24s", "--identity", identity];
        shell.start(&[&args[..], &lock].concat())
    };
    let mut first = campaign("first");
    first.line_with("won");
    let _recorder = record(&shell, &lock);
    recorded(&shell, "e", &["term first -"]).await;
    first.end_with("KILL");
    recorded(&shell, "e", &["term first expired", "gap - expired"]).await;
    let mut second = campaign("second");
    second.line_with("won");
    let expected = ["term first expired", "gap - expired", "term second -"];
    let history = recorded(&shell, "e", &expected).await;
    assert!(history["spans"][1]["ms"].is_u64(), "{history}");
    let output = shell.run(&[&["election", "history", "e", "-o", "json"][..], &lock].concat());
    assert!(output.stderr.contains("`incumbent record` keeps a history"), "{output:?}");
    let current: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(spans(&current), ["term second -"]);
}

/// A connection that is away for less than a request may take: no request fails.
#[tokio::test]
async fn time_of_messages_that_were_lost_is_unknown() {
    let (server, shell) = Shell::with_leaders(&[]).await;
    shell.put("e", "one");
    let proxy = Proxy::start(server.address());
    let _recorder = record(&shell, &["--server", &proxy.url(), "--timeout", "20s"]);
    recorded(&shell, "e", &["term one -"]).await;
    proxy.lose(Way::ToClient);
    shell.put("e", "two");
    shell.put("e", "three");
    proxy.pass();
    recorded(&shell, "e", &["term one -", "unknown - -", "term three -"]).await;
}

#[tokio::test]
async fn recorder_needs_only_the_rights_of_an_observer() {
    let (_server, admin, observer) = Shell::with_observer(&[]).await;
    let election = ["--ttl", "1h", "--marker-ttl", "1h", "--republish", "incumbent.B"];
    admin.out(&[&["kv", "add", "B", "--history", "10", "-q"], &election[..]].concat());
    let _recorder = record(&observer, &["--bucket", "B"]);
    admin.out(&["kv", "put", "B", "e", "one"]);
    recorded(&observer, "e", &["term one -"]).await;
    admin.out(&["kv", "put", "B", "e", "two"]);
    recorded(&observer, "e", &["term one -", "term two -"]).await;
    let stored = observer.json(&["election", "history", "e", "--bucket", "B", "-o", "json"]);
    assert_eq!(spans(&stored), ["term one -", "term two -"]);
}

#[tokio::test]
async fn view_shows_what_is_recorded() {
    let (_server, shell) = Shell::with_leaders(&[]).await;
    let recorder = record(&shell, &[]);
    let expected = ["term one -", "term two evicted", "gap - evicted", "term three -"];
    shell.put("e", "one");
    recorded(&shell, "e", &expected[..1]).await;
    shell.put("e", "two");
    recorded(&shell, "e", &["term one -", "term two -"]).await;
    shell.out(&["kv", "del", BUCKET, "e", "--force"]);
    recorded(&shell, "e", &expected[..3]).await;
    shell.put("e", "three");
    recorded(&shell, "e", &expected).await;
    let screen = Screen::start(&shell, &["top", "--recording", FILE], (120, 30));
    screen.wait_for(&["e ", "three"]);
    screen.press("\r");
    screen.wait_for(&["recorded", "available", "2 ends of terms", "evicted 1"]);
    screen.wait_for(&["two was evicted"]);
    shell.put("e", "four");
    screen.wait_for(&["four leads, succeeding three"]);
    screen.wait_for(&["3 ends of terms"]);
    recorder.end_with("TERM");
}

#[tokio::test]
async fn bucket_shows_as_much_as_it_stores() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "--election", "--ttl", "1h", "-q"]);
    let history = ["election", "history", "e", "--bucket", "B"];
    shell.expect_refusal(&history, "election e: no leader, and no record", 3);
    shell.out(&["kv", "put", "B", "e", "one"]);
    let output = shell.run(&history);
    assert!(output.stdout.contains("one"), "{output:?}");
    assert!(output.stderr.contains("stores the last write only"), "{output:?}");
    assert!(output.stderr.contains("`incumbent record` keeps a history"), "{output:?}");

    shell.out(&["kv", "add", "C", "--history", "5", "-q"]);
    shell.out(&["kv", "put", "C", "e", "one"]);
    let history = ["election", "history", "e", "--bucket", "C"];
    shell.out(&["kv", "put", "C", "e", "two"]);
    shell.out(&["kv", "del", "C", "e", "--force"]);
    shell.out(&["kv", "put", "C", "e", "three"]);
    let json = [&history[..], &["-o", "json"]].concat();
    let output = shell.run(&json);
    assert!(output.stderr.contains("has 4 writes of this election"), "{output:?}");
    let all: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let expected = ["term one -", "term two evicted", "gap - evicted", "term three -"];
    assert_eq!(spans(&all), expected);
    assert_eq!(all["statistics"]["changes"], 2, "{all}");
    assert!(all["statistics"]["longest_gap"]["ms"].is_u64(), "{all}");
    // The renewals of a leader take the place of what was before.
    for _ in 0..4 {
        shell.out(&["kv", "put", "C", "e", "three"]);
    }
    assert_eq!(spans(&shell.json(&json)), ["term three -"]);
    let none = shell.json(&[&json[..], &["--since", "0s"]].concat());
    assert_eq!(spans(&none), ["term three -"], "the present");
}

#[tokio::test]
async fn hostile_names_are_harmless() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "--election", "--ttl", "1h", "-q"]);
    let hostile = format!("\u{1b}[2J\u{202e}<script>{}", "x".repeat(2000));
    shell.out(&["kv", "put", "B", "e", &hostile]);
    let mut recorder = shell.start_with_errors(&["record", "--to", "rec", "--bucket", "B"]);
    recorder.line_with("recording ");
    let read = ["election", "history", "e", "--from", "rec"];
    eventually("a recording", async || {
        let output = shell.run(&read);
        (output.code == Some(0)).then_some(())
    })
    .await;
    for args in [&read[..], &["election", "history", "e", "--bucket", "B"]] {
        let output = shell.out(args);
        let is_odd = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!output.contains(is_odd), "{output:?}");
        assert!(output.contains("<script>"), "{output}");
    }
}
