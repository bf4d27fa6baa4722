//! `election watch`.

use incumbent_test_support::Server;
use serde_json::Value;

use crate::shell::Shell;

#[tokio::test]
async fn each_change_is_reported_with_its_cause() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    let campaign = ["campaign", "my_app", "--lease", "2s", "--identity"];
    let mut first = shell.start(&[&campaign[..], &["first"]].concat());
    first.line_with("won");
    let mut watch = shell.start(&["election", "watch"]);
    let found = watch.line();
    assert!(
        found.contains("my_app: first leads since ") && found.contains(" with token "),
        "{found}"
    );
    let mut json = shell.start(&["election", "watch", "my_app", "-o", "json"]);
    let mut event = || serde_json::from_str::<serde_json::Value>(&json.line()).unwrap();
    assert_eq!(event()["found"], true);

    first.end_with("TERM");
    watch.line_with("my_app: no leader: first released: stopped");
    let vacant = event();
    assert_eq!((&vacant["event"], &vacant["cause"]), (&"vacant".into(), &"stopped".into()));
    assert_eq!((&vacant["leader"], &vacant["before"]), (&Value::Null, &"first".into()));

    let mut second = shell.start(&[&campaign[..], &["second"]].concat());
    second.line_with("won");
    watch.line_with("my_app: second leads with token ");
    let taken = event();
    assert_eq!((&taken["leader"], &taken["unrenewed_ms"]), (&"second".into(), &Value::Null));
    assert!(taken["leaderless_ms"].is_u64(), "{taken}");
    second.end_with("KILL");
    watch.line_with("no leader: second did not renew: expired");
    let lost = event();
    assert_eq!((&lost["cause"], &lost["leaderless_ms"]), (&"expired".into(), &Value::Null));
    assert!(lost["unrenewed_ms"].as_u64().is_some_and(|silent| silent >= 2000), "{lost}");

    // A watch without a name reports every election of the bucket.
    let mut other = shell.start(&["campaign", "other", "--identity", "third"]);
    other.line_with("won");
    watch.line_with("other: third leads");
    shell.out(&["kv", "del", "CHORIA_LEADER_ELECTION", "other", "--force"]);
    watch.line_with("other: no leader: third was evicted");
    assert_eq!(watch.end_with("INT"), Some(2));
}

/// A bucket of a Choria broker republishes nothing and leaves no marker of an expired entry.
#[tokio::test]
async fn bucket_without_notifications_is_polled() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    shell.out(&["kv", "add", "B", "--ttl", "2s", "-q"]);
    shell.out(&["kv", "put", "B", "e", "theirs"]);
    let mut watch = shell.start(&["election", "watch", "--bucket", "B"]);
    watch.line_with("e: theirs leads");
    watch.line_with("e: no leader: theirs did not renew: expired");
}

#[tokio::test]
async fn watch_continues_after_a_server_restart() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    shell.out(&["kv", "add", "B", "--election", "--ttl", "1h", "-q"]);
    shell.out(&["kv", "put", "B", "e", "one"]);
    let mut watch = shell.start(&["election", "watch", "--bucket", "B"]);
    watch.line_with("e: one leads");
    server.restart().await;
    shell.out(&["kv", "put", "B", "e", "two"]);
    watch.line_with("e: two leads, succeeding one");
}

#[tokio::test]
async fn watch_needs_only_the_rights_of_an_observer() {
    let (_server, admin, observer) = Shell::with_observer(&[]).await;
    admin.out(&["kv", "add", "B", "--election", "-q"]);
    admin.out(&["kv", "put", "B", "e", "one"]);
    observer.out(&["election", "info", "--bucket", "B"]);
    let mut watch = observer.start(&["election", "watch", "--bucket", "B"]);
    watch.line_with("e: one leads");
    admin.out(&["kv", "put", "B", "e", "two"]);
    watch.line_with("e: two leads");
    let (line, code) = observer.refusal(&["election", "evict", "e", "--bucket", "B", "--force"]);
    assert!(line.contains("denies") && line.contains("$KV.B.e"), "{line}");
    assert_eq!(code, 5);
    assert_eq!(admin.out(&["kv", "get", "B", "e", "--raw"]), "two");
}
