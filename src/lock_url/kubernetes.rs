//! Locks of `kubernetes:[NAMESPACE]`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::error::{LockUrlError, LockUrlErrorKind};
use super::parts::Parts;
use crate::backends::kubernetes::{
    Cluster, LeaseTiming, ResourceKind, ResourceLock, check_namespace,
};
use crate::lock::Lock;

#[derive(Debug, Clone)]
pub(super) struct KubernetesTarget {
    namespace: String,
    kind: Kind,
    object: Option<String>,
    timing: Option<LeaseTiming>,
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    shown: String,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Lease,
    ConfigMap,
    Endpoints,
}

/// The objects that a `kubernetes:` URL names, for inspection.
#[derive(Debug, Clone)]
pub struct KubernetesObjects(pub(super) KubernetesTarget);

impl KubernetesObjects {
    /// Returns the API server and the namespace. Sends no request.
    ///
    /// # Errors
    /// The kubeconfig, or the pod's service account, is unusable.
    pub async fn cluster(&self) -> Result<Cluster, LockUrlError> {
        self.0.cluster().await
    }

    /// Returns the kind of the objects: `lease`, `configmap` or `endpoints`.
    pub fn kind(&self) -> &'static str {
        match self.0.kind {
            Kind::Lease => "lease",
            Kind::ConfigMap => "configmap",
            Kind::Endpoints => "endpoints",
        }
    }

    /// Returns the object of every election, if the URL names one.
    pub fn object(&self) -> Option<&str> {
        self.0.object.as_deref()
    }

    /// Returns the timing of the elections, if the URL sets it.
    pub fn timing(&self) -> Option<LeaseTiming> {
        self.0.timing
    }
}

impl KubernetesTarget {
    pub fn parse(parts: &mut Parts) -> Result<Self, LockUrlError> {
        let target = Self {
            namespace: parts.decoded(parts.place().trim_start_matches('/'))?,
            kind: match parts.take("kind").as_deref() {
                None | Some("lease") => Kind::Lease,
                Some("configmap") => Kind::ConfigMap,
                Some("endpoints") => Kind::Endpoints,
                Some(_) => return Err(parts.malformed("kind is lease, configmap or endpoints")),
            },
            object: parts.take("object"),
            timing: match parts.take_duration("lease")?.map(LeaseTiming::of_lease) {
                Some(Err(error)) => return Err(parts.malformed(&error.to_string())),
                Some(Ok(timing)) => Some(timing),
                None => None,
            },
            kubeconfig: parts.take("kubeconfig").map(PathBuf::from),
            context: parts.take("context"),
            shown: parts.shown().to_owned(),
        };
        if !target.namespace.is_empty() {
            check_namespace(&target.namespace).map_err(|rule| parts.malformed(&rule))?;
        }
        Ok(target)
    }

    /// Sets the timing, unless the URL sets it. A lease that Kubernetes cannot represent is left
    /// for the election to refuse.
    pub fn with_lease(&mut self, lease: Duration) {
        if let (None, Ok(timing)) = (self.timing, LeaseTiming::of_lease(lease)) {
            self.timing = Some(timing);
        }
    }

    pub async fn open(&self) -> Result<Arc<dyn Lock>, LockUrlError> {
        let cluster = self.cluster().await?;
        Ok(match self.kind {
            Kind::Lease => self.chosen(cluster.lease_lock()),
            Kind::ConfigMap => self.chosen(cluster.config_map_lock()),
            Kind::Endpoints => self.chosen(cluster.endpoints_lock()),
        })
    }

    async fn cluster(&self) -> Result<Cluster, LockUrlError> {
        let cluster = match (&self.kubeconfig, self.context.as_deref()) {
            (Some(file), context) => Cluster::from_kubeconfig(file, context).await,
            (None, Some(context)) => Cluster::in_context(context).await,
            (None, None) => Cluster::infer().await,
        };
        let mut cluster = cluster.map_err(|error| {
            let message = format!("{}: {error}", self.shown);
            LockUrlError::with_source(LockUrlErrorKind::Unusable, message, error)
        })?;
        if !self.namespace.is_empty() {
            cluster = cluster.in_namespace(&self.namespace);
        }
        Ok(cluster)
    }

    fn chosen<C: ResourceKind>(&self, mut lock: ResourceLock<C>) -> Arc<dyn Lock> {
        if let Some(timing) = self.timing {
            lock = lock.timing(timing);
        }
        if let Some(object) = &self.object {
            lock = lock.object(object);
        }
        Arc::new(lock)
    }
}
