//! The task that receives hints for all elections: its runtime, and messages that it could not
//! take.

use std::sync::Arc;

use incumbent::lock::Coverage;
use incumbent::nats::{Connection, PermissionWatch};
use incumbent_test_support::{client_options, connected};
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::conformance::listening::{hints_continue, one_task_delivers};

#[tokio::test]
async fn hints_continue_when_the_runtime_of_the_first_listener_ends() {
    let server = Server::start().await;
    let (lock, writer) = (bucket_on(&server).await.lock(), bucket_on(&server).await.lock());
    hints_continue(Arc::new(lock), Arc::new(writer), ["a", "b"]).await;
}

#[tokio::test]
async fn one_task_delivers_all_hints() {
    let server = Server::start().await;
    let lock = bucket_on(&server).await.lock();
    one_task_delivers(Arc::new(lock), &["a", "b", "b", "c"]).await;
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// On a connection that takes one message at a time.
async fn busy_bucket(server: &Server) -> Bucket {
    let watch = PermissionWatch::new();
    let connect = || {
        let observer = watch.clone();
        let options = client_options().subscription_capacity(1).event_callback(move |event| {
            observer.observe(&event);
            std::future::ready(())
        });
        options.connect(server.url())
    };
    let client = connected(connect).await;
    opened(Connection::new(client, watch), BucketConfig::new("B")).await
}

/// Writes to `a` many times, and meanwhile does `between`. Nothing is taken from a connection of
/// the test meanwhile, as all of it is on one thread.
fn write_many(server: &Server, between: impl AsyncFnOnce(NatsLock) + Send + 'static) {
    let url = server.url();
    let writes = std::thread::spawn(move || {
        runtime().block_on(async {
            let client = connected(|| client_options().connect(&url)).await;
            let writer = opened(client, BucketConfig::new("B")).await.lock();
            let mut last = writer.write("a", entry(1, 1, None)).await.unwrap();
            for number in 2..100 {
                last = writer.write("a", renewal(1, number, last)).await.unwrap();
            }
            between(writer.clone()).await;
            for number in 100..200 {
                last = writer.write("a", renewal(1, number, last)).await.unwrap();
            }
        });
    });
    writes.join().unwrap();
}

#[tokio::test]
async fn every_subscriber_reads_after_dropped_messages() {
    let server = Server::start().await;
    let writer = bucket_on(&server).await.lock();
    let bucket = busy_bucket(&server).await;
    let mut hints = Hints::of(&bucket.lock(), "a");
    hints.coverage(Coverage::Full).await;
    hints.look().await;
    write_many(&server, async |_| {});
    hints.look().await;
    drop(writer);
}

/// A read finds the write long before the next renewal.
#[tokio::test]
async fn a_dropped_hint_does_not_end_the_hints() {
    let server = Server::start().await;
    let writer = bucket_on(&server).await.lock();
    let lock = busy_bucket(&server).await.lock();
    let _of_a = Hints::of(&lock, "a");
    let mut hints = Hints::of(&lock, "b");
    hints.coverage(Coverage::Full).await;
    hints.look().await;
    let first = writer.write("b", entry(2, 1, None)).await.unwrap();
    assert_eq!(hints.stored().await.0.revision, first);
    write_many(&server, async move |writer| {
        writer.write("b", renewal(2, 2, first)).await.unwrap();
    });
    hints.look().await;
    let second = found(&lock, "b").await.revision;
    tokio::time::sleep(Duration::from_millis(2_500)).await; // longer than a hint may take
    assert_eq!(found(&lock, "b").await.revision, second);
    let third = writer.write("b", renewal(2, 3, second)).await.unwrap();
    let hinted = hints.until("write", |hint| match hint {
        Hint::Coverage(coverage) => Some(Err(*coverage)),
        Hint::Stored { record, .. } if record.revision == third => Some(Ok(())),
        _ => None,
    });
    assert_eq!(hinted.await, Ok(()));
}
