//! Names and values of other programs with control sequences for terminals.

use incumbent_test_support::jetstream_on;

use crate::shell::{CommandOutput, Shell};

/// Control sequences: clear screen, title, bell, carriage return, right-to-left override, and a C1
/// color.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\rroot\u{202e}\u{9b}31mx";

fn control_character(text: &str) -> Option<char> {
    text.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}')
}

fn assert_harmless(args: &[&str], output: &CommandOutput) {
    for text in [&output.stdout, &output.stderr] {
        assert_eq!(control_character(text), None, "{args:?}: {output:?}");
    }
}

#[tokio::test]
async fn no_command_prints_control_characters() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "--history", "5", "--description", HOSTILE, "-q"]);
    for _ in 0..2 {
        shell.out(&["kv", "put", "B", "e", HOSTILE]);
    }
    shell.out(&["kv", "add", "E", "--election", "-q"]);
    shell.out(&["kv", "put", "E", "e", HOSTILE]);
    for args in [
        &["election", "list", "--bucket", "B"][..],
        &["election", "info", "--bucket", "B"],
        &["election", "info", "e", "--bucket", "B", "-o", "json"],
        &["election", "list", "--bucket", "B", "-o", "json"],
        &["kv", "get", "B", "e"],
        &["kv", "get", "B", "e", "-o", "json"],
        &["kv", "keys", "B"],
        &["kv", "ls"],
        &["kv", "status", "B"],
        &["doctor", "--bucket", "B"],
        &["doctor", "e", "--bucket", "B", "-o", "json"],
        &["election", "evict", "e", "--bucket", "B"],
    ] {
        assert_harmless(args, &shell.run(args));
    }
    for args in [
        &["kv", "watch", "B"][..],
        &["kv", "watch", "B", "-o", "json"],
        &["election", "watch", "--bucket", "B"],
        &["election", "watch", "e", "--bucket", "B", "-o", "json"],
        &["campaign", "e", "--bucket", "E"],
        &["campaign", "e", "--bucket", "E", "-o", "json"],
    ] {
        let mut running = shell.start(args);
        let line = running.line();
        assert_eq!(control_character(&line), None, "{args:?}: {line:?}");
    }
    // The report of an eviction names the evicted leader.
    let evict = ["election", "evict", "e", "--bucket", "B", "--force", "--wait", "1s"];
    assert_harmless(&evict, &shell.run(&evict));
    // `--raw` prints the bytes of the value.
    shell.out(&["kv", "put", "B", "e", HOSTILE]);
    assert_eq!(shell.out(&["kv", "get", "B", "e", "--raw"]), HOSTILE);
}

#[tokio::test]
async fn cause_of_a_release_is_a_short_word() {
    let (server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "E", "--election", "-q"]);
    let context = jetstream_on(server.connect().await);
    let long = format!("{}{}", HOSTILE.replace('\r', ""), "x".repeat(500));
    for (name, cause) in [("long", long.as_str()), ("none", "\u{1b}\u{9b}")] {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("KV-Operation", "DEL");
        headers.insert("Incumbent-Release", cause);
        headers.insert("Incumbent-Version", "1");
        headers.insert("Incumbent-By", "00000000000000aa");
        headers.insert("Incumbent-Left", "0");
        let subject = format!("$KV.E.{name}");
        let sent = context.publish_with_headers(subject, headers, "".into()).await;
        sent.expect("it is sent").await.expect("it is stored");
    }
    let word = format!("[2J]0;ownedroot31m{}", "x".repeat(14));
    for (name, cause) in [("long", word.as_str()), ("none", "released")] {
        for command in ["watch", "list"] {
            let mut args = vec!["election", command, "--bucket", "E"];
            args.extend((command == "watch").then_some(name));
            let mut running = shell.start(&args);
            let line = running.line_with(cause);
            assert_eq!(control_character(&line), None, "{line:?}");
            assert!(!line.contains(&format!("{cause}x")), "{line:?}");
        }
    }
}

/// Whoever may write to the bucket chooses the key.
#[tokio::test]
async fn entry_that_is_not_of_a_valid_name_is_listed() {
    let (server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "E", "--election", "-q"]);
    let context = jetstream_on(server.connect().await);
    let mut names = vec!["a~b".to_owned(), "x".repeat(300)];
    for name in &names {
        let sent = context.publish(format!("$KV.E.{name}"), "one".into()).await;
        sent.expect("it is sent").await.expect("it is stored");
    }
    let listed = shell.json(&["election", "list", "--bucket", "E", "-o", "json"]);
    let mut listed: Vec<_> = listed.as_array().expect("a list").iter().collect();
    listed.sort_by_key(|one| one["election"].to_string());
    names.sort();
    let listed: Vec<_> = listed.iter().map(|one| one["election"].as_str().unwrap()).collect();
    assert_eq!(listed, names);
}

#[tokio::test]
async fn confirmation_shows_no_control_sequence_of_the_leader() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "--election", "-q"]);
    shell.out(&["kv", "put", "B", "e", HOSTILE]);
    let mut terminal = shell.on_terminal(&["election", "evict", "e", "--bucket", "B"]);
    terminal.wait_for("who leads e? [y/N] ");
    terminal.type_line("n");
    let (mut seen, code) = terminal.wait();
    assert_eq!(code, Some(1));
    // The leader changes, or steps down, before the confirmation.
    for (before, after, expected) in
        [("first", Some(HOSTILE), "took over meanwhile"), (HOSTILE, None, "stepped down by itself")]
    {
        shell.out(&["kv", "put", "B", "e", before]);
        let mut terminal = shell.on_terminal(&["election", "evict", "e", "--bucket", "B"]);
        terminal.wait_for("who leads e? [y/N] ");
        match after {
            Some(next) => drop(shell.out(&["kv", "put", "B", "e", next])),
            None => drop(shell.out(&["kv", "del", "B", "e", "-f"])),
        }
        terminal.type_line("y");
        terminal.wait_for(expected);
        let (more, code) = terminal.wait();
        assert!(matches!(code, Some(1 | 3)), "{more:?}");
        seen += &more;
    }
    for sequence in ["\u{1b}[2J", "\u{1b}]0;", "\u{7}", "\u{202e}", "\u{9b}"] {
        assert!(!seen.contains(sequence), "{sequence:?} in {seen:?}");
    }
}
