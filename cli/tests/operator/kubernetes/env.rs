//! A namespace of a Kubernetes API server, its pods, and the permissions of its users.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use incumbent::kubernetes::Cluster;
use incumbent_test_support::KubeServer;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::requests;
use crate::shell::{Running, Shell};

/// A user without permissions.
pub const NO_RIGHTS: &str = "no-rights";
/// A user whose permissions a test chooses.
pub const OBSERVER: &str = "observer";

const FOR_LIFE: [&str; 2] = ["--kind", "for-life"];

/// The command of leaders for life.
pub const SERVE: &str = "trap 'echo stopping; exit 0' TERM; echo serves $INCUMBENT_ELECTION $INCUMBENT_IDENTITY \
                     $INCUMBENT_TOKEN $INCUMBENT_RESUMED; while :; do /bin/sleep 0.05; done";

/// The server of all tests that do not disturb it.
async fn shared_server() -> Arc<KubeServer> {
    static SERVER: OnceCell<Arc<KubeServer>> = OnceCell::const_new();
    let start = || async { Arc::new(KubeServer::start(&[NO_RIGHTS, OBSERVER]).await) };
    Arc::clone(SERVER.get_or_init(start).await)
}

/// A namespace, and a shell of its administrator.
pub struct TestEnv {
    pub server: Arc<KubeServer>,
    pub admin: Cluster,
    pub namespace: String,
    pub shell: Shell,
}

impl TestEnv {
    pub async fn new() -> Self {
        Self::on(shared_server().await).await
    }

    pub async fn on(server: Arc<KubeServer>) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let namespace = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let admin = Cluster::from_kubeconfig(server.kubeconfig(), None).await.unwrap();
        let shell = Shell::bare().with("KUBECONFIG", server.kubeconfig().display().to_string());
        let env = Self { server, admin, namespace, shell };
        env.post("/api/v1/namespaces", json!({"metadata": {"name": env.namespace}})).await;
        env
    }

    /// Sends a request, again while the server is too busy to answer. `null`: an earlier attempt
    /// has done it after all.
    pub async fn send(&self, method: &str, path: &str, content: &str, object: Value) -> Value {
        let body = object.to_string();
        let sent =
            requests::send(self.admin.client(), method, path, content, body.as_bytes()).await;
        sent.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    pub async fn post(&self, path: &str, object: Value) -> Value {
        requests::post(self.admin.client(), path, &object).await
    }

    pub async fn get(&self, path: &str) -> Value {
        self.send("GET", path, "", Value::Null).await
    }

    fn rbac(&self) -> String {
        format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}", self.namespace)
    }

    pub fn roles(&self) -> String {
        format!("{}/roles", self.rbac())
    }

    /// Grants the rules to a user. They take effect a little later.
    pub async fn allow(&self, user: &str, rules: &Value) {
        let named = json!({"name": user});
        self.post(&self.roles(), json!({"metadata": named, "rules": rules})).await;
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "metadata": named,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": user},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        });
        self.post(&format!("{}/rolebindings", self.rbac()), binding).await;
    }

    /// Replaces the rules of the observer, which must have rules from `allow`.
    pub async fn allow_only(&self, rules: &Value) {
        let path = format!("{}/{OBSERVER}", self.roles());
        let patch = json!({"rules": rules});
        self.send("PATCH", &path, "application/merge-patch+json", patch).await;
    }

    /// The kubeconfig of a user.
    pub fn config_of(&self, user: &str) -> String {
        self.server.kubeconfig_of(user).display().to_string()
    }

    pub fn leases(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    /// Creates a Lease, as client-go does.
    pub async fn create_lease(&self, name: &str, spec: Value) {
        self.post(&self.leases(), json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    /// Arguments with the lock and its namespace.
    pub fn args<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        let at = args.iter().position(|arg| *arg == "--").unwrap_or(args.len());
        let lock = ["--lock", "kubernetes", "--namespace", &self.namespace];
        [&args[..at], &lock, &args[at..]].concat()
    }

    pub fn out(&self, args: &[&str]) -> String {
        self.shell.out(&self.args(args))
    }

    pub fn json(&self, args: &[&str]) -> Value {
        self.shell.json(&self.args(args))
    }

    pub fn expect_refusal(&self, args: &[&str], text: &str, code: i32) -> String {
        self.shell.expect_refusal(&self.args(args), text, code)
    }

    pub fn start(&self, args: &[&str]) -> Running {
        self.shell.start(&self.args(args))
    }

    pub fn start_campaign(&self, identity: &str) -> Running {
        self.start(&["campaign", "my-app", "--lease", "24s", "--identity", identity])
    }
}

/// Leaders for life.
impl TestEnv {
    pub fn core(&self, plural: &str) -> String {
        format!("/api/v1/namespaces/{}/{plural}", self.namespace)
    }

    /// Creates a pod, which no kubelet runs. Returns its UID.
    pub async fn create_pod(&self, name: &str) -> String {
        let container = json!({"name": "main", "image": "none"});
        let pod = json!({"metadata": {"name": name}, "spec": {"containers": [container]}});
        let pod = self.post(&self.core("pods"), pod).await;
        pod["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    pub async fn set_phase(&self, pod: &str, phase: &str) {
        let path = format!("{}/{pod}/status", self.core("pods"));
        let patch = json!({"status": {"phase": phase}});
        self.send("PATCH", &path, "application/merge-patch+json", patch).await;
    }

    /// Deletes a pod without a grace period.
    pub async fn delete_pod(&self, name: &str) {
        let path = format!("{}/{name}", self.core("pods"));
        let at_once = json!({"gracePeriodSeconds": 0});
        self.send("DELETE", &path, "application/json", at_once).await;
    }

    pub async fn get_lock(&self) -> Value {
        self.get(&format!("{}/my-app", self.core("configmaps"))).await
    }

    pub fn life_args<'a>(
        &'a self,
        pod: &'a str,
        more: &[&'a str],
        script: &'a str,
    ) -> Vec<&'a str> {
        let args = ["life", "my-app", "--namespace", &self.namespace, "--pod", pod];
        [&args, more, &["--", "/bin/sh", "-c", script]].concat()
    }

    pub fn start_life(&self, pod: &str, script: &str) -> Running {
        self.shell.start_with_errors(&self.life_args(pod, &[], script))
    }

    /// Arguments with the lock of leaders for life and its namespace.
    pub fn for_life_args<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        self.args(&[args, &FOR_LIFE].concat())
    }
}

pub fn cells(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// A kubeconfig with one server and one user.
pub fn kubeconfig(server: &str, user: &Value) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
    });
    config.to_string()
}
