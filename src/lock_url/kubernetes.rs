//! Locks of `kubernetes:[NAMESPACE]`.

use std::path::PathBuf;
use std::sync::Arc;

use super::error::{LockUrlError, LockUrlErrorKind};
use super::parts::Parts;
use super::target::{OpenOptions, StoreTarget};
use crate::backends::kubernetes::{
    Cluster, LeaseTiming, ResourceKind, ResourceLock, check_namespace, runs_a_program,
};
use crate::lock::Lock;

/// The objects of a namespace that hold elections: what a `kubernetes:` URL names.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct KubernetesObjects {
    /// The kind of the objects.
    pub kind: ObjectKind,
    /// The object of every election. Default: each election has one of its name.
    pub object: Option<String>,
    /// The timing of the elections, if it is set.
    pub timing: Option<LeaseTiming>,
    /// The file with the API server's address and credentials.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig.
    pub context: Option<String>,
    namespace: Option<String>,
    pub(super) shown: String,
}

/// A kind of objects that hold elections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ObjectKind {
    /// A Lease.
    #[default]
    Lease,
    /// The annotation of a ConfigMap.
    ConfigMap,
    /// The annotation of an Endpoints object.
    Endpoints,
}

impl KubernetesObjects {
    /// Creates the target that a URL without options names. Default of the namespace: that of the
    /// kubeconfig's context or of the pod.
    ///
    /// # Errors
    /// [`LockUrlErrorKind::Malformed`], if it cannot be the name of a namespace.
    pub fn new(namespace: Option<&str>) -> Result<Self, LockUrlError> {
        namespace.map_or(Ok(()), check_namespace).map_err(LockUrlError::malformed)?;
        Ok(Self {
            kind: ObjectKind::Lease,
            object: None,
            timing: None,
            kubeconfig: None,
            context: None,
            namespace: namespace.map(str::to_owned),
            shown: format!("kubernetes:{}", namespace.unwrap_or_default()),
        })
    }

    /// Returns the lock on these objects of a cluster. Sends no request.
    pub fn lock(&self, cluster: &Cluster) -> Arc<dyn Lock> {
        match self.kind {
            ObjectKind::Lease => self.chosen(cluster.lease_lock()),
            ObjectKind::ConfigMap => self.chosen(cluster.config_map_lock()),
            ObjectKind::Endpoints => self.chosen(cluster.endpoints_lock()),
        }
    }

    /// Returns the API server and the namespace. Sends no request.
    ///
    /// # Errors
    /// The kubeconfig, or the pod's service account, is unusable.
    pub async fn cluster(&self) -> Result<Cluster, LockUrlError> {
        let cluster = match (&self.kubeconfig, self.context.as_deref()) {
            (Some(file), context) => Cluster::from_kubeconfig(file, context).await,
            (None, Some(context)) => Cluster::in_context(context).await,
            (None, None) => Cluster::infer().await,
        };
        let cluster = cluster.map_err(|error| {
            let message = format!("{}: {error}", self.shown.trim_end_matches(':'));
            LockUrlError::with_source(LockUrlErrorKind::Unusable, message, error)
        })?;
        Ok(match &self.namespace {
            Some(namespace) => cluster.in_namespace(namespace),
            None => cluster,
        })
    }

    /// Whether its kubeconfig has a program run for the credentials (`exec`), which is a child of
    /// this process then. Does not run it.
    pub async fn runs_a_program(&self) -> bool {
        runs_a_program(self.kubeconfig.as_deref(), self.context.as_deref()).await
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

impl StoreTarget for KubernetesObjects {
    type Named = Self;

    fn parse(parts: &mut Parts) -> Result<Self, LockUrlError> {
        let namespace = parts.decoded(parts.place().trim_start_matches('/'))?;
        let named = Some(&*namespace).filter(|namespace| !namespace.is_empty());
        let objects = Self::new(named).map_err(|rule| parts.malformed(&rule.to_string()))?;
        Ok(Self {
            kind: match parts.take("kind").as_deref() {
                None | Some("lease") => ObjectKind::Lease,
                Some("configmap") => ObjectKind::ConfigMap,
                Some("endpoints") => ObjectKind::Endpoints,
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
            ..objects
        })
    }

    /// A lease that Kubernetes cannot represent is left for the election to refuse.
    fn named(&self, options: OpenOptions) -> Result<Self, LockUrlError> {
        let of_lease = options.lease.and_then(|lease| LeaseTiming::of_lease(lease).ok());
        Ok(Self { timing: self.timing.or(of_lease), ..self.clone() })
    }

    async fn open(&self, options: OpenOptions) -> Result<Arc<dyn Lock>, LockUrlError> {
        Ok(self.named(options)?.lock(&self.cluster().await?))
    }
}
