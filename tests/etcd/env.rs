//! A prefix in a cluster of etcd, with what an operator and a rival do to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use incumbent::etcd::{Etcd, EtcdLock};
use incumbent::lock::{Lock, LockError, LockErrorKind, Reading, Revision, Write};
use incumbent::{Election, new_election};
use incumbent_test_support::{EtcdCluster, repeated};
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::conformance::{Service, TIMEOUT, working};

/// What a request leads to, however often it takes to connect: the limit of that is 5 s.
pub async fn answered<T, F>(request: impl Fn() -> F) -> Result<T, LockError>
where
    F: Future<Output = Result<T, LockError>>,
{
    repeated(request, |error: &LockError| error.kind() == LockErrorKind::Unavailable).await
}

/// What is read of an election.
pub async fn read(lock: &EtcdLock, name: &str) -> Reading {
    answered(|| lock.read(name, TIMEOUT)).await.expect("a reading")
}

/// What a write leads to.
pub async fn write(lock: &EtcdLock, name: &str, write: Write) -> Result<Revision, LockError> {
    answered(|| lock.write(name, write.clone())).await
}

/// One cluster of a size serves all tests that do not break it.
async fn shared_cluster(members: usize) -> Arc<EtcdCluster> {
    static ONE: OnceCell<Arc<EtcdCluster>> = OnceCell::const_new();
    static THREE: OnceCell<Arc<EtcdCluster>> = OnceCell::const_new();
    let cell = if members == 1 { &ONE } else { &THREE };
    let start = || async { Arc::new(EtcdCluster::start(members, &[]).await) };
    Arc::clone(cell.get_or_init(start).await)
}

/// A prefix of its own in a cluster of this number of members.
pub struct TestEnv<const MEMBERS: usize> {
    pub cluster: Arc<EtcdCluster>,
    pub prefix: String,
    pub lease: Duration,
}

impl<const MEMBERS: usize> TestEnv<MEMBERS> {
    pub async fn new(lease: Duration) -> Self {
        Self::on(shared_cluster(MEMBERS).await, lease)
    }

    /// With a cluster of its own, to be broken.
    pub async fn alone(lease: Duration) -> Self {
        Self::on(Arc::new(EtcdCluster::start(MEMBERS, &[]).await), lease)
    }

    pub fn on(cluster: Arc<EtcdCluster>, lease: Duration) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let prefix = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Self { cluster, prefix, lease }
    }

    pub fn etcd(&self) -> Etcd {
        self.etcd_at(self.cluster.endpoints())
    }

    /// By other addresses, as those of a proxy.
    pub fn etcd_at(&self, endpoints: Vec<String>) -> Etcd {
        Etcd::new(endpoints).prefix(&self.prefix).max_lease(self.lease)
    }

    /// The lock as another process would open it.
    pub fn etcd_lock(&self) -> EtcdLock {
        self.etcd().lock().expect("a lock")
    }

    /// A candidate with connections of its own, whose work continues until it must stop.
    pub fn campaign(&self, identity: &str) -> Election {
        self.campaign_with(identity, self.etcd_lock())
    }

    pub fn campaign_with(&self, identity: &str, lock: EtcdLock) -> Election {
        let builder = new_election("my_app", lock).identity(identity).lease(self.lease);
        working(builder).start().expect("a start")
    }

    pub fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }

    /// The value of an election's key.
    pub async fn value(&self, name: &str) -> Option<Value> {
        let text = self.cluster.ctl(&["get", "--print-value-only", &self.key(name)]).await;
        Some(text).filter(|text| !text.is_empty()).and_then(|text| serde_json::from_str(&text).ok())
    }
}

impl<const MEMBERS: usize> Service for TestEnv<MEMBERS> {
    /// The next one may have written over nothing before the leader has read.
    const HEARS_DELETIONS: bool = false;

    async fn start() -> Self {
        Self::new(Self::LEASE).await
    }

    async fn lock(&self) -> Arc<dyn Lock> {
        Arc::new(self.etcd_lock())
    }

    async fn evict(&self, name: &str) {
        self.cluster.ctl(&["del", &self.key(name)]).await;
    }

    async fn overwrite(&self, name: &str, identity: &str) {
        let value = self.value(name).await.unwrap_or_default();
        let revision = value["revision"].as_u64().unwrap_or_default() + 1;
        let rival = serde_json::json!({
            "incumbent": 1, "revision": revision, "identity": identity,
            "nonce": "00000000000000ff", "write": 1, "lease_ms": 1000, "since_ms": 0,
            "written_ms": 0,
        });
        self.cluster.ctl(&["put", &self.key(name), &rival.to_string()]).await;
    }

    async fn holder(&self, name: &str) -> Option<String> {
        let value = self.value(name).await?;
        let holder = value["identity"].as_str().filter(|identity| !identity.is_empty())?;
        // The entry of a holder whose lease has run out is not emptied. On one machine wall clocks
        // may be compared.
        let ends = value["written_ms"].as_u64()? + value["lease_ms"].as_u64()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
        (u128::from(ends) > now.as_millis()).then(|| holder.to_owned())
    }
}
