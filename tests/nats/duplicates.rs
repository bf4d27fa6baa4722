//! Republished messages that arrive again, as they may across leaf nodes and gateways.

use std::time::Duration;

use futures_util::StreamExt;
use incumbent::Change;

use crate::conformance::{leads, sees, soon};
use crate::env::{BUCKET, TestEnv};

/// Old ones are dropped by their sequence: the former leader does not come back, nor its release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_arrives_again_changes_nothing() {
    let env = TestEnv::with_ttl(Duration::from_secs(20)).await;
    let client = env.client().await;
    let subject = format!("incumbent.{BUCKET}.my_app");
    let mut republished = client.subscribe(subject.clone()).await.expect("a subscription");
    client.flush().await.expect("a flush");
    let first = env.maker("first").start().expect("a start");
    drop(leads(&first).await);
    let standby = env.start("standby").await;
    sees(&standby, "first").await;
    let second = env.start("second").await;
    sees(&second, "first").await;
    standby.stand_aside(true);
    soon("the leader stops", first.stop()).await;
    let _leadership = leads(&second).await;
    sees(&standby, "second").await;

    let mut changes = standby.changes();
    // They come on a connection of its own: that of the standby may have been faster.
    let mut copied = 0;
    loop {
        let message = soon("the entry of the successor", republished.next()).await;
        let message = message.expect("a republished message");
        let headers = message.headers.expect("headers of a republished message");
        let is_last = message.payload == "second";
        let copy = client.publish_with_headers(subject.clone(), headers, message.payload);
        copy.await.expect("a publish");
        copied += 1;
        if is_last {
            break;
        }
    }
    assert!(copied >= 3, "the entries of both and the release");
    client.flush().await.expect("a flush");
    standby.stand_aside(false);
    // What follows is heard after the copies.
    soon("the leader stops", second.stop()).await;
    let _leadership = leads(&standby).await;
    standby.stop().await;
    while let Some(change) = changes.next().await {
        if let Change::Leader(Some(leader)) = change {
            assert_ne!(&*leader.identity, "first");
        }
    }
}
