//! Keys of one member of etcd.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use incumbent::etcd::{Etcd as Cluster, EtcdLock};
use incumbent::lock::{Lock, LockErrorKind, Revision};
use incumbent_sim::Retention;
use incumbent_test_support::{EtcdCluster, eventually};

use crate::store::{Deed, Rules, Store, Upheaval};

/// The longest lease.
const TTL: Duration = Duration::from_secs(2);

const PREFIX: &str = "elections";

/// The keys below a prefix.
#[derive(Debug)]
pub struct Etcd {
    cluster: EtcdCluster,
    lock: EtcdLock,
    /// Of another process: a lock has no hint of a write whose response came first.
    listener: EtcdLock,
}

impl Etcd {
    /// Starts a member.
    pub async fn start() -> Self {
        let cluster = EtcdCluster::start(1, &[]).await;
        let open = || {
            let etcd = Cluster::new(cluster.endpoints()).prefix(PREFIX).max_lease(TTL);
            etcd.lock().expect("a lock")
        };
        let (lock, listener) = (open(), open());
        Self { cluster, lock, listener }
    }
}

impl Store for Etcd {
    fn lock(&self) -> &dyn Lock {
        &self.lock
    }

    fn listener(&self) -> &dyn Lock {
        &self.listener
    }

    fn rules(&self) -> Rules {
        Rules::new(Retention::Forever, TTL)
    }

    /// Deletes the key, and writes beside it, which increases the revision of the cluster.
    fn deeds(&self) -> &'static [Deed] {
        &[Deed::Delete, Deed::Touch]
    }

    fn commit<'a>(
        &'a self,
        name: &'a str,
        deed: Deed,
        _expected: Option<Revision>,
    ) -> BoxFuture<'a, Result<Option<Revision>, LockErrorKind>> {
        async move {
            let key = format!("{PREFIX}/{name}");
            let mut command = self.cluster.ctl_command();
            match deed {
                Deed::Delete => command.args(["del", &key]),
                _ => command.args(["put", &format!("{key}-beside"), "x"]),
            };
            match command.output().await {
                Ok(output) if output.status.success() => Ok(None),
                _ => Err(LockErrorKind::OutcomeUnknown),
            }
        }
        .boxed()
    }

    fn upheavals(&self) -> &'static [Upheaval] {
        &[Upheaval::Remade, Upheaval::Crashed]
    }

    fn take_away(&self, upheaval: Upheaval) -> LocalBoxFuture<'_, ()> {
        async move {
            if upheaval == Upheaval::Crashed {
                return self.cluster.kill(0);
            }
            eventually("no keys", async || {
                let mut command = self.cluster.ctl_command();
                command.args(["del", &format!("{PREFIX}/"), "--prefix"]);
                command.output().await.ok()?.status.success().then_some(())
            })
            .await;
        }
        .boxed_local()
    }

    fn bring_back(&self, upheaval: Upheaval) -> LocalBoxFuture<'_, ()> {
        async move {
            if upheaval == Upheaval::Crashed {
                self.cluster.restart(0).await;
                eventually("the lock", async || self.lock.read("any", TTL).await.ok()).await;
            }
        }
        .boxed_local()
    }
}
