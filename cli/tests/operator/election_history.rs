//! `election history` without a recording.

use incumbent_test_support::eventually;
use serde_json::Value;

use crate::record::spans;
use crate::shell::Shell;

#[tokio::test]
async fn bucket_shows_as_much_as_it_stores() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "--election", "--ttl", "1h", "-q"]);
    let history = ["election", "history", "e", "--bucket", "B"];
    shell.expect_refusal(&history, "election e: no leader, and no trace", 3);
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
