//! A few hundred operations on each store.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::Capabilities;
use incumbent_differential::{Options, Store, run, stores};
use incumbent_sim::Server;
use incumbent_test_support::Version;

/// Both return the same under all operations, and a lock states what the simulation and the model
/// check assume of its model.
async fn agree(store: Arc<dyn Store>) {
    let (rules, stated) = (store.rules(), store.lock().capabilities());
    let mut model = Server::new(rules.ttl, rules.retention, Duration::ZERO);
    model.per_write_ttl = rules.per_write_ttl;
    let Capabilities { min_lease, max_lease, max_identity_len, .. } = stated;
    // A lock that states no proof yet may be too new for it.
    let modelled = model.capabilities(stated.empty_is_proof);
    assert_eq!(stated, Capabilities { min_lease, max_lease, max_identity_len, ..modelled });
    let options = Options { operations: 600, seed: 12, elections: 40, steps: 8 };
    let has_upheavals = !store.upheavals().is_empty();
    let report = run(store, options).await;
    let told: Vec<_> = report.differences.iter().take(3).map(ToString::to_string).collect();
    assert!(told.is_empty(), "the model and the store differ:\n{}", told.join("\n\n"));
    assert!(report.operations >= options.operations, "{report:?}");
    assert!(report.leaderless <= report.operations / 10, "{report:?}");
    assert_eq!(report.upheavals > 0, has_upheavals, "{report:?}");
}

/// Expiry, markers, deletes and a bucket that is made again, on the oldest server and on the
/// newest.
#[tokio::test]
async fn a_bucket_does_what_its_model_does() {
    for version in [Version::V2_10, Version::V2_15] {
        agree(Arc::new(stores::Nats::start(version, false).await)).await;
    }
}

#[tokio::test]
async fn a_bucket_of_three_replicas_does_what_its_model_does() {
    agree(Arc::new(stores::Nats::start(Version::V2_15, true).await)).await;
}

/// Expiry by the database's clock, rows that stay, and notifications sent by hand.
#[tokio::test]
async fn a_table_of_postgresql_does_what_its_model_does() {
    agree(Arc::new(stores::Postgres::start().await)).await;
}

/// Expiry, rows that stay and notifications in a file, which is deleted and made again.
#[tokio::test]
async fn a_sqlite_file_does_what_its_model_does() {
    agree(Arc::new(stores::Sqlite::start().await)).await;
}

/// Generations, ETags that come back with their content and ETags that do not; what is deleted,
/// forged, spoiled and put back.
#[tokio::test]
async fn an_object_does_what_its_model_does() {
    for name in ["gcs", "s3", "azure"] {
        agree(stores::objects::start(name).await.expect("a store of that name")).await;
    }
}

/// Versions of a Lease, creates over one that is there, what is changed beside the record, what the
/// API server refuses, and its crash.
#[tokio::test]
async fn a_lease_does_what_its_model_does() {
    agree(Arc::new(stores::Kubernetes::start().await)).await;
}

/// Revisions that the lock counts by itself, deletions that leave nothing behind, every write as a
/// hint, and a member that crashes.
#[tokio::test]
async fn a_key_of_etcd_does_what_its_model_does() {
    agree(Arc::new(stores::Etcd::start().await)).await;
}
