//! A folder of a bucket behind a proxy, and an administrator with a proxy of its own.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use incumbent::lock::{Lock, Mark, Nonce, Write, WriteId};
use incumbent::object_storage::Bucket;
use incumbent::{Election, ElectionBuilder, new_election};
use incumbent_test_support::HttpFaultProxy;
use incumbent_test_support::object_stores::{Program, StoreServer};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

pub use crate::conformance::TIMEOUT;
use crate::conformance::{Service, working};
pub use crate::kinds::{Azure, Gcs, Kind, S3, azure, of_go};

/// The lease of the tests' elections.
pub const LEASE: Duration = Duration::from_secs(3);

pub struct TestEnv<K: Kind> {
    pub server: Arc<StoreServer>,
    pub proxy: HttpFaultProxy,
    /// The administrator's access, which no fault of `proxy` affects.
    pub store: Arc<dyn ObjectStore>,
    pub prefix: String,
    pub lease: Duration,
    _beside: HttpFaultProxy,
    kind: PhantomData<K>,
}

impl<K: Kind> TestEnv<K> {
    pub async fn new(lease: Duration) -> Self {
        let start = || async { Arc::new(StoreServer::start(K::PROGRAM).await) };
        Self::on(Arc::clone(K::shared().get_or_init(start).await), lease).await
    }

    /// With a server of its own, to be broken.
    pub async fn alone(lease: Duration) -> Self {
        Self::on(Arc::new(StoreServer::start(K::PROGRAM).await), lease).await
    }

    async fn on(server: Arc<StoreServer>, lease: Duration) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let translates = K::PROGRAM == Program::FakeGcs;
        let proxy = HttpFaultProxy::start(server.port(), translates).await;
        let beside = HttpFaultProxy::start(server.port(), translates).await;
        let store = K::store(beside.port());
        let prefix = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Self { server, proxy, store, prefix, lease, _beside: beside, kind: PhantomData }
    }

    pub fn bucket(&self) -> Bucket {
        let bucket = K::bucket(self.proxy.port()).prefix(&self.prefix);
        bucket.max_lease(self.lease).max_clock_skew(Duration::ZERO)
    }

    pub fn describe(&self, identity: &str) -> ElectionBuilder {
        let builder = new_election("my_app", self.bucket().lock()).identity(identity);
        let often = |_, random: f64| Duration::from_millis(100).mul_f64(0.5 + random);
        working(builder.lease(self.lease).backoff(often))
    }

    pub fn campaign(&self, identity: &str) -> Election {
        self.describe(identity).start().expect("a start")
    }

    pub fn path(&self) -> Path {
        Path::parse(format!("{}/my_app", self.prefix)).unwrap()
    }

    /// The object, as it is.
    pub async fn object(&self) -> Option<Vec<u8>> {
        match self.store.get(&self.path()).await {
            Ok(found) => Some(found.bytes().await.unwrap().to_vec()),
            Err(object_store::Error::NotFound { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Writes over the object without asking what is there, as no candidate does.
    pub async fn put(&self, body: Vec<u8>) {
        self.store.put(&self.path(), body.into()).await.unwrap();
    }

    pub async fn delete(&self) {
        K::delete(&self.store, self.server.port(), &self.path()).await.unwrap();
    }
}

/// Makes a test of a behaviour on each kind of store.
macro_rules! on_stores {
    ($test:ident: $behaviour:ident) => {
        mod $test {
            #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
            async fn s3() {
                super::$behaviour::<crate::env::S3>().await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
            async fn gcs() {
                super::$behaviour::<crate::env::Gcs>().await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
            async fn azure() {
                super::$behaviour::<crate::env::Azure>().await;
            }
        }
    };
}

/// A write of one and the same candidate.
pub fn write(number: u64) -> Write {
    Write {
        expected: None,
        identity: "c1".into(),
        mark: Mark::new(WriteId { nonce: Nonce(7), number }, LEASE, None),
        ttl: LEASE,
        advertisement: None,
        timeout: TIMEOUT,
    }
}

pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

impl<K: Kind> Service for TestEnv<K> {
    const LEASE: Duration = LEASE;

    async fn start() -> Self {
        Self::new(Self::LEASE).await
    }

    async fn lock(&self) -> Arc<dyn Lock> {
        Arc::new(self.bucket().lock())
    }

    /// Nothing reports a change before the next poll, or the leader's next renewal. Renewals come
    /// more often here than a real store takes them, so that a leader notices its eviction
    /// before another candidate can have led.
    async fn candidate(&self, identity: &str) -> ElectionBuilder {
        self.describe(identity).renewal(Duration::from_millis(100))
    }

    async fn evict(&self, _name: &str) {
        self.delete().await;
    }

    async fn overwrite(&self, _name: &str, identity: &str) {
        self.put(of_go(unix_ms() + 1000, identity, Duration::from_secs(1))).await;
    }

    async fn holder(&self, _name: &str) -> Option<String> {
        let entry = Fields::of(&self.object().await?);
        let holder = entry.text(2).filter(|holder| !holder.is_empty())?;
        // The object of a holder whose lease has run out is not emptied. On one machine wall clocks
        // may be compared.
        (entry.expiry_ms() > unix_ms()).then_some(holder)
    }
}

/// The fields of a protobuf message.
pub struct Fields(Vec<(u64, u64, Vec<u8>)>);

impl Fields {
    pub fn of(mut bytes: &[u8]) -> Self {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let mut number = 0;
            for shift in (0..).step_by(7) {
                let (byte, rest) = bytes.split_first().expect("a number");
                *bytes = rest;
                number |= u64::from(byte & 0x7f) << shift;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            number
        }
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let number = varint(&mut bytes);
            let mut span = Vec::new();
            if key & 7 == 2 {
                let (taken, rest) = bytes.split_at(number as usize);
                (span, bytes) = (taken.to_vec(), rest);
            }
            fields.push((key >> 3, number, span));
        }
        Self(fields)
    }

    pub fn number(&self, field: u64) -> u64 {
        self.0.iter().find(|(of, ..)| *of == field).map_or(0, |(_, number, _)| *number)
    }

    pub fn text(&self, field: u64) -> Option<String> {
        let (.., span) = self.0.iter().find(|(of, ..)| *of == field)?;
        Some(String::from_utf8(span.clone()).unwrap())
    }

    /// When the term ends, by the wall clock.
    pub fn expiry_ms(&self) -> u64 {
        let (.., span) = self.0.iter().find(|(of, ..)| *of == 4).expect("a time");
        let time = Self::of(span);
        time.number(1) * 1000 + time.number(2) / 1_000_000
    }
}
