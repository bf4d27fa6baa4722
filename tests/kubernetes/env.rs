//! A namespace of an API server, with a service account that has the permissions of `deploy`
//! and no others.

use std::fs;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use incumbent::kubernetes::{Cluster, LeaseTiming};
use incumbent::lock::Lock;
use incumbent::{Election, new_election};
use incumbent_test_support::{KubeServer, eventually, roles_in_deploy};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject};
use kube::core::ApiResource;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::conformance::{Service, working};
use crate::requests;

/// The object of the election, as the Role of the documentation names it.
pub const OBJECT: &str = "my-app";

const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

/// Longer than a candidate tries to write an Event.
const EVENT_WRITTEN: Duration = Duration::from_secs(10);

/// One server serves all tests that do not break it.
async fn shared_server() -> Arc<KubeServer> {
    static SERVER: OnceCell<Arc<KubeServer>> = OnceCell::const_new();
    let start = || async { Arc::new(KubeServer::start(&[]).await) };
    Arc::clone(SERVER.get_or_init(start).await)
}

/// A kind of object that carries the lock.
pub trait Kind: Send + Sync + 'static {
    /// The manifest in `deploy` with its Role.
    const MANIFEST: &'static str = "kubernetes.yaml";
    /// As a Role names it, with its group.
    const RESOURCE: (&'static str, &'static str);

    fn resource() -> ApiResource;
    fn lock(cluster: &Cluster, timing: LeaseTiming) -> Arc<dyn Lock>;

    /// Each election in an object of its own.
    fn lock_of_many(cluster: &Cluster, timing: LeaseTiming) -> Arc<dyn Lock>;
}

pub enum InLease {}
pub enum InConfigMap {}
pub enum InEndpoints {}

/// The lock of a leader for life, which is no lock of an election with leases; reading is the same.
pub enum ForLife {}

impl Kind for ForLife {
    const MANIFEST: &'static str = "kubernetes-life.yaml";
    const RESOURCE: (&'static str, &'static str) = InConfigMap::RESOURCE;

    fn resource() -> ApiResource {
        InConfigMap::resource()
    }

    fn lock(cluster: &Cluster, timing: LeaseTiming) -> Arc<dyn Lock> {
        InConfigMap::lock(cluster, timing)
    }

    fn lock_of_many(cluster: &Cluster, timing: LeaseTiming) -> Arc<dyn Lock> {
        InConfigMap::lock_of_many(cluster, timing)
    }
}

impl Kind for InLease {
    const RESOURCE: (&'static str, &'static str) = ("coordination.k8s.io", "leases");

    fn resource() -> ApiResource {
        ApiResource::erase::<Lease>(&())
    }

    fn lock(cluster: &Cluster, timing: LeaseTiming) -> Arc<dyn Lock> {
        Arc::new(cluster.lease_lock().timing(timing).object(OBJECT))
    }

    fn lock_of_many(cluster: &Cluster, timing: LeaseTiming) -> Arc<dyn Lock> {
        Arc::new(cluster.lease_lock().timing(timing))
    }
}

impl Kind for InConfigMap {
    const RESOURCE: (&'static str, &'static str) = ("", "configmaps");

    fn resource() -> ApiResource {
        ApiResource::erase::<ConfigMap>(&())
    }

    fn lock(cluster: &Cluster, timing: LeaseTiming) -> Arc<dyn Lock> {
        Arc::new(cluster.config_map_lock().timing(timing).object(OBJECT))
    }

    fn lock_of_many(cluster: &Cluster, timing: LeaseTiming) -> Arc<dyn Lock> {
        Arc::new(cluster.config_map_lock().timing(timing))
    }
}

impl Kind for InEndpoints {
    const RESOURCE: (&'static str, &'static str) = ("", "endpoints");

    fn resource() -> ApiResource {
        ApiResource::erase::<Endpoints>(&())
    }

    fn lock(cluster: &Cluster, timing: LeaseTiming) -> Arc<dyn Lock> {
        Arc::new(cluster.endpoints_lock().timing(timing).object(OBJECT))
    }

    fn lock_of_many(cluster: &Cluster, timing: LeaseTiming) -> Arc<dyn Lock> {
        Arc::new(cluster.endpoints_lock().timing(timing))
    }
}

pub struct TestEnv<K: Kind = InLease> {
    pub server: Arc<KubeServer>,
    pub admin: kube::Client,
    pub namespace: String,
    /// Of the service account.
    pub kubeconfig: PathBuf,
    pub timing: LeaseTiming,
    kind: PhantomData<K>,
}

/// A lease that is short, with the other durations in client-go's proportions.
pub fn timing(lease: Duration) -> LeaseTiming {
    LeaseTiming::new(lease, lease * 4 / 5, lease / 5).expect("client-go's inequalities")
}

impl<K: Kind> TestEnv<K> {
    pub async fn new(lease: Duration) -> Self {
        Self::on(shared_server().await, lease).await
    }

    /// With a server of its own, to be broken.
    pub async fn alone(lease: Duration) -> Self {
        Self::on(Arc::new(KubeServer::start(&[]).await), lease).await
    }

    pub async fn on(server: Arc<KubeServer>, lease: Duration) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let namespace = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let cluster = Cluster::from_kubeconfig(server.kubeconfig(), None).await.unwrap();
        let admin = cluster.client().clone();
        let kubeconfig = server.file(&format!("{namespace}.kubeconfig"));
        let timing = timing(lease);
        let env = Self { server, admin, namespace, kubeconfig, timing, kind: PhantomData };
        env.furnish().await;
        env
    }

    async fn furnish(&self) {
        let namespace = &self.namespace;
        self.post("/api/v1/namespaces", &json!({ "metadata": { "name": namespace } })).await;
        let account = json!({ "metadata": { "name": "my-app" } });
        self.post(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), &account).await;
        let (group, resource) = K::RESOURCE;
        let group = if group.is_empty() { "\"\"" } else { group };
        for (kind, manifest) in roles_in_deploy(K::MANIFEST) {
            let place = match &*kind {
                "Role" => format!("namespaces/{namespace}/roles"),
                "RoleBinding" => format!("namespaces/{namespace}/rolebindings"),
                "ClusterRole" => "clusterroles".to_owned(),
                "ClusterRoleBinding" => "clusterrolebindings".to_owned(),
                other => panic!("a manifest of a {other}"),
            };
            let path = format!("/apis/rbac.authorization.k8s.io/v1/{place}");
            // As the documentation says for the older locks, and in this namespace.
            let manifest = manifest
                .replace("[coordination.k8s.io]", &format!("[{group}]"))
                .replace("[leases]", &format!("[{resource}]"))
                .replace("namespace: default", &format!("namespace: {namespace}"))
                .replace("my-app-nodes", &format!("{namespace}-nodes"));
            self.send("POST", &path, "application/yaml", manifest.into_bytes()).await.unwrap();
        }
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/my-app/token");
        let asked = json!({ "spec": { "expirationSeconds": 3600 } });
        let token = self.post(&path, &asked).await["status"]["token"].as_str().unwrap().to_owned();
        let admin = fs::read_to_string(self.server.kubeconfig()).unwrap();
        fs::write(&self.kubeconfig, admin.replace("admin-token", &token)).unwrap();
        // The server learns of the binding a little later.
        let lock = self.lock_of_account().await;
        eventually("the rights of the account", async || {
            lock.read("any", Duration::from_secs(5)).await.ok()
        })
        .await;
    }

    /// Sends a request, again while the server is too busy to answer. `null`: an earlier attempt
    /// has done it after all.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        content: &str,
        body: Vec<u8>,
    ) -> Result<Value, kube::Error> {
        requests::send(&self.admin, method, path, content, &body).await
    }

    pub async fn post(&self, path: &str, object: &Value) -> Value {
        requests::post(&self.admin, path, object).await
    }

    pub async fn patch_at(&self, path: &str, patch: &Value) -> Value {
        let body = serde_json::to_vec(patch).unwrap();
        let content = "application/merge-patch+json";
        self.send("PATCH", path, content, body).await.expect("a patch")
    }

    /// What is at this path.
    pub async fn get(&self, path: &str) -> Option<Value> {
        match self.send("GET", path, "application/json", vec![]).await {
            Ok(object) => Some(object),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// The Event of an election with this message. `None`: it was not written in time, as may be on
    /// a busy machine.
    pub async fn event(&self, message: &str) -> Option<Value> {
        let path = format!("/api/v1/namespaces/{}/events", self.namespace);
        let find = async {
            loop {
                let events = self.get(&path).await.expect("Events");
                let mut events = events["items"].as_array().into_iter().flatten();
                if let Some(found) = events.find(|event| event["message"] == message) {
                    return found.clone();
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(EVENT_WRITTEN, find).await.ok()
    }

    pub async fn delete(&self, path: &str) {
        self.send("DELETE", path, "application/json", vec![]).await.expect("a delete");
    }

    /// The path of the objects of this kind.
    pub fn objects(&self) -> String {
        let (group, plural) = K::RESOURCE;
        let group = match group {
            "" => "/api/v1".to_owned(),
            group => format!("/apis/{group}/v1"),
        };
        format!("{group}/namespaces/{}/{plural}", self.namespace)
    }

    /// The path of the object of the election.
    fn path(&self) -> String {
        format!("{}/{OBJECT}", self.objects())
    }

    pub async fn cluster(&self) -> Cluster {
        let cluster = Cluster::from_kubeconfig(&self.kubeconfig, None).await.unwrap();
        cluster.in_namespace(&*self.namespace)
    }

    async fn lock_of_account(&self) -> Arc<dyn Lock> {
        K::lock(&self.cluster().await, self.timing)
    }

    /// A candidate with the timing of the lock.
    pub async fn campaign(&self, identity: &str) -> Election {
        working(new_election("my_app", self.lock_of_account().await).identity(identity))
            .start()
            .expect("a start")
    }

    pub fn api(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), &self.namespace, &K::resource())
    }

    /// The object, as it is.
    pub async fn object(&self) -> Option<Value> {
        self.get(&self.path()).await
    }

    /// The record of client-go, whichever object has it.
    pub async fn record(&self) -> Option<Value> {
        let object = self.object().await?;
        match object.get("spec") {
            Some(spec) if K::RESOURCE.1 == "leases" => Some(spec.clone()),
            _ => serde_json::from_str(object["metadata"]["annotations"][LEADER].as_str()?).ok(),
        }
    }

    pub async fn patch(&self, patch: Value) {
        self.patch_at(&self.path(), &patch).await;
    }

    /// Overwrites the record unconditionally, as an administrator does.
    pub async fn write_record(&self, record: Value) {
        match K::RESOURCE.1 {
            "leases" => self.patch(json!({ "spec": record })).await,
            _ => {
                self.patch(json!({ "metadata": { "annotations": { LEADER: record.to_string() } } }))
                    .await
            }
        }
    }
}

impl<K: Kind> Service for TestEnv<K> {
    const LEASE: Duration = Duration::from_secs(3);

    async fn start() -> Self {
        Self::new(Self::LEASE).await
    }

    async fn lock(&self) -> Arc<dyn Lock> {
        self.lock_of_account().await
    }

    async fn operators_lock(&self) -> Arc<dyn Lock> {
        let cluster = Cluster::new(self.admin.clone()).in_namespace(&*self.namespace);
        K::lock(&cluster, self.timing)
    }

    async fn lock_of_many(&self) -> Arc<dyn Lock> {
        let cluster = Cluster::new(self.admin.clone()).in_namespace(&*self.namespace);
        K::lock_of_many(&cluster, self.timing)
    }

    async fn evict(&self, _name: &str) {
        self.delete(&self.path()).await;
    }

    async fn overwrite(&self, _name: &str, identity: &str) {
        let transitions =
            if K::RESOURCE.1 == "leases" { "leaseTransitions" } else { "leaderTransitions" };
        let times = match K::RESOURCE.1 {
            "leases" => "2026-01-01T00:00:00.000001Z",
            _ => "2026-01-01T00:00:00Z",
        };
        let record = json!({
            "holderIdentity": identity,
            "leaseDurationSeconds": 1,
            "acquireTime": times,
            "renewTime": times,
            transitions: 7,
        });
        self.write_record(record).await;
    }

    async fn holder(&self, _name: &str) -> Option<String> {
        let record = self.record().await?;
        let holder = record["holderIdentity"].as_str().filter(|holder| !holder.is_empty())?;
        // The record of a holder whose lease has run out is not emptied. On one machine wall clocks
        // may be compared; where the record's are too coarse, an unchanged record shows it.
        let renewed: Timestamp = record["renewTime"].as_str()?.parse().unwrap();
        let lease = Duration::from_secs(record["leaseDurationSeconds"].as_u64()?);
        let age = Timestamp::now().as_millisecond() - renewed.as_millisecond();
        let age = Duration::from_millis(u64::try_from(age).unwrap_or_default());
        if age > lease {
            tokio::time::sleep((lease + Duration::from_secs(1)).saturating_sub(age)).await;
            if self.record().await.as_ref() == Some(&record) {
                return None;
            }
        }
        Some(holder.to_owned())
    }
}
