//! `kv`: buckets, entries, changes as they happen, and what is deleted.

use incumbent_test_support::{Server, eventually};

use crate::shell::{BUCKET as B, CommandOutput, Shell};

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
    shell.expect_refusal(&["kv", "add", "B"], "bucket B exists", 1);
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
    assert_eq!(before["queue_groups"], serde_json::Value::Null);
    shell.out(&["kv", "add", "FLEET", "--election", "--queue-groups", "8", "-q"]);
    assert_eq!(shell.json(&["kv", "status", "FLEET", "-o", "json"])["queue_groups"], 8);
}

/// A server with a bucket that keeps three revisions per key.
async fn with_bucket() -> (Server, Shell) {
    let (server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", B, "--history", "3", "-q"]);
    (server, shell)
}

#[tokio::test]
async fn get_prints_what_choria_prints() {
    let (_server, shell) = with_bucket().await;
    for _ in 1..20 {
        shell.out(&["kv", "put", B, "other", "x"]);
    }
    assert_eq!(shell.out(&["kv", "put", B, "my_app", "c1.example.net"]), "20\n");
    let seen = shell.out(&["kv", "get", B, "my_app"]);
    let json = shell.json(&["kv", "get", B, "my_app", "-o", "json"]);
    let created = json["created"].as_str().unwrap();
    let months =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (year, month, day) = (&created[2..4], &created[5..7], &created[8..10]);
    let month = months[month.parse::<usize>().unwrap() - 1];
    let time = &created[11..16];
    assert_eq!(
        seen,
        format!(
            "{B} > my_app sequence 20 created @ {day} {month} {year} {time} UTC\n\nc1.example.net\n"
        )
    );
    assert_eq!(json["value"], "c1.example.net");
    assert_eq!(json["revision"], 20);
    assert_eq!(shell.out(&["kv", "get", B, "my_app", "--raw"]), "c1.example.net");
}

#[tokio::test]
async fn values_are_kept_byte_for_byte() {
    let (_server, shell) = with_bucket().await;
    let bytes = b"\x1b[31mred\x00\xc3\xa9";
    assert_eq!(shell.run_with_input(&["kv", "put", B, "k"], bytes).code, Some(0));
    let raw = shell.command(&["kv", "get", B, "k", "--raw"]).output().unwrap();
    assert_eq!(raw.stdout, bytes);
    let shown = shell.out(&["kv", "get", B, "k"]);
    assert!(shown.ends_with("\nG1szMW1yZWQAw6k=\n"), "{shown}");
    assert_eq!(shell.run_with_input(&["kv", "put", B, "k", "-"], b"\xff").code, Some(0));
    assert_eq!(shell.json(&["kv", "get", B, "k", "-o", "json"])["value_base64"], "/w==");
    assert_eq!(shell.run_with_input(&["kv", "put", B, "new"], b"").code, Some(0));
    assert_eq!(shell.out(&["kv", "get", B, "new", "--raw"]), "");
}

#[tokio::test]
async fn get_reads_the_revision_asked_for() {
    let (_server, shell) = with_bucket().await;
    shell.out(&["kv", "put", B, "k", "one"]);
    shell.out(&["kv", "put", B, "k", "two"]);
    assert_eq!(shell.out(&["kv", "get", B, "k", "--raw"]), "two");
    assert_eq!(shell.out(&["kv", "get", B, "k", "--raw", "--revision", "1"]), "one");
    shell.out(&["kv", "put", B, "other", "x"]);
    shell.expect_refusal(
        &["kv", "get", B, "k", "--revision", "3"],
        "revision 3 belongs to another key",
        3,
    );
    let (_, code) = shell.refusal(&["kv", "get", B, "k", "--revision", "99"]);
    assert_eq!(code, 3);
}

#[tokio::test]
async fn keys_lists_what_has_a_value() {
    let (_server, shell) = with_bucket().await;
    assert_eq!(shell.out(&["kv", "keys", B]), "");
    for (key, value) in [("b", "1"), ("a", "1")] {
        shell.out(&["kv", "put", B, key, value]);
    }
    assert_eq!(shell.out(&["kv", "keys", B]), "a\nb\n");
    shell.out(&["kv", "del", B, "b", "--force"]);
    assert_eq!(shell.json(&["kv", "keys", B, "-o", "json"]), serde_json::json!(["a"]));
    shell.expect_refusal(&["kv", "get", B, "b"], "it was deleted", 3);
}

#[tokio::test]
async fn invalid_key_is_refused() {
    let (_server, shell) = with_bucket().await;
    for key in ["", ".", "a..b", "a b", "a*", ">", "é"] {
        for args in
            [&["kv", "get", B, key][..], &["kv", "put", B, key, "v"], &["kv", "del", B, key]]
        {
            shell.expect_refusal(args, "is not a valid key", 2);
        }
    }
}

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

/// The output of `kv watch B --timeout 1s` with these flags, once the server was reached in time.
async fn watch_for_a_second(shell: &Shell, flags: &[&str]) -> CommandOutput {
    eventually("the server is reached in time", async || {
        let output = shell.run(&[&["kv", "watch", "B", "--timeout", "1s"], flags].concat());
        (output.code != Some(4)).then_some(output)
    })
    .await
}

#[tokio::test]
async fn watch_ends_after_one_value_or_a_timeout() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "-q"]);
    let none = watch_for_a_second(&shell, &["--once"]).await;
    assert_eq!((&*none.stdout, none.code), ("", Some(1)), "{none:?}");
    let line = &none.stderr;
    assert!(line.starts_with("incumbent: ") && line.lines().count() == 1, "{line}");
    assert!(line.contains("no value within 1s"), "{line}");
    shell.out(&["kv", "put", "B", "a", "1"]);
    assert!(shell.out(&["kv", "watch", "B", "--once"]).contains("B > a"));
    let shown = eventually("the value comes in time", async || {
        let output = watch_for_a_second(&shell, &[]).await;
        (!output.stdout.is_empty()).then_some(output)
    })
    .await;
    assert!(shown.stdout.contains("B > a") && shown.code == Some(0), "{shown:?}");
    let updates = watch_for_a_second(&shell, &["--updates-only"]).await;
    assert_eq!((&*updates.stdout, updates.code), ("", Some(0)), "{updates:?}");
    assert_eq!(shell.refusal(&["kv", "watch", "ABSENT"]).1, 3);
}

/// A server with a bucket and an entry of two revisions.
async fn with_two_revisions() -> (Server, Shell) {
    let (server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "--history", "5", "-q"]);
    shell.out(&["kv", "put", "B", "k", "1"]);
    shell.out(&["kv", "put", "B", "k", "2"]);
    (server, shell)
}

#[tokio::test]
async fn deletion_without_a_terminal_requires_force() {
    let (_server, shell) = with_two_revisions().await;
    for args in [&["kv", "del", "B", "k"][..], &["kv", "del", "B"]] {
        shell.expect_refusal(args, "use --force", 1);
    }
    assert_eq!(shell.out(&["kv", "get", "B", "k", "--raw"]), "2");
    let output = shell.run(&["kv", "del", "B", "k", "--force"]);
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("", "deleted B > k\n"));
    assert_eq!(shell.json(&["kv", "status", "B", "-o", "json"])["entries"], 3);
    assert_eq!(shell.refusal(&["kv", "del", "B", "k", "--force"]).1, 3);
    shell.out(&["kv", "del", "B", "--force"]);
    assert_eq!(shell.refusal(&["kv", "status", "B"]).1, 3);
    assert_eq!(shell.refusal(&["kv", "del", "B", "--force"]).1, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_on_a_terminal_asks_for_confirmation() {
    let (_server, shell) = with_two_revisions().await;
    for answer in ["", "n", "nonsense"] {
        let mut terminal = shell.on_terminal(&["kv", "del", "B", "k"]);
        terminal.wait_for("Delete B > k? [y/N] ");
        terminal.type_line(answer);
        let (seen, code) = terminal.wait();
        assert!(seen.contains("aborted"), "{seen}");
        assert_eq!(code, Some(1));
    }
    let mut terminal = shell.on_terminal(&["kv", "del", "B", "k"]);
    terminal.wait_for("? [y/N] ");
    terminal.type_line("y");
    let (seen, code) = terminal.wait();
    assert!(seen.contains("deleted B > k"), "{seen}");
    assert_eq!(code, Some(0));
    let mut terminal = shell.on_terminal(&["kv", "del", "B"]);
    terminal.wait_for("Delete bucket B with all 3 entries? [y/N] ");
    terminal.type_line("yes");
    assert_eq!(terminal.wait().1, Some(0));
    assert_eq!(shell.refusal(&["kv", "status", "B"]).1, 3);
}
