//! `election evict`.

use incumbent_test_support::Server;

use crate::shell::Shell;

const CAMPAIGN: [&str; 5] = ["campaign", "my_app", "--lease", "2s", "--identity"];

#[tokio::test(flavor = "multi_thread")]
async fn it_tells_who_took_over_and_how_long_it_took() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    let mut first = shell.start(&[&CAMPAIGN[..], &["first"]].concat());
    first.line_with("won");
    let mut second = shell.start(&[&CAMPAIGN[..], &["second"]].concat());
    second.line_with("leader: first");

    let (line, code) = shell.refusal(&["election", "evict", "my_app"]);
    assert!(line.contains("Evict first, who leads my_app") && line.contains("--force"), "{line}");
    assert_eq!(code, 1);
    let mut terminal = shell.on_terminal(&["election", "evict", "my_app"]);
    terminal.shows("who leads my_app? [y/N] ");
    terminal.types("n");
    assert_eq!(terminal.ended().1, Some(1));

    let told = shell.out(&["election", "evict", "my_app", "--force"]);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "evicted first from my_app");
    first.line_with("lost: evicted");
    let token = second.line_with("won").rsplit(' ').next().unwrap().to_owned();
    assert!(lines[1].starts_with("second leads after "), "{told}");
    assert!(lines[1].ends_with(&format!(" with token {token}")), "{told}");
}

#[tokio::test]
async fn without_a_successor_it_says_so() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    shell.out(&["kv", "add", "B", "--election", "-q"]);
    shell.out(&["kv", "put", "B", "e", "somebody"]);
    let args = ["election", "evict", "e", "--bucket", "B", "--force", "--wait", "1s"];
    let told = shell.run(&args);
    assert_eq!((&*told.out, told.code), ("evicted somebody from e\n", Some(1)), "{told:?}");
    assert_eq!(told.error.lines().count(), 1, "{told:?}");
    assert!(told.error.contains("no successor within 1s"), "{told:?}");
    let (line, code) = shell.refusal(&args);
    assert!(line.contains("election e: no leader"), "{line}");
    assert_eq!(code, 3);
}
