//! Peers behind a Service, on a real API server.

use std::net::SocketAddr;
use std::time::Duration;

use incumbent::kubernetes::Cluster;
use incumbent::peer::{KubernetesService, Peer, PeerSource};
use incumbent_test_support::{KubeServer, eventually};
use serde_json::{Value, json};

use crate::env::{Net, follows, quick, sees};
use crate::requests::post;

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// What a source finds, however busy the server is.
async fn found(service: &KubernetesService) -> Vec<SocketAddr> {
    let mut found = eventually("addresses", async || service.addresses().await.ok()).await;
    found.sort();
    found
}

fn slice(name: &str, service: &str, endpoints: Value) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": { "name": name, "labels": { "kubernetes.io/service-name": service } },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{ "name": "peers", "port": 9, "protocol": "UDP" }],
    })
}

/// The server takes no loopback addresses, so the requests are checked, and the members come from
/// elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_service_are_peers_while_they_do_not_end() {
    let server = KubeServer::start(&[]).await;
    let cluster = Cluster::from_kubeconfig(server.kubeconfig(), None).await.unwrap();
    let pod = |ip: &str, conditions: Value| json!({ "addresses": [ip], "conditions": conditions });
    let first = json!([
        pod("10.0.0.1", json!({ "ready": true })),
        pod("10.0.0.2", json!({ "ready": false, "serving": false, "terminating": true })),
    ]);
    let second = json!([pod("10.0.0.3", json!({ "ready": false }))]);
    post(cluster.client(), SLICES, &slice("app-1", "app", first)).await;
    post(cluster.client(), SLICES, &slice("app-2", "app", second)).await;
    post(cluster.client(), SLICES, &slice("other-1", "other", json!([pod("10.0.0.9", json!({}))])))
        .await;
    let service = KubernetesService::new(&cluster, "app", 12345);
    let expected: [SocketAddr; 2] =
        ["10.0.0.1:12345".parse().unwrap(), "10.0.0.3:12345".parse().unwrap()];
    assert_eq!(found(&service).await, expected);

    let odd = KubernetesService::new(&cluster, "app%2Cx", 12345).addresses().await.unwrap_err();
    assert_eq!(odd.to_string(), "the pods of the Service default/app%2Cx cannot be listed");

    // Credentials that the server refuses are read again.
    let kubeconfig = std::fs::read_to_string(server.kubeconfig()).unwrap();
    let rotated = server.file("rotated.kubeconfig");
    std::fs::write(&rotated, kubeconfig.replace("admin-token", "former-token")).unwrap();
    let cluster = Cluster::from_kubeconfig(&rotated, None).await.unwrap();
    let service = KubernetesService::new(&cluster, "app", 12345);
    service.addresses().await.unwrap_err();
    std::fs::write(&rotated, kubeconfig).unwrap();
    assert_eq!(found(&service).await.len(), 2);

    // A member continues without its source.
    server.kill();
    let failing =
        KubernetesService::new(&cluster, "app", 12345).refresh(Duration::from_millis(100));
    let net = Net::new();
    let one = quick(net.address(1), 2.0).peers(failing).start().unwrap();
    let other: Peer = quick(net.address(2), 1.0).peer(net.address(1)).start().unwrap();
    follows(&other, one.id()).await;
    sees(&one, 2).await;
}
