//! Leases of a Kubernetes API server.

use std::fmt;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use incumbent::kubernetes::{Cluster, LeaseLock, LeaseTiming};
use incumbent::lock::{Lock, LockErrorKind, Revision};
use incumbent_sim::Retention;
use incumbent_test_support::{KubeServer, eventually};
use kube::Client;
use serde_json::{Value, json};

use crate::acting::FOREIGN;
use crate::store::{Deed, HintDelivery, Rules, Store, Upheaval};

/// The default lease.
const TTL: Duration = Duration::from_secs(2);

const USER: &str = "candidate";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const RIGHTS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";

/// The Leases of a namespace.
#[derive(Debug)]
pub struct Kubernetes {
    server: KubeServer,
    admin: Admin,
    lock: LeaseLock,
}

impl Kubernetes {
    /// Starts an API server.
    pub async fn start() -> Self {
        let server = KubeServer::start(&[USER]).await;
        let cluster = Cluster::from_kubeconfig(server.kubeconfig(), None).await;
        let admin = Admin(cluster.expect("the administrator's kubeconfig").client().clone());
        admin.grant().await;
        let lock = open(&server).await;
        // The server learns of the binding a little later.
        eventually("the rights", async || lock.read("any", TTL).await.ok()).await;
        Self { server, admin, lock }
    }
}

async fn open(server: &KubeServer) -> LeaseLock {
    let cluster = Cluster::from_kubeconfig(server.kubeconfig_of(USER), None).await;
    let cluster = cluster.expect("the candidate's kubeconfig").in_namespace("default");
    let timing = LeaseTiming::new(TTL, TTL * 4 / 5, TTL / 5).expect("client-go's inequalities");
    cluster.lease_lock().timing(timing).without_events()
}

struct Admin(Client);

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Admin")
    }
}

impl Admin {
    async fn send(
        &self,
        method: &str,
        path: &str,
        content: &str,
        body: &Value,
    ) -> Result<Value, u16> {
        let request = http::Request::builder().method(method).uri(path);
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = request.header("content-type", content).body(body).expect("a request");
        match self.0.request::<Value>(request).await {
            Ok(answer) => Ok(answer),
            Err(kube::Error::Api(status)) => Err(status.code),
            Err(_) => Err(0),
        }
    }

    async fn post(&self, path: &str, object: &Value) -> Result<Value, u16> {
        self.send("POST", path, "application/json", object).await
    }

    /// Makes an object, however busy the server is.
    async fn make(&self, path: &str, object: &Value) {
        // Refused: an earlier attempt has made it.
        let made = async || matches!(self.post(path, object).await, Ok(_) | Err(409)).then_some(());
        eventually(path, made).await;
    }

    async fn grant(&self) {
        let rule = json!({ "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
            "verbs": ["get", "update", "watch", "create"] });
        let metadata = json!({ "name": USER });
        let role = json!({ "metadata": metadata, "rules": [rule] });
        self.make(&format!("{RIGHTS}/roles"), &role).await;
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "metadata": metadata,
            "roleRef": { "apiGroup": group, "kind": "Role", "name": USER },
            "subjects": [{ "apiGroup": group, "kind": "User", "name": USER }],
        });
        self.make(&format!("{RIGHTS}/rolebindings"), &binding).await;
    }

    /// Writes to a Lease, which is made where there is none if there may be one.
    async fn patch(&self, name: &str, patch: &Value, makes: bool) -> Result<Value, u16> {
        let content = "application/merge-patch+json";
        let patched = self.send("PATCH", &format!("{LEASES}/{name}"), content, patch).await;
        match patched {
            Err(404) if makes => {
                let mut object = patch.clone();
                object["metadata"]["name"] = name.into();
                self.post(LEASES, &object).await
            }
            patched => patched,
        }
    }
}

impl Store for Kubernetes {
    fn lock(&self) -> &dyn Lock {
        &self.lock
    }

    fn rules(&self) -> Rules {
        Rules {
            // Lives are whole seconds.
            slack: Duration::from_secs(1),
            hint_delivery: HintDelivery::Last,
            ..Rules::new(Retention::Forever, TTL)
        }
    }

    fn deeds(&self) -> &'static [Deed] {
        &[Deed::Delete, Deed::Put, Deed::Touch, Deed::Invalid]
    }

    fn commit<'a>(
        &'a self,
        name: &'a str,
        deed: Deed,
        _expected: Option<Revision>,
    ) -> BoxFuture<'a, Result<Option<Revision>, LockErrorKind>> {
        async move {
            let now = k8s_openapi::jiff::Timestamp::now();
            let now = now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
            let record = |seconds: i64| json!({ "spec": { "holderIdentity": FOREIGN, "renewTime": now, "leaseDurationSeconds": seconds } });
            let done = match deed {
                Deed::Delete => {
                    let path = format!("{LEASES}/{name}");
                    self.admin.send("DELETE", &path, "application/json", &Value::Null).await
                }
                Deed::Put => {
                    self.admin.patch(name, &record(TTL.as_secs().cast_signed()), true).await
                }
                Deed::Touch => {
                    let touch = json!({ "metadata": { "labels": { "touched": fastrand::u64(..).to_string() } } });
                    self.admin.patch(name, &touch, false).await
                }
                _ => self.admin.patch(name, &record(-fastrand::i64(0..3)), true).await,
            };
            match done {
                // No write expects its revision before the lock has seen it, too.
                Ok(_) | Err(404) => Ok(None),
                Err(422) => Err(LockErrorKind::Misconfigured),
                Err(_) => Err(LockErrorKind::OutcomeUnknown),
            }
        }
        .boxed()
    }

    fn upheavals(&self) -> &'static [Upheaval] {
        &[Upheaval::Remade, Upheaval::Crashed]
    }

    fn take_away(&self, upheaval: Upheaval) -> LocalBoxFuture<'_, ()> {
        async move {
            if upheaval == Upheaval::Crashed {
                return self.server.kill();
            }
            eventually("no Leases", async || {
                let json = "application/json";
                self.admin.send("DELETE", LEASES, json, &Value::Null).await.ok()
            })
            .await;
        }
        .boxed_local()
    }

    fn bring_back(&self, upheaval: Upheaval) -> LocalBoxFuture<'_, ()> {
        async move {
            if upheaval == Upheaval::Crashed {
                self.server.restart().await;
                eventually("the lock", async || self.lock.read("any", TTL).await.ok()).await;
            }
        }
        .boxed_local()
    }
}
