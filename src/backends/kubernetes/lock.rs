//! `Lock` for `ResourceLock`.

use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use tokio::time::Instant;

use super::inspect::ElectionStatus;
use super::resource::{ResourceKind, check_object_name};
use super::resource_lock::ResourceLock;
use super::watch;
use crate::lock::codec::mark::MAX_IDENTITY_LEN;
use crate::lock::{
    Capabilities, HintSink, Lock, LockError, LockErrorKind, Reading, Release, Revision,
    Subscription, Write, check_not_empty,
};
use crate::protocol::TimingOptions;
use crate::time::timer::deadline_after;

impl<C: ResourceKind> Lock for ResourceLock<C> {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_lease: self.inner.timing.lease(),
            can_read: true,
            empty_is_proof: false,
            expires_entries: false,
            reads_are_durable: true,
            max_identity_len: MAX_IDENTITY_LEN,
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

    /// Returns the names of the objects that have a record. Requires the right to `list`.
    fn names(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<String>, LockError>> {
        let names = |statuses: Vec<ElectionStatus>| {
            statuses.into_iter().map(|status| status.object).collect()
        };
        self.list(timeout).map_ok(names).boxed()
    }

    fn evict<'a>(
        &'a self,
        name: &'a str,
        expected: Revision,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        let by = deadline_after(timeout);
        async move {
            self.check_name(name)
                .map_err(|why| LockError::new(LockErrorKind::Misconfigured, why))?;
            let object = self.inner.object_of(name);
            let version = self.inner.version_of(object, expected, by).await?;
            let left = by.saturating_duration_since(Instant::now());
            ResourceLock::evict(self, object, version, left).await.map(drop)
        }
        .boxed()
    }

    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        watch::subscribe(&self.inner, self.inner.object_of(name), sink)
    }
}
