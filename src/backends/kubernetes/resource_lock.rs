//! The lock on objects of one kind, and its configuration.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::api::Objects;
use super::cluster::Cluster;
use super::codec::NEW;
use super::events::Recorder;
use super::record::{annotate, resource_version};
use super::resource::{ConfigMapKind, EndpointsKind, LeaseKind, ResourceKind, check_object};
use super::store::ResourceLockState;
use super::timing::LeaseTiming;
use crate::lock::LockError;
use crate::time::timer::deadline_after;
use crate::util::per_key::PerKey;

/// The lock on a Lease of `coordination.k8s.io/v1`.
pub type LeaseLock = ResourceLock<LeaseKind>;

/// The lock in the annotation `control-plane.alpha.kubernetes.io/leader` of a ConfigMap, as
/// client-go wrote it until 0.23.
pub type ConfigMapLock = ResourceLock<ConfigMapKind>;

/// The lock in the annotation `control-plane.alpha.kubernetes.io/leader` of an Endpoints object, as
/// client-go wrote it until 0.23.
pub type EndpointsLock = ResourceLock<EndpointsKind>;

/// The lock on one object per election: [`LeaseLock`], [`ConfigMapLock`], [`EndpointsLock`].
///
/// Cheap to clone. Clones share their knowledge of the objects, and one watch per election.
///
/// ```no_run
/// use std::time::Duration;
///
/// use incumbent::kubernetes::{Cluster, LeaseTiming};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let timing = LeaseTiming::of_lease(Duration::from_secs(9))?;
/// let lock = Cluster::infer().await?.config_map_lock().timing(timing);
/// let election = incumbent::new_election("my-app", lock).start()?;
/// # Ok(())
/// # }
/// ```
pub struct ResourceLock<C: ResourceKind> {
    pub(super) inner: Arc<ResourceLockState>,
    kind: PhantomData<fn() -> C>,
}

impl<C: ResourceKind> ResourceLock<C> {
    pub(super) fn new(cluster: &Cluster) -> Self {
        let (access, namespace) = (cluster.access(), cluster.namespace());
        let inner = ResourceLockState {
            objects: Objects::new(access.clone(), C::path(namespace), C::KIND, namespace),
            location: C::LOCATION,
            api_version: C::API_VERSION,
            timing: LeaseTiming::default(),
            object: None,
            identity: cluster.identity().map(str::to_owned),
            elections: PerKey::default(),
            recorder: Some(Recorder::new(access.clone(), namespace)),
        };
        Self { inner: Arc::new(inner), kind: PhantomData }
    }

    /// Sets the timing. Default: client-go's. All candidates of the election should use the same.
    pub fn timing(self, timing: LeaseTiming) -> Self {
        self.change(|inner| inner.timing = timing)
    }

    /// Sets the object that carries the election. Default: the object with the election's name. Use
    /// it for an election name that is not a valid object name, such as `my_app`. The lock then
    /// serves one election, under any name.
    pub fn object(self, name: impl Into<String>) -> Self {
        self.change(|inner| inner.object = Some(name.into()))
    }

    /// Writes no Events, so the permission to create them is not needed.
    pub fn without_events(self) -> Self {
        self.change(|inner| inner.recorder = None)
    }

    /// Creates the object `name` for a new election, so that its first leader does not wait out a
    /// lease. Returns its resourceVersion.
    ///
    /// The caller asserts that no process leads by an earlier object of this name: a candidate
    /// believes it unless it has seen such an object itself.
    ///
    /// Requires the permission to `create`. `name` is the object's own name, regardless of
    /// [`object`](Self::object).
    ///
    /// # Errors
    /// [`Conflict`](crate::lock::LockErrorKind::Conflict) if the object exists; otherwise as
    /// [`LockAdmin::record`](crate::lock::LockAdmin::record).
    ///
    /// # Cancel safety
    /// If dropped, the object may have been created or not.
    pub async fn create(&self, name: &str, timeout: Duration) -> Result<u64, LockError> {
        check_object(name)?;
        let objects = self.objects();
        let mut object = json!({
            "apiVersion": C::API_VERSION,
            "kind": C::KIND,
            "metadata": { "name": name, "namespace": objects.namespace() },
        });
        annotate(&mut object, NEW, "true".to_owned());
        let created = objects.create(&object, deadline_after(timeout)).await;
        let created = created
            .map_err(|failure| objects.lock_error(failure, name, "create", "create", true))?;
        Ok(resource_version(&created).unwrap_or_default())
    }

    pub(super) fn objects(&self) -> &Objects {
        &self.inner.objects
    }

    /// Returns how long to wait for a holder whose record states no duration.
    pub(super) fn default_lease(&self) -> Duration {
        self.inner.timing.lease()
    }

    /// Returns the same lock with another configuration. The two share nothing.
    fn change(self, change: impl FnOnce(&mut ResourceLockState)) -> Self {
        let mut inner = self.inner.clone_config();
        change(&mut inner);
        Self { inner: Arc::new(inner), kind: PhantomData }
    }
}

impl Cluster {
    /// Returns the lock on Leases, for any number of elections.
    pub fn lease_lock(&self) -> LeaseLock {
        LeaseLock::new(self)
    }

    /// Returns the lock on ConfigMaps, for any number of elections.
    pub fn config_map_lock(&self) -> ConfigMapLock {
        ConfigMapLock::new(self)
    }

    /// Returns the lock on Endpoints, for any number of elections.
    pub fn endpoints_lock(&self) -> EndpointsLock {
        EndpointsLock::new(self)
    }
}

impl<C: ResourceKind> Clone for ResourceLock<C> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), kind: PhantomData }
    }
}

partial_debug!(
    ResourceLock<C: ResourceKind>, self, kind: self.inner.objects.kind(),
    namespace: self.inner.objects.namespace()
);
