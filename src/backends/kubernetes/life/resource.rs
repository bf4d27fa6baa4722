//! The kinds of objects that can be the lock of a leader for life.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Map, Value};

use crate::backends::kubernetes::api::Objects;
use crate::backends::kubernetes::api_client::ApiClient;

/// The kind of object that is the lock of a leader for life.
#[derive(Clone)]
pub struct LifeResource {
    pub(super) api: ApiResource,
    pub(super) fields: Map<String, Value>,
}

impl LifeResource {
    /// A ConfigMap without data, as operator-sdk creates it.
    pub fn config_map() -> Self {
        Self::object(ApiResource::erase::<ConfigMap>(&()))
    }

    /// A Lease without a holder. It is not a Lease of
    /// [`lease_lock`](crate::kubernetes::Cluster::lease_lock): use another name for that.
    pub fn lease() -> Self {
        Self::object(ApiResource::erase::<Lease>(&()))
    }

    /// Any other namespaced kind.
    pub fn object(api: ApiResource) -> Self {
        Self { api, fields: Map::new() }
    }

    /// Sets the fields that the kind requires besides `metadata`, such as its `spec`.
    pub fn with_fields(mut self, fields: Map<String, Value>) -> Self {
        self.fields = fields;
        self
    }

    /// The fields of a lock; `None`: the API server may add others to this kind.
    pub(super) fn known_fields(&self) -> Option<&Map<String, Value>> {
        matches!(&*self.api.kind, "ConfigMap" | "Lease").then_some(&self.fields)
    }

    pub(super) fn objects(&self, access: &ApiClient, namespace: &str) -> Objects {
        let path = DynamicObject::url_path(&self.api, Some(namespace));
        Objects::new(access.clone(), path, self.api.kind.clone(), namespace)
    }
}

partial_debug!(LifeResource, self, kind: self.api.kind);
