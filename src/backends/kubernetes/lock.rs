//! The trait `Lock` on objects.

use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use tokio::time::Instant;

use super::inspect::Office;
use super::resource::{Carrier, check_object_name};
use super::resource_lock::ObjectLock;
use super::watch;
use crate::lock::codec::mark::MAX_IDENTITY_LEN;
use crate::lock::{
    Capabilities, HintSink, Lock, LockError, LockErrorKind, Reading, Release, Revision,
    Subscription, Write, check_not_empty,
};
use crate::protocol::TimingOptions;
use crate::time::timer::deadline_after;

impl<C: Carrier> Lock for ObjectLock<C> {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            longest_lease: self.inner.timing.lease(),
            reads: true,
            empty_is_proof: false,
            expires: false,
            reads_are_durable: true,
            longest_identity: MAX_IDENTITY_LEN,
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
        let by = deadline_after(timeout);
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
