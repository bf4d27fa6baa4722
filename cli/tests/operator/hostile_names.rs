//! Names and values that others wrote: no terminal takes an order from them.

use incumbent_test_support::Server;

use crate::shell::{Shell, Told};

/// Clears the screen, sets the title, rings, goes back to the line's start, turns the direction, and does it all again by C1.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\rroot\u{202e}\u{9b}31mx";

fn raw(text: &str) -> Option<char> {
    text.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}')
}

fn is_harmless(args: &[&str], told: &Told) {
    for text in [&told.out, &told.error] {
        assert_eq!(raw(text), None, "{args:?}: {told:?}");
    }
}

#[tokio::test]
async fn no_command_prints_them_raw() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
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
        &["kv", "history", "B", "e"],
        &["kv", "keys", "B"],
        &["kv", "ls"],
        &["kv", "status", "B"],
        &["doctor", "--bucket", "B"],
        &["doctor", "e", "--bucket", "B", "-o", "json"],
        &["election", "evict", "e", "--bucket", "B"],
    ] {
        is_harmless(args, &shell.run(args));
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
        assert_eq!(raw(&line), None, "{args:?}: {line:?}");
    }
    // What is evicted, and who came in its place while it was asked about.
    let evict = ["election", "evict", "e", "--bucket", "B", "--force", "--wait", "1s"];
    is_harmless(&evict, &shell.run(&evict));
    // The value byte by byte is for programs.
    shell.out(&["kv", "put", "B", "e", HOSTILE]);
    assert_eq!(shell.out(&["kv", "get", "B", "e", "--raw"]), HOSTILE);
}

#[tokio::test]
async fn a_terminal_is_asked_without_orders_from_the_leader() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    shell.out(&["kv", "add", "B", "-q"]);
    shell.out(&["kv", "put", "B", "e", HOSTILE]);
    let mut terminal = shell.on_terminal(&["election", "evict", "e", "--bucket", "B"]);
    terminal.shows("who leads e? [y/N] ");
    terminal.types("n");
    let (mut seen, code) = terminal.ended();
    assert_eq!(code, Some(1));
    // Another one is there, or none, once the question is answered.
    for (before, after, says) in
        [("first", Some(HOSTILE), "took over meanwhile"), (HOSTILE, None, "stepped down by itself")]
    {
        shell.out(&["kv", "put", "B", "e", before]);
        let mut terminal = shell.on_terminal(&["election", "evict", "e", "--bucket", "B"]);
        terminal.shows("who leads e? [y/N] ");
        match after {
            Some(next) => drop(shell.out(&["kv", "put", "B", "e", next])),
            None => drop(shell.out(&["kv", "del", "B", "e", "-f"])),
        }
        terminal.types("y");
        terminal.shows(says);
        let (more, code) = terminal.ended();
        assert!(matches!(code, Some(1 | 3)), "{more:?}");
        seen += &more;
    }
    for order in ["\u{1b}[2J", "\u{1b}]0;", "\u{7}", "\u{202e}", "\u{9b}"] {
        assert!(!seen.contains(order), "{order:?} in {seen:?}");
    }
}
