//! A store that serves reads and refuses every write.

use incumbent_test_support::{HttpFault, HttpFaultProxy, HttpMessage, eventually};

use crate::object_storage_doctor::{shell_at, versitygw};

#[tokio::test(flavor = "multi_thread")]
async fn campaign_reports_each_lock_failure_once() {
    let (store, shell) = versitygw().await;
    let lock = "s3://bucket?max-lease=15s";
    let campaign = |identity| ["campaign", "my_app", "--lock", lock, "--identity", identity];
    let mut first = shell.start(&campaign("v0"));
    first.line_with("won");
    let proxy = HttpFaultProxy::start(store.port(), false).await;
    let refusal = HttpMessage::new("HTTP/1.1 405 Method Not Allowed");
    proxy.always("PUT", HttpFault::Respond(refusal));
    let second = shell_at(proxy.port());
    let file = second.home().join("output");
    let mut command = second.command(&campaign("v1"));
    command.stdout(std::fs::File::create(&file).expect("a file"));
    let mut child = command.spawn().expect("it starts");
    let read = || std::fs::read_to_string(&file).expect("text");
    eventually("the leader is reported", async || read().contains("leader: v0").then_some(()))
        .await;
    drop(first); // killed: no candidate writes any more
    eventually("several writes were refused", async || {
        let requests = proxy.requests();
        (requests.iter().filter(|it| it.method() == "PUT").count() > 5).then_some(())
    })
    .await;
    let output = read();
    child.kill().expect("it runs");
    child.wait().expect("an end");
    // On a busy machine a read may time out as well, which is another failure.
    let (leaders, failures): (Vec<&str>, Vec<&str>) =
        output.lines().partition(|line| line.starts_with("leader: "));
    assert_eq!(leaders, ["leader: v0", "leader: none"], "{output}");
    let write = "lock failing: write of the object s3://bucket/my_app: 405 Method Not Allowed";
    assert!(failures.contains(&write), "{output}");
    assert!(failures.len() < 5, "{output}");
}
