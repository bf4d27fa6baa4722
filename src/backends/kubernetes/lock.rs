//! The lock: conditional writes on one object an election.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use serde_json::Value;
use tokio::time::Instant;

use super::api::Objects;
use super::cluster::Cluster;
use super::events::Recorder;
use super::inspect::Office;
use super::known::Election;
use super::record::Place;
use super::resource::{Carrier, OnConfigMap, OnEndpoints, OnLease, check_object_name};
use super::timing::LeaseTiming;
use super::watch;
use crate::lock::codec::mark::LONGEST_IDENTITY;
use crate::lock::{
    Capabilities, HintSink, Lock, LockError, LockErrorKind, Reading, Release, Revision,
    Subscription, Write, check_not_empty,
};
use crate::protocol::TimingOptions;
use crate::time::timer::from_now;
use crate::util::per_key::PerKey;
use crate::util::text::head;

/// The lock on a Lease of `coordination.k8s.io/v1`.
pub type LeaseLock = ObjectLock<OnLease>;

/// The lock in the annotation `control-plane.alpha.kubernetes.io/leader` of a ConfigMap, as client-go wrote it until 0.23.
pub type ConfigMapLock = ObjectLock<OnConfigMap>;

/// The lock in the annotation `control-plane.alpha.kubernetes.io/leader` of an Endpoints object, as client-go wrote it
/// until 0.23.
pub type EndpointsLock = ObjectLock<OnEndpoints>;

/// The lock on one object an election: [`LeaseLock`], [`ConfigMapLock`], [`EndpointsLock`].
///
/// Cheap to clone; clones share what they know and one watch an election.
pub struct ObjectLock<C: Carrier> {
    inner: Arc<Inner>,
    carrier: PhantomData<fn() -> C>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) objects: Objects,
    pub(super) place: Place,
    pub(super) api_version: &'static str,
    pub(super) timing: LeaseTiming,
    /// The object of every election, where it is not named after the election.
    pub(super) object: Option<String>,
    pub(super) identity: Option<String>,
    pub(super) elections: PerKey<Election>,
    pub(super) recorder: Option<Recorder>,
}

impl<C: Carrier> ObjectLock<C> {
    pub(super) fn new(cluster: &Cluster) -> Self {
        let (access, namespace) = (cluster.access(), cluster.namespace());
        let inner = Inner {
            objects: Objects::new(access.clone(), C::path(namespace), C::KIND, namespace),
            place: C::PLACE,
            api_version: C::API_VERSION,
            timing: LeaseTiming::default(),
            object: None,
            identity: cluster.identity().map(str::to_owned),
            elections: PerKey::default(),
            recorder: Some(Recorder::new(access.clone(), namespace)),
        };
        Self { inner: Arc::new(inner), carrier: PhantomData }
    }

    /// Another timing than client-go's defaults. Everybody in the election should have the same.
    pub fn timing(self, timing: LeaseTiming) -> Self {
        self.change(|inner| inner.timing = timing)
    }

    /// The object that carries the election, where that is not the election's own name: for a name that is none of an
    /// object, such as `my_app`. Then the lock serves one election, whatever it is called.
    pub fn object(self, name: impl Into<String>) -> Self {
        self.change(|inner| inner.object = Some(name.into()))
    }

    /// Writes no Events. The right to create them is then not needed.
    pub fn without_events(self) -> Self {
        self.change(|inner| inner.recorder = None)
    }

    pub(super) fn objects(&self) -> &Objects {
        &self.inner.objects
    }

    pub(super) async fn tell_eviction(&self, name: &str, object: &Value, holder: &str) {
        if let Some(recorder) = &self.inner.recorder {
            let reference = self.inner.objects.reference(self.inner.api_version, name, object);
            recorder.tell_eviction(reference, head(holder, LONGEST_IDENTITY / 2)).await;
        }
    }

    /// How long a holder is waited for that does not say.
    pub(super) fn unsaid(&self) -> Duration {
        self.inner.timing.lease()
    }

    /// The same lock, differently described, which shares nothing with this one any more.
    fn change(self, change: impl FnOnce(&mut Inner)) -> Self {
        let old = &*self.inner;
        let mut inner = Inner {
            objects: old.objects.clone(),
            place: old.place,
            api_version: old.api_version,
            timing: old.timing,
            object: old.object.clone(),
            identity: old.identity.clone(),
            elections: PerKey::default(),
            recorder: old.recorder.as_ref().map(Recorder::another),
        };
        change(&mut inner);
        Self { inner: Arc::new(inner), carrier: PhantomData }
    }
}

impl<C: Carrier> Lock for ObjectLock<C> {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            longest_lease: self.inner.timing.lease(),
            reads: true,
            empty_is_proof: false,
            expires: false,
            reads_are_durable: true,
            longest_identity: LONGEST_IDENTITY,
        }
    }

    fn timing(&self) -> TimingOptions {
        self.inner.timing.options()
    }

    fn identity(&self) -> Option<String> {
        self.inner.identity.clone()
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        check_not_empty(name)?;
        check_object_name(self.inner.object_of(name))
    }

    fn read<'a>(
        &'a self,
        name: &'a str,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Reading, LockError>> {
        self.inner.read(name, timeout).boxed()
    }

    fn write<'a>(
        &'a self,
        name: &'a str,
        write: Write,
    ) -> BoxFuture<'a, Result<Revision, LockError>> {
        self.inner.write(name, write).boxed()
    }

    fn release<'a>(
        &'a self,
        name: &'a str,
        release: Release,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        self.inner.release(name, release).boxed()
    }

    /// Of the objects that have a record. Takes the right to `list`.
    fn names(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<String>, LockError>> {
        let names =
            |offices: Vec<Office>| offices.into_iter().map(|office| office.object).collect();
        self.offices(timeout).map_ok(names).boxed()
    }

    fn evict<'a>(
        &'a self,
        name: &'a str,
        expected: Revision,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        let by = from_now(timeout);
        async move {
            self.check_name(name)
                .map_err(|why| LockError::new(LockErrorKind::Misconfigured, why))?;
            let object = self.inner.object_of(name);
            let version = self.inner.version_of(object, expected, by).await?;
            let left = by.saturating_duration_since(Instant::now());
            ObjectLock::evict(self, object, version, left).await.map(drop)
        }
        .boxed()
    }

    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        watch::subscribe(&self.inner, self.inner.object_of(name), sink)
    }
}

impl<C: Carrier> Clone for ObjectLock<C> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), carrier: PhantomData }
    }
}

impl<C: Carrier> fmt::Debug for ObjectLock<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectLock")
            .field("kind", &self.inner.objects.kind())
            .field("namespace", &self.inner.objects.namespace())
            .finish_non_exhaustive()
    }
}
