//! Who is believed on PostgreSQL: other roles, other servers, other clocks.

use std::time::Duration;

use incumbent::lock::{
    Content, Coverage, Hint, HintSink, Lock, LockErrorKind, Messages, Nonce, Reading, Release,
    Revision, StepDownNotice, Token, Tombstone,
};
use incumbent::sql::{PostgresLock, TableSetup};
use incumbent_test_support::{FaultProxy, eventually};
use sqlx::Row;
use tokio::sync::mpsc;

use crate::conformance::{TIMEOUT, first_write, soon};
use crate::env::{TestEnv, connected, run, runs_for_a_lease};
use crate::failover::Pair;

/// Longer than a busy machine stands still. One test waits for a server to run for as long.
const LEASE: Duration = Duration::from_secs(20);

async fn lock_of(role: &str, env: &TestEnv) -> PostgresLock {
    let url = env.server.url_as(role, &env.database);
    connected(&url, TableSetup::existing()).await.lock()
}

async fn found(lock: &PostgresLock) -> Content {
    match lock.read("my_app", TIMEOUT).await.expect("an answer") {
        Reading::Found(record) => record.content,
        Reading::Empty { .. } => panic!("no row"),
    }
}

/// Every role that may connect may notify. Only the row proves that an entry is free, or that its
/// holder has stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_forged_notification_ends_no_term() {
    let env = TestEnv::new(LEASE).await;
    let lock = env.postgres_lock().await;
    let revision =
        lock.write("my_app", first_write(LEASE, 1, None, None)).await.expect("a first write");
    let (heard, mut hints) = mpsc::unbounded_channel();
    let listener = env.postgres_lock().await;
    let sink = HintSink::new(move |hint| drop(heard.send(hint)));
    let _subscription = listener.subscribe("my_app", sink);
    let covered = soon("it listens", hints.recv()).await;
    assert_eq!(covered, Some(Hint::Coverage(Coverage::Full)));
    let stranger = format!("stranger_{}", env.database);
    env.admin(&format!("CREATE ROLE {stranger} LOGIN")).await;
    let url = env.server.url_as(&stranger, &env.database);
    let next = revision.0 + 1;
    let by = Nonce(1);
    for forged in [
        format!(
            r#"{{"name":"my_app","revision":{next},"previous":{revision},"released_by":"{by}"}}"#
        ),
        format!(
            r#"{{"name":"my_app","stepped_down":{{"by":"{by}","token":{revision},"revision":{revision},"left_ms":0}}}}"#
        ),
        format!(r#"{{"name":"my_app","stepped_down":true,"revision":{next}}}"#),
        r#"{"name":"my_app","revision":9000000000000000000,"holder":"forger","lease_ms":7200000,
            "token":9,"nonce":"00000000000000aa","write":1,"acquired_ms":1}"#
            .to_owned(),
    ] {
        run(&url, &format!("SELECT pg_notify('incumbent.public', '{forged}')")).await;
    }
    // True notifications, by roles that may update the row, come after it.
    let (token, left) = (Token(revision.0), Duration::from_millis(7));
    let notice = StepDownNotice { by, token, revision, left };
    lock.notify_step_down("my_app", notice).await.expect("it is written down");
    let mut told = Vec::new();
    loop {
        match soon("the notice", hints.recv()).await.expect("hints continue") {
            Hint::SteppedDown(said) => {
                assert_eq!(said, notice);
                break;
            }
            Hint::Stored { record, .. } => told.push(record),
            Hint::Recheck | Hint::Coverage(_) | Hint::RollCall(_) => {}
        }
    }
    assert!(told.iter().all(|record| record.revision == revision), "{told:?}");
    // It has changed nothing else.
    let release = Release {
        expected: revision,
        by,
        left,
        cause: "stopped",
        to: None,
        pause: None,
        timeout: TIMEOUT,
    };
    lock.release("my_app", release).await.expect("the row is as it was");
    loop {
        let hint = soon("the release", hints.recv()).await.expect("hints continue");
        if let Hint::Stored { record, previous, .. } = hint
            && record.revision.0 == next
        {
            assert_eq!(previous, Some(Some(revision)));
            assert_eq!(
                record.content,
                Content::Vacant(Tombstone::Released {
                    by,
                    left,
                    cause: Some("stopped".into()),
                    to: None,
                    pause: None
                })
            );
            break;
        }
    }
}

/// A standby counts a lease by its own clock: the server's may have been stepped.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_hint_of_an_entry_that_is_overdue_by_the_servers_clock_shows_its_holder() {
    let env = TestEnv::new(LEASE).await;
    let lock = env.postgres_lock().await;
    let revision =
        lock.write("my_app", first_write(LEASE, 1, None, None)).await.expect("a first write");
    let (heard, mut hints) = mpsc::unbounded_channel();
    let listener = env.postgres_lock().await;
    let _subscription =
        listener.subscribe("my_app", HintSink::new(move |hint| drop(heard.send(hint))));
    let covered = soon("it listens", hints.recv()).await;
    assert_eq!(covered, Some(Hint::Coverage(Coverage::Full)));
    env.admin(
        "ALTER TABLE incumbent_elections DISABLE TRIGGER USER;
         UPDATE incumbent_elections SET renewed_at = renewed_at - interval '1 hour';
         ALTER TABLE incumbent_elections ENABLE TRIGGER USER",
    )
    .await;
    env.admin(r#"SELECT pg_notify('incumbent.public', '{"name":"my_app"}')"#).await;
    let record = loop {
        if let Hint::Stored { record, .. } = soon("the row", hints.recv()).await.expect("hints") {
            break record;
        }
    };
    assert_eq!(record.revision, revision);
    assert!(matches!(record.content, Content::Held(_)), "{record:?}");
    assert!(matches!(found(&lock).await, Content::Vacant(Tombstone::Expired)));
}

/// Roles with different views of the server must not take each other's rows for another server's.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn roles_with_different_server_views_see_the_same_row() {
    let env = TestEnv::new(LEASE).await;
    let told = env.postgres_lock().await;
    let untold = env.lock_of_candidate().await;
    env.admin("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC").await;
    told.write("my_app", first_write(LEASE, 1, None, None)).await.expect("a first write");
    assert!(matches!(found(&untold).await, Content::Held(_)));
    assert!(matches!(found(&told).await, Content::Held(_)));
}

/// Nobody else's function runs with the permissions of a candidate, also where others may create
/// one in a schema of its `search_path`, as everybody may in `public` before PostgreSQL 15.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_function_of_a_stranger_runs_in_no_write() {
    let env = TestEnv::new(LEASE).await;
    let lock = env.postgres_lock().await;
    let stranger = format!("stranger_{}", env.database);
    env.admin(&format!("CREATE ROLE {stranger} LOGIN")).await;
    env.admin(&format!("GRANT CREATE ON SCHEMA public TO {stranger}")).await;
    let url = env.server.url_as(&stranger, &env.database);
    for (signature, result) in
        [("json_build_object(text, text)", "json"), ("format(text, name)", "text")]
    {
        let body = "BEGIN RAISE 'by a stranger'; END";
        let function = format!("FUNCTION {signature} RETURNS {result} LANGUAGE plpgsql");
        run(&url, &format!("CREATE {function} AS $${body}$$")).await;
    }
    lock.write("my_app", first_write(LEASE, 1, None, None)).await.expect("none of them ran");
}

/// An observer needs no permission to write, after a failover neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_observer_needs_no_right_to_write_after_a_failover() {
    let pair = Pair::start(LEASE).await;
    let env = &pair.env;
    let observer = format!("observer_{}", env.database);
    env.admin(&format!("CREATE ROLE {observer} LOGIN")).await;
    for table in ["incumbent_elections", "incumbent_settings"] {
        env.admin(&format!("GRANT SELECT ON {table} TO {observer}")).await;
    }
    let lock = env.postgres_lock().await;
    lock.write("my_app", first_write(LEASE, 1, None, None)).await.expect("a first write");
    let observes = lock_of(&observer, env).await;
    assert!(matches!(found(&observes).await, Content::Held(_)));
    pair.replica_has_a_holder().await;
    env.server.kill();
    pair.replica.promote();
    let url = pair.replica.url_as(&observer, &env.database);
    let observes = connected(&url, TableSetup::existing()).await.lock();
    assert_eq!(found(&observes).await, Content::Vacant(Tombstone::Deleted));
    let denied = observes.write("other", first_write(LEASE, 2, None, None)).await.unwrap_err();
    assert_eq!(denied.kind(), LockErrorKind::Denied);
}

/// A dump that is read into a new server lacks what was written after it, as a failover does.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_missing_row_proves_nothing_in_a_restored_dump() {
    let (old, new) = (TestEnv::new(LEASE).await, TestEnv::alone(LEASE).await);
    old.open().await;
    let read = "SELECT to_jsonb(s)::text AS dump FROM incumbent_settings s";
    old.admin("UPDATE incumbent_settings SET created_at = created_at - interval '1 day'").await;
    let dump: String = old.admin(read).await[0].get("dump");
    let lock = new.postgres_lock().await;
    let load = format!(
        "DELETE FROM incumbent_settings; INSERT INTO incumbent_settings
        SELECT * FROM jsonb_populate_record(NULL::incumbent_settings, '{dump}')"
    );
    new.admin(&load).await;
    runs_for_a_lease(&new.url()).await;
    drop(lock);
    let lock = new.postgres_lock().await;
    let reading = lock.read("my_app", TIMEOUT).await.expect("an answer");
    assert_eq!(reading, Reading::Empty { proof: false });
}

/// The first revision of an election is the time. Where a failover loses that row, the next one
/// must be greater, though the clock of the new server is behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_clock_behind_after_a_failover_repeats_no_token() {
    let pair = Pair::start(LEASE).await;
    let proxy = FaultProxy::start(pair.env.server.port()).await;
    let lock = pair.env.postgres_lock().await;
    pair.replica.kill(); // and lacks the row
    let first =
        lock.write("my_app", first_write(LEASE, 1, None, None)).await.expect("a first write");
    pair.env.server.kill();
    pair.replica.restart().await;
    pair.replica_takes_over(&proxy);
    let lock = pair.lock_through(&proxy).await; // of who has seen nothing
    let second = eventually("a first write on the new server", async || {
        lock.read("my_app", TIMEOUT).await.ok()?;
        lock.write("my_app", first_write(LEASE, 2, None, None)).await.ok()
    })
    .await;
    let day = Duration::from_secs(24 * 3600).as_millis();
    let behind = u64::try_from(10 * day).unwrap();
    assert!(second > Revision(first.0 + behind), "{second:?} after {first:?}");
}
