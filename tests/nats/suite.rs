//! The behaviours that every lock must show, on the newest and the oldest server; one takeover on
//! each between them.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::Lock;
use incumbent_test_support::{Version, on_versions};

use crate::conformance::{self, Service, leads, leads_before};
use crate::env::TestEnv;

mod newest {
    use super::*;
    suite!(TestEnv);
}

mod v2_10 {
    use super::*;
    suite!(Oldest);
}

struct Oldest(TestEnv);

impl Service for Oldest {
    async fn start() -> Self {
        Self(TestEnv::of_version(Version::V2_10, Self::LEASE).await)
    }

    async fn lock(&self) -> Arc<dyn Lock> {
        Service::lock(&self.0).await
    }

    async fn evict(&self, name: &str) {
        self.0.evict(name).await;
    }

    async fn overwrite(&self, name: &str, identity: &str) {
        self.0.overwrite(name, identity).await;
    }

    async fn holder(&self, name: &str) -> Option<String> {
        self.0.holder(name).await
    }
}

on_versions!(
    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    every_server_version_carries_an_election
);
/// Win, crash, expiry, release and eviction on every server version that is supported.
async fn every_server_version_carries_an_election(version: Version) {
    let env = Arc::new(TestEnv::of_version(version, Duration::from_secs(12)).await);
    let in_process = Arc::clone(&env);
    let crashing = async move { in_process.candidate("crashes").await };
    let crashing = conformance::Process::run(crashing).await;
    drop(leads(&crashing.election).await);
    let second = env.start("second").await;
    drop(leads_before(&crashing.election, &[&second]).await);
    crashing.crash();
    drop(leads(&second).await);
    let third = env.start("third").await;
    let leadership = leads_before(&second, &[&third]).await;
    env.delete_key().await;
    let next = leads(&third).await;
    assert!(next.token() > leadership.token(), "{version:?}");
    assert!(!second.is_leader(), "{version:?}");
    drop((leadership, next));
    third.stop().await;
    drop(leads(&second).await);
}
