//! Who listens for all subscribers of a database, where its runtime ends.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::{Coverage, Hint, HintSink, Lock};
use incumbent::sql::{PostgresLock, TableSetup};
use incumbent_test_support::{FaultProxy, PostgresServer, eventually};
use sqlx::Row;
use tokio::sync::mpsc;

use crate::conformance::listening::{hints_continue, one_task_delivers};
use crate::conformance::{LEASE, becomes_true, first_write, leads, sees, soon};
use crate::env::{TestEnv, connected};
use crate::file::opened;

#[tokio::test]
async fn hints_of_postgres_outlive_the_first_listeners_runtime() {
    let env = TestEnv::new(LEASE).await;
    let (lock, writer) = (env.postgres_lock().await, env.postgres_lock().await);
    hints_continue(Arc::new(lock), Arc::new(writer), ["a", "b"]).await;
}

#[tokio::test]
async fn hints_of_a_file_outlive_the_runtime_of_the_first_listener() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("elections.db");
    let lock = opened(&path, TableSetup::create()).await.lock();
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
    let lock = opened(&path, TableSetup::create()).await.lock();
    one_task_delivers(Arc::new(lock), &["a", "b", "b", "c"]).await;
}

/// A lock whose connections the server knows by this name.
async fn named(url: &str, name: &str) -> PostgresLock {
    let separator = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{separator}application_name={name}");
    connected(&url, TableSetup::existing()).await.lock()
}

async fn connections_of(env: &TestEnv, name: &str) -> i64 {
    let count =
        format!("SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = '{name}'");
    env.admin(&count).await[0].get("n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_listens_keeps_one_connection() {
    let env = TestEnv::new(Duration::from_secs(30)).await; // nothing waits for its end
    let leader = env.campaign("leader").await;
    let leadership = leads(&leader).await;
    let name = format!("standby_{}", env.database);
    let lock = named(&env.url(), &name).await;
    let standby = env.campaign_with("standby", lock);
    sees(&standby, "leader").await;
    eventually("only the listener", async || {
        (connections_of(&env, &name).await == 1).then_some(())
    })
    .await;
    drop(leadership);
    leader.stop().await;
    drop(leads(&standby).await);
}

/// Else the queue of notifications fills, and every write of the database fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_does_not_read_is_dropped_by_the_server() {
    let env = TestEnv::alone(LEASE).await;
    drop(env.open().await);
    let proxy = FaultProxy::start(env.server.port()).await;
    let url = env.url().replace(&env.server.port().to_string(), &proxy.port().to_string());
    let lock = named(&url, "frozen").await;
    let (sender, mut hints) = mpsc::unbounded_channel();
    let _listening = lock.subscribe("my_app", HintSink::new(move |hint| drop(sender.send(hint))));
    let covered = async { while hints.recv().await != Some(Hint::Coverage(Coverage::Full)) {} };
    soon("it listens", covered).await;
    proxy.silence();
    let blocked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'frozen' AND wait_event = 'ClientWrite'";
    let flood = "DO $$ BEGIN FOR i IN 1..200 LOOP PERFORM pg_notify('incumbent.' || current_schema(), i || repeat('x', 7900)); END LOOP; END $$";
    let pid: i32 = eventually("its buffers are full", async || {
        env.admin(flood).await;
        Some(env.admin(blocked).await.pop()?.get("pid"))
    })
    .await;
    becomes_true("the server drops it", async || {
        let open = format!("SELECT FROM pg_stat_activity WHERE pid = {pid}");
        env.admin(&open).await.is_empty()
    })
    .await;
    let usage: f64 =
        env.admin("SELECT pg_notification_queue_usage() AS usage").await[0].get("usage");
    assert_eq!(usage, 0.0);
}

/// Any role may notify, and faster than rows can be read: what waits for a read piles up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_notifications_costs_a_few_reads() {
    let server = Arc::new(PostgresServer::start(&["log_statement=all"]).await);
    let env = TestEnv::on(server, LEASE).await;
    let lock = env.postgres_lock().await;
    let (sender, mut hints) = mpsc::unbounded_channel();
    let sink = |name: &'static str| {
        let sender = sender.clone();
        HintSink::new(move |hint| drop(sender.send((name, hint))))
    };
    let _subscriptions = ["my_app", "other"].map(|name| lock.subscribe(name, sink(name)));
    let covered = ("other", Hint::Coverage(Coverage::Full));
    soon("it listens", async { while hints.recv().await.as_ref() != Some(&covered) {} }).await;
    let reads = || env.server.log().matches("pg_is_in_recovery() AS replica, s.version").count();
    let before = reads();
    let flood = r#"DO $$ BEGIN FOR i IN 1..1000 LOOP
        PERFORM pg_notify('incumbent.' || current_schema(), '{"name":"my_app","n":' || i || '}');
        END LOOP; END $$"#;
    env.admin(flood).await;
    lock.write("other", first_write(LEASE, 1, None, None)).await.expect("a first write");
    let heard = async {
        loop {
            if let Some(("other", Hint::Stored { .. })) = hints.recv().await {
                break;
            }
        }
    };
    soon("what came after the flood", heard).await;
    let reads = reads() - before;
    assert!((2..50).contains(&reads), "{reads} reads");
}
