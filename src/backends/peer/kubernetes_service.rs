//! Discovery of peers behind a Kubernetes Service.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::source::{PeerSource, REFRESH, SourceError};
use crate::backends::kubernetes::Cluster;

/// The pods of a Service, read from its EndpointSlices. Pods that are not ready are included,
/// because a pod that waits to lead may not be ready.
///
/// Requires the permission to `list` `endpointslices` of `discovery.k8s.io`. For a headless Service
/// with `publishNotReadyAddresses`, [`DnsSource`](super::DnsSource) works without any permission.
#[derive(Clone)]
pub struct KubernetesService {
    cluster: Cluster,
    name: String,
    port: u16,
    refresh: Duration,
}

impl KubernetesService {
    /// Creates a source of the pods of the Service `name` in the cluster's namespace, at `port`.
    pub fn new(cluster: &Cluster, name: impl Into<String>, port: u16) -> Self {
        Self { cluster: cluster.clone(), name: name.into(), port, refresh: REFRESH }
    }

    /// Sets how long to wait before the next request. Default: 10 s.
    pub fn refresh(mut self, refresh: Duration) -> Self {
        self.refresh = refresh;
        self
    }

    async fn list(&self) -> Result<Vec<SocketAddr>, SourceError> {
        let slices = self.cluster.slices_of(&self.name).await.map_err(|error| {
            let (namespace, name) = (self.cluster.namespace(), &self.name);
            let message = format!("the pods of the Service {namespace}/{name} cannot be listed");
            SourceError::new(message, error)
        })?;
        Ok(addresses(&slices, self.port))
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
    KubernetesService, self, cluster: self.cluster, name: self.name, port: self.port
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
