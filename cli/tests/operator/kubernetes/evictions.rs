//! Events of evictions, and holders that cannot be evicted.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::channel;

use incumbent_test_support::eventually;
use serde_json::{Value, json};

use super::env::{SERVE, TestEnv, kubeconfig};
use crate::shell::Shell;

/// The Event of the object names the evicted leader and the user.
#[tokio::test(flavor = "multi_thread")]
async fn eviction_creates_an_event() {
    let env = TestEnv::new().await;
    // An Event that a busy server does not take within two seconds is given up.
    let mut numbers = 0..;
    eventually("an Event of each eviction", async || {
        let number: u32 = numbers.next()?;
        let (pod, theirs) = (format!("pod-{number}"), format!("theirs-{number}"));
        env.create_pod(&pod).await;
        let mut leader = env.start_life(&pod, SERVE);
        leader.line_with("serves");
        let spec = json!({"holderIdentity": theirs, "leaseDurationSeconds": 15});
        env.create_lease(&theirs, spec).await;
        let lease = env.get(&format!("{}/{theirs}", env.leases())).await;
        let lock = env.get_lock().await;
        let evict = |name| ["election", "evict", name, "--force", "--wait", "0s"];
        env.shell.out(&env.for_life_args(&evict("my-app")));
        env.out(&evict(&theirs));
        let events = env.get(&env.core("events")).await;
        let has = |object: &Value, evicted: &str| {
            events["items"].as_array().unwrap().iter().any(|event| {
                event["reason"] == "LeaderElection"
                    && event["message"] == format!("{evicted} evicted by admin")
                    && event["involvedObject"]["uid"] == object["metadata"]["uid"]
            })
        };
        let both = has(&lock, &pod) && has(&lease, &theirs);
        assert_eq!(leader.wait(), Some(3));
        both.then_some(())
    })
    .await;
}

/// The API server of the tests drops `spec.strategy`, because its feature is off. This server
/// returns it and accepts no write.
#[test]
fn holder_chosen_by_the_api_server_is_not_evicted() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, requests) = channel();
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
            let _ = sender.send(request.lines().next().unwrap_or_default().to_owned());
        }
    });
    let shell = Shell::bare();
    shell.write("config", &kubeconfig(&format!("http://127.0.0.1:{port}"), &json!({})));
    let args = ["election", "evict", "theirs", "--force", "--lock", "kubernetes"];
    let args = [&args[..], &["--kubeconfig", "config"]].concat();
    let text = "has spec.strategy, so the API server chooses its holder";
    shell.expect_refusal(&args, text, 1);
    let requests: Vec<String> = requests.try_iter().collect();
    assert!(requests.len() >= 2, "{requests:?}");
    assert!(requests.iter().all(|line| line.starts_with("GET ")), "{requests:?}");
}
