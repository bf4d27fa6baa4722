//! `kv watch`.

use crate::shell::Shell;

#[tokio::test]
async fn watch_prints_present_entries_and_changes() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "-q"]);
    shell.out(&["kv", "put", "B", "a", "1"]);
    let mut lines = shell.start(&["kv", "watch", "B"]);
    let mut json = shell.start(&["kv", "watch", "B", "a", "-o", "json"]);
    let first = lines.line();
    assert!(first.starts_with("[20") && first.ends_with("Z] PUT B > a sequence 1: 1"), "{first}");
    let seen: serde_json::Value = serde_json::from_str(&json.line()).unwrap();
    assert_eq!(seen["value"], "1");
    shell.out(&["kv", "put", "B", "b", "2"]);
    shell.out(&["kv", "del", "B", "a", "--force"]);
    lines.line_with("PUT B > b sequence 2: 2");
    lines.line_with("DEL B > a sequence 3");
    let seen: serde_json::Value = serde_json::from_str(&json.line()).unwrap();
    assert_eq!((&seen["key"], &seen["operation"]), (&"a".into(), &"DEL".into()));
}

#[tokio::test]
async fn watch_ends_after_one_value_or_a_timeout() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "-q"]);
    let (line, code) = shell.refusal(&["kv", "watch", "B", "--once", "--timeout", "1s"]);
    assert!(line.contains("no value within 1s"), "{line}");
    assert_eq!(code, 1);
    shell.out(&["kv", "put", "B", "a", "1"]);
    assert!(shell.out(&["kv", "watch", "B", "--once"]).contains("B > a"));
    assert!(shell.out(&["kv", "watch", "B", "--timeout", "1s"]).contains("B > a"));
    assert_eq!(shell.out(&["kv", "watch", "B", "--timeout", "1s", "--updates-only"]), "");
    assert_eq!(shell.refusal(&["kv", "watch", "ABSENT"]).1, 3);
}
