//! Objects of a bucket: on fake-gcs-server, versitygw or Azurite.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use futures_util::{FutureExt, TryStreamExt};
use incumbent::lock::{Lock, LockErrorKind, Revision};
use incumbent::object_storage::ObjectStorageLock;
use incumbent_sim::Retention;
use incumbent_test_support::HttpFaultProxy;
use incumbent_test_support::object_stores::{Program, StoreServer};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt};

use crate::acting::FOREIGN;
use crate::kinds::{Azure, Gcs, Kind, S3, of_go};
use crate::store::{Deed, HintDelivery, Rules, Store, Upheaval};

/// The longest lease.
const TTL: Duration = Duration::from_secs(2);

/// A bucket.
pub struct Objects<K> {
    server: StoreServer,
    /// In front of the lock; another is in front of its administrator.
    _proxies: [HttpFaultProxy; 2],
    admin: Arc<dyn ObjectStore>,
    lock: ObjectStorageLock,
    /// Copies that the administrator has kept.
    saved: Mutex<HashMap<String, Bytes>>,
    kind: PhantomData<fn() -> K>,
}

/// Starts the store of that name.
pub async fn start(name: &str) -> Option<Arc<dyn Store>> {
    Some(match name {
        "gcs" => Arc::new(Objects::<Gcs>::start().await),
        "s3" => Arc::new(Objects::<S3>::start().await),
        "azure" => Arc::new(Objects::<Azure>::start().await),
        _ => return None,
    })
}

impl<K: Kind> Objects<K> {
    async fn start() -> Self {
        let server = StoreServer::start(K::PROGRAM).await;
        let translates = K::PROGRAM == Program::FakeGcs;
        let proxies = [
            HttpFaultProxy::start(server.port(), translates).await,
            HttpFaultProxy::start(server.port(), translates).await,
        ];
        let admin = K::store(proxies[1].port());
        let bucket = K::bucket(proxies[0].port()).max_lease(TTL).max_clock_skew(Duration::ZERO);
        let (lock, saved) = (bucket.lock(), Mutex::default());
        Self { server, _proxies: proxies, admin, lock, saved, kind: PhantomData }
    }

    async fn delete(&self, path: &Path) -> Result<(), Error> {
        match K::delete(&self.admin, self.server.port(), path).await {
            Err(Error::NotFound { .. }) => Ok(()),
            done => done,
        }
    }

    async fn put(&self, name: &str, body: impl Into<Bytes>) -> Result<(), Error> {
        self.admin.put(&Path::from(name), body.into().into()).await.map(drop)
    }

    async fn get(&self, name: &str) -> Result<Option<Bytes>, Error> {
        match self.admin.get(&Path::from(name)).await {
            Err(Error::NotFound { .. }) => Ok(None),
            found => found?.bytes().await.map(Some),
        }
    }

    async fn save(&self, name: &str) -> Result<(), Error> {
        if let Some(found) = self.get(name).await? {
            let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
            saved.insert(name.to_owned(), found);
        }
        Ok(())
    }

    async fn put_back(&self, name: &str) -> Result<(), Error> {
        let Some(found) = self.get(name).await? else { return Ok(()) };
        self.delete(&Path::from(name)).await?;
        self.put(name, found).await
    }

    fn saved(&self, name: &str) -> Option<Bytes> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

/// What a candidate of Go's writes, with parameters that no other write has: its time is in
/// seconds.
fn foreign(number: u64) -> Vec<u8> {
    let mut body = of_go(number, FOREIGN, TTL);
    body.extend([0x2a, 8]);
    body.extend(fastrand::u64(..).to_be_bytes());
    body
}

impl<K: Kind> Store for Objects<K> {
    fn lock(&self) -> &dyn Lock {
        &self.lock
    }

    fn rules(&self) -> Rules {
        let hashed = K::PROGRAM == Program::Versitygw;
        Rules {
            hint_delivery: HintDelivery::Nothing,
            ..Rules::new(Retention::Objects { hashed }, TTL)
        }
    }

    fn deeds(&self) -> &'static [Deed] {
        use Deed::*;
        &[Delete, PutNumbered(0), Spoil, Save, Restore, PutBack, PutBack]
    }

    fn commit<'a>(
        &'a self,
        name: &'a str,
        deed: Deed,
        _expected: Option<Revision>,
    ) -> BoxFuture<'a, Result<Option<Revision>, LockErrorKind>> {
        async move {
            let done = match deed {
                Deed::Delete => self.delete(&Path::from(name)).await,
                Deed::PutNumbered(number) => self.put(name, foreign(number)).await,
                Deed::Spoil => self.put(name, "{\"holder\": 1}").await,
                Deed::Save => self.save(name).await,
                Deed::PutBack => self.put_back(name).await,
                Deed::Restore => match self.saved(name) {
                    Some(body) => self.put(name, body).await,
                    None => return Err(LockErrorKind::Conflict),
                },
                _ => return Err(LockErrorKind::Misconfigured),
            };
            done.map(|()| None).map_err(|_| LockErrorKind::OutcomeUnknown)
        }
        .boxed()
    }

    fn upheavals(&self) -> &'static [Upheaval] {
        match K::PROGRAM {
            Program::Versitygw => &[Upheaval::Remade, Upheaval::Killed],
            _ => &[Upheaval::Remade],
        }
    }

    fn take_away(&self, upheaval: Upheaval) -> LocalBoxFuture<'_, ()> {
        async move {
            if upheaval == Upheaval::Killed {
                return self.server.kill();
            }
            let all: Vec<_> = self.admin.list(None).try_collect().await.expect("all objects");
            for object in all {
                self.delete(&object.location).await.expect("nothing left of it");
            }
        }
        .boxed_local()
    }

    fn bring_back(&self, upheaval: Upheaval) -> LocalBoxFuture<'_, ()> {
        async move {
            if upheaval == Upheaval::Killed {
                self.server.restart().await;
            }
        }
        .boxed_local()
    }
}

impl<K> fmt::Debug for Objects<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").field("lock", &self.lock).finish_non_exhaustive()
    }
}
