//! `kv del`: confirmation, and the remaining entries.

use incumbent_test_support::Server;

use crate::shell::Shell;

/// A server with a bucket and an entry of two revisions.
async fn start_env() -> (Server, Shell) {
    let (server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "--history", "5", "-q"]);
    shell.out(&["kv", "put", "B", "k", "1"]);
    shell.out(&["kv", "put", "B", "k", "2"]);
    (server, shell)
}

#[tokio::test]
async fn deletion_without_a_terminal_requires_force() {
    let (_server, shell) = start_env().await;
    for args in [&["kv", "del", "B", "k"][..], &["kv", "del", "B"]] {
        let (line, code) = shell.refusal(args);
        assert!(line.contains("use --force"), "{line}");
        assert_eq!(code, 1);
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
    let (_server, shell) = start_env().await;
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
