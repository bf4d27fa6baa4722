//! `kv add`, `list`, `status` and `edit`.

use incumbent_test_support::Server;

use crate::shell::Shell;

#[tokio::test]
async fn bucket_is_created_shown_edited_and_listed() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
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

    let changed = shell.json(&["kv", "edit", "B", "--ttl", "30s", "-o", "json", "-q"]);
    assert_eq!(changed["ttl_seconds"], 30.0);
    assert_eq!(changed["description"], "for tests", "settings without a flag stay");
    let (line, code) = shell.refusal(&["kv", "edit", "B"]);
    assert!(line.contains("nothing to change"), "{line}");
    assert_eq!(code, 2);
    let (_, code) = shell.refusal(&["kv", "edit", "ABSENT", "--ttl", "1s"]);
    assert_eq!(code, 3);

    shell.out(&["kv", "add", "A", "-q"]);
    assert_eq!(shell.out(&["kv", "list", "--names"]), "A\nB\n");
    let table = shell.out(&["kv", "list"]);
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[0].starts_with("BUCKET") && rows[2].starts_with("B "), "{table}");
    assert!(rows[2].contains("30s") && rows[2].ends_with("for tests"), "{table}");
    assert_eq!(shell.json(&["kv", "list", "-o", "json"]).as_array().unwrap().len(), 2);
}

/// An edit keeps settings that have no flag and that candidates need.
#[tokio::test]
async fn edit_keeps_the_settings_that_elections_need() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    shell.out(&["kv", "add", "B", "--election", "--ttl", "10s", "-q"]);
    let before = shell.json(&["kv", "status", "B", "-o", "json"]);
    assert_eq!(before["republish"], "incumbent.B.>");
    assert_eq!(before["marker_ttl_seconds"], 10.0);
    assert!(before["last_revision"].as_u64().unwrap() > 1_000_000_000_000, "{before}");
    let after = shell.json(&["kv", "edit", "B", "--description", "x", "-o", "json", "-q"]);
    for field in ["republish", "marker_ttl_seconds", "ttl_seconds", "last_revision"] {
        assert_eq!(after[field], before[field]);
    }
    let output = shell.run(&["kv", "add", "C", "--election", "--history", "5"]);
    assert_eq!(output.code, Some(2), "elections need a history of one");
}
