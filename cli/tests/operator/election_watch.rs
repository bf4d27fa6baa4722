//! `election watch`.

use async_nats::{HeaderMap, jetstream};
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

/// A message that any candidate may send beside the bucket, as if the server had stored it.
#[tokio::test]
async fn forged_message_neither_names_nor_hides_a_leader() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    let client = server.connect().await;
    for (bucket, forger) in [("B", "forger"), ("C", "one")] {
        shell.out(&["kv", "add", bucket, "--election", "--ttl", "1h", "-q"]);
        shell.out(&["kv", "put", bucket, "e", "one"]);
        let all = ["election", "watch", "--bucket", bucket];
        let mut watches = [shell.start(&all), shell.start(&[&all[..], &["e"]].concat())];
        watches.iter_mut().for_each(|watch| drop(watch.line_with("e: one leads")));
        let stored = shell.json(&["kv", "get", bucket, "e", "-o", "json"])["revision"].to_string();
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Stream", format!("KV_{bucket}"));
        headers.insert("Nats-Sequence", u64::MAX.to_string());
        headers.insert("Nats-Last-Sequence", stored);
        headers.insert("Nats-Time-Stamp", "2026-01-01T00:00:00Z");
        let subject = format!("incumbent.{bucket}.e");
        client.publish_with_headers(subject, headers, forger.into()).await.expect("it is sent");
        client.flush().await.expect("it is sent");
        shell.out(&["kv", "put", bucket, "e", "two"]);
        for watch in &mut watches {
            let line = watch.line();
            assert!(line.contains("e: two leads, succeeding one"), "{line}");
        }
    }
}

#[tokio::test]
async fn bucket_made_anew_with_lower_revisions_shows_its_leaders() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    shell.out(&["kv", "add", "B", "--election", "--ttl", "1h", "-q"]);
    shell.out(&["kv", "put", "B", "e", "one"]);
    let mut watch = shell.start(&["election", "watch", "--bucket", "B"]);
    watch.line_with("e: one leads");
    let context = jetstream::new(server.connect().await);
    let mut stream = context.get_stream("KV_B").await.expect("a stream");
    let config = stream.info().await.expect("a stream").config.clone();
    context.delete_stream("KV_B").await.expect("it is deleted");
    let config = jetstream::stream::Config { first_sequence: None, ..config };
    context.create_stream(config).await.expect("it is created");
    shell.out(&["kv", "put", "B", "e", "two"]);
    watch.line_with("e: two leads, succeeding one");
}
