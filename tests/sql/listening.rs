//! Who listens for all subscribers of a database, where its runtime ends.

use std::sync::Arc;

use incumbent::sql::{Sqlite, TableSetup};

use crate::conformance::LEASE;
use crate::env::TestEnv;
use crate::listening_suite::{hints_continue, one_task_delivers};

#[tokio::test]
async fn hints_of_postgres_continue_when_the_runtime_of_the_first_listener_ends() {
    let env = TestEnv::new(LEASE).await;
    let (lock, writer) = (env.postgres_lock().await, env.postgres_lock().await);
    hints_continue(Arc::new(lock), Arc::new(writer), ["a", "b"]).await;
}

#[tokio::test]
async fn hints_of_a_file_continue_when_the_runtime_of_the_first_listener_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("elections.db");
    let lock = Sqlite::open_with(&path, TableSetup::create()).await.unwrap().lock();
    hints_continue(Arc::new(lock.clone()), Arc::new(lock), ["a", "b"]).await;
}

#[tokio::test]
async fn one_task_delivers_all_hints_of_postgres() {
    let env = TestEnv::new(LEASE).await;
    one_task_delivers(Arc::new(env.postgres_lock().await), &["a", "b", "b", "c"]).await;
}

#[tokio::test]
async fn one_task_delivers_all_hints_of_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("elections.db");
    let lock = Sqlite::open_with(&path, TableSetup::create()).await.unwrap().lock();
    one_task_delivers(Arc::new(lock), &["a", "b", "b", "c"]).await;
}
