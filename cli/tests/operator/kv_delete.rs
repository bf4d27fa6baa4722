//! `kv del` and `purge`: what they ask, and what is gone afterwards.

use incumbent_test_support::Server;

use crate::shell::Shell;

async fn scene() -> (Server, Shell) {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    shell.out(&["kv", "add", "B", "--history", "5", "-q"]);
    shell.out(&["kv", "put", "B", "k", "1"]);
    shell.out(&["kv", "put", "B", "k", "2"]);
    (server, shell)
}

#[tokio::test]
async fn without_a_terminal_it_takes_force() {
    let (_server, shell) = scene().await;
    for args in [&["kv", "del", "B", "k"][..], &["kv", "purge", "B", "k"], &["kv", "del", "B"]] {
        let (line, code) = shell.refusal(args);
        assert!(line.contains("use --force"), "{line}");
        assert_eq!(code, 1);
    }
    assert_eq!(shell.out(&["kv", "get", "B", "k", "--raw"]), "2");
    let told = shell.run(&["kv", "del", "B", "k", "--force"]);
    assert_eq!((told.out.as_str(), told.error.as_str()), ("", "deleted B > k\n"));
    assert_eq!(shell.json(&["kv", "history", "B", "k", "-o", "json"]).as_array().unwrap().len(), 3);
    shell.out(&["kv", "purge", "B", "k", "--force"]);
    assert_eq!(shell.json(&["kv", "history", "B", "k", "-o", "json"]).as_array().unwrap().len(), 1);
    assert_eq!(shell.refusal(&["kv", "del", "B", "k", "--force"]).1, 3);
    shell.out(&["kv", "del", "B", "--force"]);
    assert_eq!(shell.refusal(&["kv", "status", "B"]).1, 3);
    assert_eq!(shell.refusal(&["kv", "del", "B", "--force"]).1, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_it_asks() {
    let (_server, shell) = scene().await;
    for answer in ["", "n", "nonsense"] {
        let mut terminal = shell.on_terminal(&["kv", "del", "B", "k"]);
        terminal.shows("Delete B > k? [y/N] ");
        terminal.types(answer);
        let (seen, code) = terminal.ended();
        assert!(seen.contains("aborted"), "{seen}");
        assert_eq!(code, Some(1));
    }
    let mut terminal = shell.on_terminal(&["kv", "del", "B", "k"]);
    terminal.shows("? [y/N] ");
    terminal.types("y");
    let (seen, code) = terminal.ended();
    assert!(seen.contains("deleted B > k"), "{seen}");
    assert_eq!(code, Some(0));
    let mut terminal = shell.on_terminal(&["kv", "del", "B"]);
    terminal.shows("Delete bucket B with all 3 entries? [y/N] ");
    terminal.types("yes");
    assert_eq!(terminal.ended().1, Some(0));
    assert_eq!(shell.refusal(&["kv", "status", "B"]).1, 3);
}
