//! A namespace with a Service and pods without a kubelet, and an account with the documented
//! permissions of what follows the leader.

use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::kubernetes::{Cluster, LeaderPod, ServiceFollowsLeader};
use incumbent_test_support::eventually;
use serde_json::{Value, json};

use crate::env::{InLease, OBJECT, TestEnv};

const DOCUMENTATION: &str = include_str!("../../docs/kubernetes-service.md");
const ROLE: &str = "my-app-traffic";

pub struct ServiceEnv {
    pub env: TestEnv<InLease>,
}

impl ServiceEnv {
    /// With a Service that directs port 80 to 8080.
    pub async fn new() -> Self {
        let this = Self::without_service().await;
        this.service(json!({ "ports": [{ "port": 80, "targetPort": 8080 }] })).await;
        this
    }

    pub async fn without_service() -> Self {
        let this = Self { env: TestEnv::new(Duration::from_secs(3)).await };
        let (_, rights) = DOCUMENTATION.split_once("\n## Permissions\n").expect("its heading");
        let (_, yaml) = rights.split_once("```yaml\n").expect("a manifest");
        let (yaml, _) = yaml.split_once("```").expect("its end");
        for (manifest, plural) in yaml.split("---\n").zip(["roles", "rolebindings"]) {
            let path = this.rbac(plural);
            let manifest = manifest.as_bytes().to_vec();
            this.env.send("POST", &path, "application/yaml", manifest).await.unwrap();
        }
        this.allowed("", "pods", "list", "", true).await;
        this
    }

    fn rbac(&self, plural: &str) -> String {
        format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}/{plural}", self.env.namespace)
    }

    fn core(&self, plural: &str) -> String {
        format!("/api/v1/namespaces/{}/{plural}", self.env.namespace)
    }

    pub fn slices(&self) -> String {
        format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", self.env.namespace)
    }

    /// Waits until the server knows whether the account has a permission.
    async fn allowed(&self, group: &str, resource: &str, verb: &str, name: &str, is: bool) {
        let namespace = &self.env.namespace;
        let review = json!({ "spec": {
            "user": format!("system:serviceaccount:{namespace}:my-app"),
            "resourceAttributes": {
                "namespace": namespace, "group": group, "resource": resource, "verb": verb,
                "name": name,
            },
        } });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        eventually("the server knows the rights", async || {
            let answer = self.env.post(path, &review).await;
            (answer["status"]["allowed"] == Value::Bool(is)).then_some(())
        })
        .await;
    }

    /// Takes a verb away from the account.
    pub async fn lacks(&self, group: &str, resource: &str, verb: &str, name: &str) {
        self.change_role(|rules| {
            for rule in rules.iter_mut().filter(|rule| rule["resources"][0] == resource) {
                rule["verbs"].as_array_mut().unwrap().retain(|other| other != verb);
            }
            rules.retain(|rule| !rule["verbs"].as_array().unwrap().is_empty());
        })
        .await;
        self.allowed(group, resource, verb, name, false).await;
    }

    /// Takes a slice away from the account.
    pub async fn lacks_slice(&self, name: &str) {
        self.change_role(|rules| {
            let named = rules.iter_mut().filter_map(|rule| rule.get_mut("resourceNames"));
            for names in named {
                names.as_array_mut().unwrap().retain(|other| other != name);
            }
        })
        .await;
        self.allowed("discovery.k8s.io", "endpointslices", "get", name, false).await;
    }

    async fn change_role(&self, change: impl FnOnce(&mut Vec<Value>)) {
        let path = format!("{}/{ROLE}", self.rbac("roles"));
        let mut role = self.env.get(&path).await.expect("a role");
        change(role["rules"].as_array_mut().unwrap());
        let body = serde_json::to_vec(&role).unwrap();
        self.env.send("PUT", &path, "application/json", body).await.unwrap();
    }

    pub async fn service(&self, spec: Value) -> Value {
        let service = json!({ "metadata": { "name": OBJECT }, "spec": spec });
        self.env.post(&self.core("services"), &service).await
    }

    /// Makes a pod with these addresses, as its kubelet would report them.
    pub async fn pod(&self, name: &str, addresses: &[&str]) -> Value {
        let pod = json!({
            "metadata": {
                "name": name, "labels": { "app": OBJECT, "topology.kubernetes.io/zone": "z1" },
            },
            "spec": {
                "nodeName": "n1",
                "containers": [{
                    "name": "main", "image": "none",
                    "ports": [{ "name": "web", "containerPort": 8443 }],
                }],
            },
        });
        self.env.post(&self.core("pods"), &pod).await;
        self.addresses(name, addresses).await
    }

    pub async fn addresses(&self, name: &str, addresses: &[&str]) -> Value {
        let ips: Vec<_> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
        let path = format!("{}/{name}/status", self.core("pods"));
        let mut status = json!({ "phase": "Running", "podIPs": ips });
        if let Some(first) = addresses.first() {
            status["podIP"] = json!(first);
        }
        self.patch(&path, json!({ "status": status })).await
    }

    pub async fn patch(&self, path: &str, patch: Value) -> Value {
        self.env.patch_at(path, &patch).await
    }

    pub async fn read_pod(&self, name: &str) -> Value {
        let path = format!("{}/{name}", self.core("pods"));
        self.env.get(&path).await.expect("a pod")
    }

    /// At once, as there is no kubelet.
    pub async fn delete_pod(&self, name: &str) {
        let path = format!("{}/{name}?gracePeriodSeconds=0", self.core("pods"));
        self.env.delete(&path).await;
    }

    pub async fn patch_pod(&self, name: &str, patch: Value) {
        self.patch(&format!("{}/{name}", self.core("pods")), patch).await;
    }

    /// A slice of the Service, if there is one.
    pub async fn slice(&self, family: &str) -> Option<Value> {
        let path = format!("{}/{OBJECT}-leader-{family}", self.slices());
        self.env.get(&path).await
    }

    /// The addresses in the slice of IPv4, and its token.
    pub async fn directs(&self) -> (Vec<String>, u64) {
        let slice = self.slice("ipv4").await.expect("a slice");
        (addresses_of(&slice), token_of(&slice))
    }

    pub async fn follower(&self, pod: &str) -> ServiceFollowsLeader {
        follower(&self.env.cluster().await, pod)
    }

    pub async fn leader_pod(&self, pod: &str) -> LeaderPod {
        LeaderPod::new(&self.env.cluster().await).pod(pod)
    }
}

pub fn follower(cluster: &Cluster, pod: &str) -> ServiceFollowsLeader {
    ServiceFollowsLeader::new(cluster, OBJECT).expect("a name").pod(pod)
}

pub fn addresses_of(slice: &Value) -> Vec<String> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let addresses = endpoints.flat_map(|endpoint| endpoint["addresses"].as_array().unwrap());
    addresses.map(|address| address.as_str().unwrap().to_owned()).collect()
}

pub fn token_of(slice: &Value) -> u64 {
    let token = slice["metadata"]["annotations"]["incumbent/token"].as_str();
    token.expect("a token").parse().unwrap()
}

/// A deadline that does not matter.
pub fn far() -> Instant {
    BootClock.now() + Duration::from_secs(600)
}
