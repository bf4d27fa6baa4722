//! What an eviction leaves, and whom it does not move.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::channel;

use serde_json::{Value, json};

use super::scene::{SERVE, Scene, kubeconfig};
use crate::shell::Shell;

/// An Event on the object says who was evicted, and by whom.
#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_leaves_an_event() {
    let scene = Scene::new().await;
    scene.pod("first").await;
    let mut first = scene.life("first", SERVE);
    first.line_with("serves");
    let spec = json!({"holderIdentity": "theirs", "leaseDurationSeconds": 15});
    scene.lease("theirs", spec).await;
    let lease = scene.get(&format!("{}/theirs", scene.leases())).await;
    let lock = scene.lock().await;
    let evict = |name| ["election", "evict", name, "--force", "--wait", "0s"];
    scene.shell.out(&scene.for_life(&evict("my-app")));
    scene.out(&evict("theirs"));
    let events = scene.get(&scene.core("events")).await;
    let events = events["items"].as_array().unwrap();
    for (object, message) in [(lock, "first evicted by admin"), (lease, "theirs evicted by admin")]
    {
        let of_object = |event: &&Value| {
            event["reason"] == "LeaderElection"
                && event["message"] == message
                && event["involvedObject"]["uid"] == object["metadata"]["uid"]
        };
        assert!(events.iter().any(|event| of_object(&event)), "{message}: {events:?}");
    }
}

/// The server of the tests drops `spec.strategy`, for its feature is off there: this one shows it, and takes nothing.
#[test]
fn who_the_api_server_chose_is_not_evicted() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, asked) = channel();
    std::thread::spawn(move || {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "theirs", "uid": "u", "resourceVersion": "7"},
            "spec": {
                "holderIdentity": "theirs", "leaseDurationSeconds": 15,
                "renewTime": "2026-01-01T00:00:00.000001Z", "strategy": "OldestEmulationVersion",
            },
        })
        .to_string();
        for mut client in listener.incoming().flatten() {
            let mut bytes = [0; 4096];
            let read = client.read(&mut bytes).unwrap_or_default();
            let request = String::from_utf8_lossy(&bytes[..read]).into_owned();
            let length = lease.len();
            let _ = write!(
                client,
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
                 content-length: {length}\r\n\r\n{lease}"
            );
            let _ = tell.send(request.lines().next().unwrap_or_default().to_owned());
        }
    });
    let shell = Shell::bare();
    shell.write("config", &kubeconfig(&format!("http://127.0.0.1:{port}"), &json!({})));
    let args = ["election", "evict", "theirs", "--force", "--lock", "kubernetes"];
    let args = [&args[..], &["--kubeconfig", "config"]].concat();
    let says = "has spec.strategy, so the API server chooses its holder";
    let line = shell.refuses(&args, says, 1);
    assert!(line.contains("delete the LeaseCandidate"), "{line}");
    let asked: Vec<String> = asked.try_iter().collect();
    assert!(asked.len() >= 2 && asked.iter().all(|line| line.starts_with("GET ")), "{asked:?}");
}
