//! Responses that are not the API server's, or are larger than requested.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use incumbent::kubernetes::{LifeResource, PodState};
use incumbent::lock::{Lock, LockAdmin, LockErrorKind, Reading};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::conformance::{TIMEOUT, leads};
use crate::env::{InLease, OBJECT, TestEnv};
use crate::faults::{busy_cluster, cluster_at};

const LEASE: Duration = Duration::from_secs(5);

/// A 404 without a Status of the API server for this object proves nothing about the object.
const OF_A_PROXY: [&str; 4] = [
    "<html>404 Not Found</html>",
    r#"{"message":"no route"}"#,
    r#"{"reason":"NotFound","details":{"name":"my-app"}}"#,
    // Of a server that does not know the kind.
    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","details":{},"code":404}"#,
];

pub fn not_found(name: &str) -> String {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
        "message": format!("{name:?} not found"), "reason": "NotFound", "details": { "name": name },
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_404_of_a_proxy_is_not_the_absence_of_an_object() {
    let (server, cluster) = busy_cluster().await;
    let lock = cluster.lease_lock().without_events();
    for text in OF_A_PROXY {
        server.answers("404 Not Found", "", text);
        let refused = lock.read(OBJECT, TIMEOUT).await.expect_err(text);
        assert_ne!(refused.kind(), LockErrorKind::Conflict, "{refused}");
    }
    server.answers("404 Not Found", "", &not_found(OBJECT));
    assert!(matches!(lock.read(OBJECT, TIMEOUT).await, Ok(Reading::Empty { .. })));
}

/// Else a proxy's 404 for its pod would end a leader for life that lives.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_404_of_a_proxy_is_not_the_end_of_a_pod() {
    let (server, cluster) = busy_cluster().await;
    let locks = cluster.life_locks(&LifeResource::config_map());
    let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u" });
    let lock = json!({ "metadata": {
        "name": OBJECT, "uid": "lock", "resourceVersion": "7", "ownerReferences": [owner],
    } });
    for text in OF_A_PROXY {
        server.answers("200 OK", "", &lock.to_string());
        server.answers("404 Not Found", "", text);
        let state =
            locks.lock(OBJECT, TIMEOUT).await.map(|lock| lock.unwrap().owners.remove(0).state);
        assert!(!matches!(state, Ok(PodState::Gone)), "{text}");
    }
    server.answers("200 OK", "", &lock.to_string());
    server.answers("404 Not Found", "", &not_found("p"));
    let lock = locks.lock(OBJECT, TIMEOUT).await.unwrap().unwrap();
    assert!(matches!(lock.owners[0].state, PodState::Gone), "{lock:?}");
}

/// An answer without an end is given up before it fills the memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_answer_without_an_end_is_not_read_to_it() {
    const MOST: usize = 96 << 20;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let server = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let _ = client.read(&mut [0; 4096]).await;
            let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
            let mut written = client.write_all(head).await;
            let junk = vec![b' '; 1 << 20];
            while written.is_ok() && count.load(Ordering::Relaxed) <= MOST {
                written = client.write_all(&junk).await;
                count.fetch_add(junk.len(), Ordering::Relaxed);
            }
        }
    });
    let cluster = cluster_at(port).await;
    let refused = cluster.lease_lock().read(OBJECT, TIMEOUT).await.unwrap_err();
    let told = std::error::Error::source(&refused).map(ToString::to_string).unwrap_or_default();
    assert!(told.contains("longer than 64 MiB"), "{refused}: {told}");
    assert!(sent.load(Ordering::Relaxed) <= MOST);
    sent.store(0, Ordering::Relaxed);
    let mut watch = cluster.lease_lock().watch(&[], TIMEOUT).await.expect("a watch");
    assert!(watch.next().await.expect("an end").is_err());
    assert!(sent.load(Ordering::Relaxed) <= MOST);
    server.abort();
}

/// One write to the object must not prevent all candidates from leading for decades.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_lease_of_decades_counts_for_two_hours() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let ours = env.campaign("ours").await;
    drop(leads(&ours).await);
    ours.stop().await;
    let spec = json!({ "holderIdentity": "gone", "leaseDurationSeconds": i32::MAX });
    env.patch(json!({ "spec": spec })).await;
    let status = env.cluster().await.lease_lock().record(OBJECT, TIMEOUT).await.unwrap();
    let lease = status.expect("a record").holder().expect("a holder").lease;
    assert_eq!(lease, Some(Duration::from_secs(2 * 3600)));
}
