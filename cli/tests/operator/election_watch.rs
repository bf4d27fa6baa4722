//! `election watch`.

use async_nats::{HeaderMap, jetstream};

use crate::shell::Shell;

/// A bucket of a Choria broker republishes nothing and leaves no marker of an expired entry.
#[tokio::test]
async fn bucket_without_notifications_is_polled() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "--ttl", "2s", "-q"]);
    shell.out(&["kv", "put", "B", "e", "theirs"]);
    let mut watch = shell.start(&["election", "watch", "--bucket", "B"]);
    watch.line_with("e: theirs leads");
    watch.line_with("e: no leader: theirs did not renew: expired");
}

#[tokio::test]
async fn watch_continues_after_a_server_restart() {
    let (server, shell) = Shell::serving().await;
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
    let (server, shell) = Shell::serving().await;
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
    let (server, shell) = Shell::serving().await;
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
