//! Pods and nodes without a kubelet, and candidates for life in them.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent::kubernetes::{
    Cluster, LeaderForLife, LifeError, LifeErrorKind, LifeLeadership, leader_for_life,
};
use incumbent_test_support::eventually;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::instrument::WithSubscriber;

use crate::conformance::soon;
use crate::env::{ForLife, OBJECT, TestEnv};

/// So long that only a watch can have reported the change.
const NEVER: Duration = Duration::from_secs(3600);

/// A namespace with an account that has the documented permissions of a leader for life.
pub struct Life {
    pub env: TestEnv<ForLife>,
}

/// A candidate, and what it logs.
pub struct RunningCandidate {
    task: JoinHandle<Result<LifeLeadership, LifeError>>,
    log: Log,
}

impl Life {
    pub async fn new() -> Self {
        Self::with(TestEnv::new(Duration::from_secs(5)).await).await
    }

    pub async fn alone() -> Self {
        Self::with(TestEnv::alone(Duration::from_secs(5)).await).await
    }

    async fn with(env: TestEnv<ForLife>) -> Self {
        let life = Self { env };
        let client = life.cluster().await.client().clone();
        eventually("the rights to pods and nodes", async || {
            let pods = format!("/api/v1/namespaces/{}/pods/none", life.env.namespace);
            for path in [&*pods, "/api/v1/nodes/none"] {
                let request = http::Request::get(path).body(vec![]).unwrap();
                let answer = client.request::<Value>(request).await;
                if !matches!(answer, Err(kube::Error::Api(status)) if status.code == 404) {
                    return None;
                }
            }
            Some(())
        })
        .await;
        life
    }

    pub async fn cluster(&self) -> Cluster {
        self.env.cluster().await
    }

    fn path(&self, plural: &str) -> String {
        format!("/api/v1/namespaces/{}/{plural}", self.env.namespace)
    }

    /// Makes a pod, perhaps on a node, and answers its UID.
    pub async fn pod(&self, name: &str, node: Option<&str>) -> String {
        let pod = json!({
            "metadata": { "name": name },
            "spec": {
                "containers": [{ "name": "main", "image": "none" }],
                "nodeName": node.map(|node| self.node_name(node)),
            },
        });
        let pod = self.env.post(&self.path("pods"), &pod).await;
        pod["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    pub async fn pod_status(&self, name: &str, status: Value) {
        let path = format!("{}/{name}/status", self.path("pods"));
        self.env.patch_at(&path, &json!({ "status": status })).await;
    }

    /// Without grace: at once, as an administrator does by force.
    pub async fn delete_pod(&self, name: &str) {
        self.delete(&format!("{}/{name}", self.path("pods")), &json!({ "gracePeriodSeconds": 0 }))
            .await;
    }

    /// As a Deployment does: a pod on a node stays until its kubelet has stopped it.
    pub async fn delete_pod_gracefully(&self, name: &str) {
        self.delete(&format!("{}/{name}", self.path("pods")), &json!({})).await;
    }

    fn node_name(&self, node: &str) -> String {
        format!("{}-{node}", self.env.namespace)
    }

    fn node_path(&self, node: &str) -> String {
        format!("/api/v1/nodes/{}", self.node_name(node))
    }

    pub async fn node(&self, node: &str) {
        let object = json!({ "metadata": { "name": self.node_name(node) } });
        self.env.post("/api/v1/nodes", &object).await;
        self.node_is_ready(node, "True").await;
    }

    pub async fn node_is_ready(&self, node: &str, ready: &str) {
        let condition = json!({ "type": "Ready", "status": ready });
        let path = format!("{}/status", self.node_path(node));
        self.env.patch_at(&path, &json!({ "status": { "conditions": [condition] } })).await;
    }

    pub async fn taint_node(&self, node: &str, key: &str) {
        let taint = json!({ "key": key, "value": "nodeshutdown", "effect": "NoExecute" });
        self.env.patch_at(&self.node_path(node), &json!({ "spec": { "taints": [taint] } })).await;
    }

    pub async fn delete_node(&self, node: &str) {
        self.delete(&self.node_path(node), &json!({})).await;
    }

    /// Makes the lock by hand, as operator-sdk does: a ConfigMap with owners and nothing else.
    pub async fn lock_of(&self, owners: &[(&str, &str)]) -> Value {
        let reference = |(name, uid): &(&str, &str)| json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid });
        let owners: Vec<Value> = owners.iter().map(reference).collect();
        self.make_lock(json!({ "metadata": { "name": OBJECT, "ownerReferences": owners } })).await
    }

    pub async fn make_lock(&self, object: Value) -> Value {
        self.env.post(&self.path("configmaps"), &object).await
    }

    /// The UID of the service account.
    pub async fn account(&self) -> String {
        let path = format!("{}/my-app", self.path("serviceaccounts"));
        let account = self.env.get(&path).await.expect("the account");
        account["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    pub async fn delete_lock(&self) {
        self.delete(&format!("{}/{OBJECT}", self.path("configmaps")), &json!({})).await;
    }

    async fn delete(&self, path: &str, options: &Value) {
        let body = serde_json::to_vec(options).unwrap();
        self.env.send("DELETE", path, "application/json", body).await.expect("a delete");
    }

    /// A candidate in a pod, which does not poll.
    pub async fn candidate(&self, pod: &str) -> LeaderForLife {
        leader_for_life(OBJECT, &self.cluster().await).pod(pod).poll(NEVER)
    }

    pub async fn campaign(&self, pod: &str) -> RunningCandidate {
        start(self.candidate(pod).await)
    }

    /// A leader in a pod that is made for it.
    pub async fn leader(&self, pod: &str, node: Option<&str>) -> LifeLeadership {
        self.pod(pod, node).await;
        self.campaign(pod).await.leads().await
    }

    /// A candidate in a pod of its own, on standby for `leader`.
    pub async fn second(&self, leader: &str) -> RunningCandidate {
        self.pod("second", None).await;
        let second = self.campaign("second").await;
        second.logs(&format!("stands by: pod {leader} leads")).await;
        second
    }
}

pub fn start(candidate: LeaderForLife) -> RunningCandidate {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("incumbent=debug")
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let running = async move { candidate.await }.with_subscriber(subscriber);
    RunningCandidate { task: tokio::spawn(running), log }
}

impl RunningCandidate {
    pub async fn leads(mut self) -> LifeLeadership {
        soon("leadership", &mut self.task).await.unwrap().expect("leadership")
    }

    pub async fn fails(mut self, kind: LifeErrorKind, says: &str) -> LifeError {
        let error = soon("an error", &mut self.task).await.unwrap().expect_err("no leadership");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        error
    }

    /// Waits until it has logged this.
    pub async fn logs(&self, line: &str) {
        let logged = async {
            loop {
                let more = self.log.more.notified();
                if self.log.text.lock().unwrap().contains(line) {
                    return;
                }
                more.await;
            }
        };
        let ended = async {
            while !self.task.is_finished() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            () = soon(line, logged) => {}
            () = ended => panic!("it ended without {line:?}: {}", self.log.text.lock().unwrap()),
        }
    }

    pub fn has_logged(&self, line: &str) -> bool {
        self.log.text.lock().unwrap().contains(line)
    }

    pub fn is_waiting(&self) -> bool {
        !self.task.is_finished()
    }
}

impl Drop for RunningCandidate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone, Default)]
struct Log {
    text: Arc<Mutex<String>>,
    more: Arc<Notify>,
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.lock().unwrap().push_str(&String::from_utf8_lossy(bytes));
        self.more.notify_one();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
