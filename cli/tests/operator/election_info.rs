//! `election list` and `info`.

use futures_util::StreamExt;
use incumbent_test_support::eventually;

use crate::shell::Shell;

#[test]
fn advertised_address_with_a_blank_is_refused() {
    let campaign = ["campaign", "other", "--advertise", "a b", "--lock", "sqlite:elections.db"];
    let text = "the address has a blank or a control character";
    Shell::bare().expect_refusal(&campaign, text, 2);
}

/// Its entry states that it leads.
#[tokio::test]
async fn info_of_a_leader_asks_no_candidate() {
    let (server, shell) = Shell::serving().await;
    let mut leader = shell.start(&["campaign", "my_app", "--lease", "2s"]);
    leader.line_with("won");
    eventually("it states its priority", async || {
        let found = shell.json(&["election", "list", "-o", "json"]);
        found[0]["priority"].is_number().then_some(())
    })
    .await;
    let client = server.connect().await;
    let mut calls = client.subscribe("incumbent-roll-call.>").await.expect("a subscription");
    client.flush().await.expect("a server");
    shell.out(&["election", "info", "my_app"]);
    client.publish("incumbent-roll-call.end", "".into()).await.expect("it is sent");
    let first = calls.next().await.expect("a message");
    assert_eq!(first.subject.as_str(), "incumbent-roll-call.end");
}

/// A bucket that is unfit for elections is shown, not refused.
#[tokio::test]
async fn info_reports_a_bucket_without_a_ttl() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "-q"]);
    let output = shell.out(&["election", "info", "--bucket", "B"]);
    assert!(
        output.contains("  critical: no TTL: the entry of a dead leader would never expire"),
        "{output}"
    );
    let colored = shell.out(&["election", "info", "--bucket", "B", "--color", "always"]);
    assert!(colored.contains("\u{1b}[") && !output.contains("\u{1b}["), "{colored}");
}

/// An identity of another candidate must not move the cursor.
#[tokio::test]
async fn control_characters_of_an_identity_are_replaced() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "--election", "-q"]);
    shell.run_with_input(&["kv", "put", "B", "k"], b"evil\x1b[2J\nname");
    for args in [["election", "list"], ["election", "info"]] {
        let output = shell.out(&[&args[..], &["--bucket", "B"]].concat());
        assert!(output.contains("evil\u{fffd}[2J\u{fffd}name"), "{output}");
    }
}
