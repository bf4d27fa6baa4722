//! Discovery of peers behind a Kubernetes Service.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use kube::Client;
use serde_json::Value;

use super::source::{PeerSource, REFRESH, SourceError};
use crate::backends::kubernetes::Cluster;

/// Timeout of a request to the API server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The pods of a Service, read from its EndpointSlices. Pods that are not ready are included,
/// because a pod that waits to lead may not be ready.
///
/// Requires the permission to `list` `endpointslices` of `discovery.k8s.io`. For a headless Service
/// with `publishNotReadyAddresses`, [`DnsSource`](super::DnsSource) works without any permission.
#[derive(Clone)]
pub struct KubernetesService {
    client: Client,
    namespace: String,
    name: String,
    port: u16,
    refresh: Duration,
}

impl KubernetesService {
    /// Creates a source of the pods of the Service `name` in the cluster's namespace, at `port`.
    pub fn new(cluster: &Cluster, name: impl Into<String>, port: u16) -> Self {
        Self {
            client: cluster.client().clone(),
            namespace: cluster.namespace().to_owned(),
            name: name.into(),
            port,
            refresh: REFRESH,
        }
    }

    /// Sets how long to wait before the next request. Default: 10 s.
    pub fn refresh(mut self, refresh: Duration) -> Self {
        self.refresh = refresh;
        self
    }

    async fn list(&self) -> Result<Vec<SocketAddr>, SourceError> {
        let (namespace, name) = (&self.namespace, &self.name);
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| {
            let message = format!("the pods of the Service {namespace}/{name} cannot be listed");
            SourceError::new(message, source)
        };
        let plain = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        if !plain(name) || !plain(namespace) {
            return Err(failed(
                "the name of a Service consists of letters, digits and hyphens".into(),
            ));
        }
        let path = format!(
            "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D{name}"
        );
        let request = http::Request::get(path).body(Vec::new()).map_err(|e| failed(e.into()))?;
        let listed =
            tokio::time::timeout(REQUEST_TIMEOUT, self.client.request::<Value>(request)).await;
        let listed =
            listed.map_err(|_| failed(format!("no response within {REQUEST_TIMEOUT:?}").into()))?;
        Ok(addresses(&listed.map_err(|error| failed(error.into()))?, self.port))
    }
}

impl PeerSource for KubernetesService {
    fn addresses(&self) -> BoxFuture<'_, Result<Vec<SocketAddr>, SourceError>> {
        self.list().boxed()
    }

    fn refresh(&self) -> Option<Duration> {
        Some(self.refresh)
    }
}

partial_debug!(
    KubernetesService, self, namespace: self.namespace, name: self.name, port: self.port
);

/// Returns the addresses of pods that are not terminating. democracy speaks IPv4 only.
fn addresses(slices: &Value, port: u16) -> Vec<SocketAddr> {
    let array =
        |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let endpoints = array(slices.get("items"))
        .into_iter()
        .filter(|slice| slice.get("addressType").and_then(Value::as_str) == Some("IPv4"))
        .flat_map(|slice| array(slice.get("endpoints")));
    endpoints
        .filter(|endpoint| endpoint.pointer("/conditions/terminating") != Some(&Value::Bool(true)))
        .flat_map(|endpoint| array(endpoint.get("addresses")))
        .filter_map(|address| {
            Some(SocketAddr::new(address.as_str()?.parse::<IpAddr>().ok()?, port))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn terminating_pods_and_invalid_addresses_are_skipped() {
        let slices = json!({ "items": [
            { "addressType": "IPv4", "endpoints": [
                { "addresses": ["10.0.0.1"], "conditions": { "ready": false } },
                { "addresses": ["10.0.0.2"], "conditions": { "terminating": true } },
                { "addresses": ["junk", 7] },
            ] },
            { "addressType": "IPv6", "endpoints": [{ "addresses": ["::1"] }] },
            { "addressType": "IPv4", "endpoints": null },
        ] });
        assert_eq!(addresses(&slices, 5), ["10.0.0.1:5".parse().unwrap()]);
        assert_eq!(addresses(&json!(7), 5), []);
    }
}
