//! `election evict`.

use crate::shell::Shell;

const CAMPAIGN: [&str; 5] = ["campaign", "my_app", "--lease", "2s", "--identity"];

#[tokio::test(flavor = "multi_thread")]
async fn successor_and_duration_are_reported() {
    let (_server, shell) = Shell::serving().await;
    let mut first = shell.start(&[&CAMPAIGN[..], &["first"]].concat());
    first.line_with("won");
    let mut second = shell.start(&[&CAMPAIGN[..], &["second"]].concat());
    second.line_with("leader: first");

    let (line, code) = shell.refusal(&["election", "evict", "my_app"]);
    assert!(line.contains("Evict first, who leads my_app") && line.contains("--force"), "{line}");
    assert_eq!(code, 1);
    let mut terminal = shell.on_terminal(&["election", "evict", "my_app"]);
    terminal.wait_for("who leads my_app? [y/N] ");
    terminal.type_line("n");
    assert_eq!(terminal.wait().1, Some(1));

    let output = shell.out(&["election", "evict", "my_app", "--force"]);
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[0], "evicted first from my_app");
    first.line_with("lost: evicted");
    let token = second.line_with("won").rsplit(' ').next().unwrap().to_owned();
    assert!(lines[1].starts_with("second holds the entry after "), "{output}");
    assert!(lines[1].ends_with(&format!(" with token {token}")), "{output}");
    first.line_with("leader: second");
    let evicted = shell.json(&["election", "evict", "my_app", "--force", "-o", "json"]);
    let fields = ["election", "evicted", "holder"].map(|field| evicted[field].as_str());
    assert_eq!(fields, ["my_app", "second", "first"].map(Some), "{evicted}");
    assert_eq!(evicted["evicted_token"].to_string(), token);
}

#[tokio::test]
async fn missing_successor_is_reported() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "--election", "-q"]);
    shell.out(&["kv", "put", "B", "e", "c1"]);
    let args = ["election", "evict", "e", "--bucket", "B", "--force", "--wait", "1s"];
    let output = shell.run(&args);
    assert_eq!((&*output.stdout, output.code), ("evicted c1 from e\n", Some(1)), "{output:?}");
    assert_eq!(output.stderr.lines().count(), 1, "{output:?}");
    assert!(output.stderr.contains("no successor within 1s"), "{output:?}");
    let (line, code) = shell.refusal(&args);
    assert!(line.contains("election e: no leader"), "{line}");
    assert_eq!(code, 3);
}
