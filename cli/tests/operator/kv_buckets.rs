//! `kv add`, `list` and `status`.

use crate::shell::Shell;

#[tokio::test]
async fn bucket_is_created_shown_and_listed() {
    let (_server, shell) = Shell::serving().await;
    let output = shell.run(&[
        "kv",
        "add",
        "B",
        "--ttl",
        "1m",
        "--history",
        "5",
        "--description",
        "for tests",
    ]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), "created bucket B\n"));
    assert!(output.stdout.contains("     Entries live: 1m\n"), "{}", output.stdout);
    let (line, code) = shell.refusal(&["kv", "add", "B"]);
    assert!(line.contains("bucket B exists"), "{line}");
    assert_eq!(code, 1);
    shell.out(&["kv", "put", "B", "k", "v"]);
    let status = shell.json(&["kv", "status", "B", "-o", "json"]);
    assert_eq!(status["ttl_seconds"], 60.0);
    assert_eq!((&status["history"], &status["entries"]), (&5.into(), &1.into()));
    assert_eq!(status["description"], "for tests");

    shell.out(&["kv", "add", "A", "-q"]);
    assert_eq!(shell.out(&["kv", "list", "--names"]), "A\nB\n");
    let table = shell.out(&["kv", "list"]);
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[0].starts_with("BUCKET") && rows[2].starts_with("B "), "{table}");
    assert!(rows[2].contains("1m") && rows[2].ends_with("for tests"), "{table}");
    assert_eq!(shell.json(&["kv", "list", "-o", "json"]).as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn bucket_for_elections_has_the_settings_they_need() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "--election", "--ttl", "10s", "-q"]);
    let before = shell.json(&["kv", "status", "B", "-o", "json"]);
    assert_eq!(before["republish"], "incumbent.B.>");
    assert_eq!(before["marker_ttl_seconds"], 10.0);
    assert!(before["last_revision"].as_u64().unwrap() > 1_000_000_000_000, "{before}");
    let output = shell.run(&["kv", "add", "C", "--election", "--history", "5"]);
    assert_eq!(output.code, Some(2), "elections need a history of one");
}
