//! What PostgreSQL does to elections.

use std::io::Write as _;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::{Content, Lock, LockErrorKind, Reading, Tombstone};
use incumbent::sql::{Postgres, PostgresProbe, SqlErrorKind, TableSetup};
use incumbent::{Cause, LockUrl};
use incumbent_test_support::{FaultProxy, Pooler, PostgresServer, eventually};
use sqlx::{Connection, PgConnection, Row};
use tokio::time::Instant;

use crate::conformance::{TIMEOUT, becomes_true, frees, is_renewed, leads, lost, sees, soon, won};
use crate::env::{TestEnv, answer, connected, pool_options, run};

const LEASE: Duration = Duration::from_secs(3);
/// For terms that have to continue on a busy machine.
const STEADY: Duration = Duration::from_secs(30);
/// So most of the lease is ahead of it at any time.
const RENEWAL: Duration = Duration::from_secs(1);

/// What `psql` shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_row_shows_the_leader_its_start_and_its_lease() {
    becomes_true("terms that last", row_shows_the_leader).await;
}

/// False: a term expired, or was not released in time, as may be on a busy machine.
async fn row_shows_the_leader() -> bool {
    let env = TestEnv::new(LEASE).await;
    let first = env.campaign("first").await;
    let leadership = leads(&first).await;
    let row = env.row().await.expect("a row");
    let times = "SELECT lease_duration = interval '3 seconds' AND acquired_at <= renewed_at AND
        clock_timestamp() - renewed_at < lease_duration FROM incumbent_elections";
    let times = env.admin(times).await[0].get::<bool, _>(0);
    if !leadership.is_valid() {
        return false;
    }
    assert!(times);
    assert_eq!(row.get::<Option<&str>, _>("holder"), Some("first"));
    assert_eq!(row.get::<i32, _>("transitions"), 0);
    assert_eq!(row.get::<Option<i64>, _>("token"), Some(leadership.token().0.cast_signed()));
    if !is_renewed(&leadership).await {
        return false;
    }
    if !frees(&env, &first, leadership).await {
        return false;
    }
    let row = env.row().await.expect("a row that stays");
    assert_eq!(row.get::<Option<&str>, _>("holder"), None);
    assert_eq!(row.get::<Option<&str>, _>("released_cause"), Some("stopped"));
    let second = env.campaign("second").await;
    let leadership = leads(&second).await;
    let row = env.row().await.expect("a row");
    if !leadership.is_valid() {
        return false;
    }
    assert_eq!(row.get::<i32, _>("transitions"), 1);
    assert_eq!(row.get::<Option<i64>, _>("token"), Some(leadership.token().0.cast_signed()));
    true
}

/// The server's clock may be stepped by more than a short lease. Its floor is shown by a lease that
/// is negative, as the test may be slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_server_calls_no_row_expired_within_a_second() {
    let env = TestEnv::new(LEASE).await;
    let lock = env.postgres_lock().await;
    let read = async |lease_ms: i32, renewed_in_ms: i32| {
        let ms = "interval '1 millisecond'";
        let statement = format!(
            "INSERT INTO incumbent_elections (name, holder, lease_duration, renewed_at, revision)
            SELECT 'my_app', 'before', {lease_ms} * {ms},
                clock_timestamp() + {renewed_in_ms} * {ms}, 1
            ON CONFLICT (name) DO UPDATE SET lease_duration = excluded.lease_duration,
                renewed_at = excluded.renewed_at, revision = incumbent_elections.revision + 1"
        );
        env.admin(&statement).await;
        match lock.read("my_app", TIMEOUT).await.unwrap() {
            Reading::Found(record) => record.content,
            Reading::Empty { .. } => panic!("no row"),
        }
    };
    assert!(matches!(read(-240_000, 120_000).await, Content::Held(_)));
    let expired = Content::Vacant(Tombstone::Expired);
    assert_eq!(read(250, -1_001).await, expired);
    assert_eq!(read(2_000, -2_001).await, expired);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn killed_backends_cost_no_term_and_hints_return() {
    let env = TestEnv::new(STEADY).await;
    let first = env.campaign_every(RENEWAL, "first", env.postgres_lock().await);
    let leadership = leads(&first).await;
    let second = env.campaign("second").await;
    sees(&second, "first").await;
    let (mut kills, mut renewals, mut deadline) = (0, 0, leadership.deadline());
    soon("renewals between the kills", async {
        while leadership.is_valid() && (kills < 20 || renewals < 3) {
            let began = Instant::now();
            env.kill_backends().await;
            kills += 1;
            // A renewal connects first, as a kill does, which takes a busy machine a while.
            tokio::time::sleep((began.elapsed() * 3).max(Duration::from_millis(100))).await;
            renewals += usize::from(leadership.deadline() > deadline);
            deadline = leadership.deadline();
        }
    })
    .await;
    assert!(leadership.is_valid());
    assert_eq!(first.token(), Some(leadership.token()));
    drop(leadership);
    first.stop().await;
    drop(leads(&second).await);
}

/// A server that dies and comes back inside the lease is ridden out.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_killed_server_costs_no_term_within_the_lease() {
    // A busy machine takes seconds to start the server.
    let env = TestEnv::alone(Duration::from_secs(60)).await;
    let first = env.campaign_every(RENEWAL, "first", env.postgres_lock().await);
    let leadership = leads(&first).await;
    let second = env.campaign("second").await;
    sees(&second, "first").await;
    for _ in 0..2 {
        let before = leadership.deadline();
        env.server.kill();
        env.server.restart().await;
        soon("a renewal", leadership.renewed(before)).await.unwrap();
    }
    assert!(leadership.is_valid());
}

/// A server that stays away ends the term in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_killed_server_that_stays_away_ends_the_term() {
    let env = TestEnv::alone(Duration::from_secs(10)).await;
    let first = env.campaign("first").await;
    let leadership = leads(&first).await;
    let second = env.campaign("second").await;
    sees(&second, "first").await;
    env.server.kill();
    let loss = soon("the end", leadership.ended()).await;
    assert!(matches!(loss.cause, Cause::Expired { .. }), "{:?}", loss.cause);
    drop(leadership);
    env.server.restart().await;
    eventually("there is a leader", async || {
        (first.is_leader() || second.is_leader()).then_some(())
    })
    .await;
}

/// A server that is paused, and then executes its requests late.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_paused_server_costs_no_term_within_the_lease_only() {
    const LEASE: Duration = Duration::from_secs(20);
    let env = TestEnv::alone(LEASE).await;
    let first = env.campaign_every(RENEWAL, "first", env.postgres_lock().await);
    let mut changes = first.changes();
    let leadership = leads(&first).await;
    let second = env.campaign("second").await;
    sees(&second, "first").await;
    env.server.pause();
    tokio::time::sleep(Duration::from_secs(2)).await;
    env.server.resume();
    let before = leadership.deadline();
    soon("a renewal", leadership.renewed(before)).await.unwrap();
    env.server.pause();
    let cause = lost(&mut changes).await;
    assert!(matches!(cause, Cause::Expired { .. }), "{cause:?}");
    assert!(!leadership.is_valid());
    tokio::time::sleep(LEASE / 3).await; // its lease is over before
    assert!(!first.is_leader() && !second.is_leader());
    drop(leadership);
    env.server.resume();
    let led = eventually("there is a leader", async || {
        first.is_leader().then_some(&first).or(second.is_leader().then_some(&second))
    })
    .await;
    assert!(led.token().is_some());
}

/// A pool that the program has anyway may give a connection away after each request.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_pool_whose_connections_are_recycled_costs_no_term() {
    let env = TestEnv::new(STEADY).await;
    let options = pool_options().max_connections(2).max_lifetime(Duration::from_millis(300));
    let pool = options.connect(&env.url()).await.unwrap();
    let tables = TableSetup::create().max_lease(STEADY);
    let open = async || Postgres::open_with(pool.clone(), tables).await.ok();
    let database = eventually("the tables", open);
    let election = env.campaign_every(RENEWAL, "pooled", database.await.lock());
    let leadership = leads(&election).await;
    for _ in 0..6 {
        let before = leadership.deadline();
        soon("a renewal", leadership.renewed(before)).await.unwrap();
        sqlx::raw_sql("SELECT 1").execute(&pool).await.expect("the pool is sound");
    }
    assert!(leadership.is_valid());
}

/// Revoked permissions are reported as such, and when they are granted again the election
/// continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_leader_without_permission_steps_down_and_reports_why() {
    let env = TestEnv::new(Duration::from_secs(15)).await;
    let election = env.campaign_every(RENEWAL, "only", env.lock_of_candidate().await);
    let mut changes = election.changes();
    let leadership = leads(&election).await;
    let role = env.candidate();
    env.admin(&format!("REVOKE UPDATE ON incumbent_elections FROM {role}")).await;
    let loss = soon("the end", leadership.ended()).await;
    let Cause::Denied { error } = &loss.cause else { panic!("{:?}", loss.cause) };
    assert!(error.contains("a right is missing") && error.contains("permission denied"), "{error}");
    drop(leadership);
    env.admin(&format!("GRANT UPDATE ON incumbent_elections TO {role}")).await;
    won(&mut changes).await; // of the first term
    won(&mut changes).await;
}

/// Candidates that may not create tables report what to do, and campaign with the documented
/// permissions once it is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_least_rights_are_enough() {
    let env = TestEnv::new(LEASE).await;
    let role = env.candidate();
    env.admin(&format!("CREATE ROLE {role} LOGIN")).await;
    let url = env.server.url_as(&role, &env.database);
    let error = answer(&url, TableSetup::create()).await.expect_err("a refusal");
    assert_eq!(error.kind(), SqlErrorKind::Denied);
    let place = format!("127.0.0.1:{}/{}", env.server.port(), env.database);
    assert_eq!(
        error.to_string(),
        format!(
            "the tables of elections cannot be created at {place}: run deploy/postgres.sql as a role that may create tables"
        )
    );
    let error = answer(&url, TableSetup::existing()).await.expect_err("a refusal");
    assert_eq!(
        error.to_string(),
        format!(
            "there are no tables of elections at {place}: run deploy/postgres.sql, or start a candidate, which creates them"
        )
    );
    let lock = env.lock_of_candidate().await;
    let (first, second) =
        (env.campaign_with("first", lock.clone()), env.campaign_with("second", lock));
    let leader = eventually("one leads", async || {
        [&first, &second].into_iter().find(|election| election.is_leader())
    })
    .await;
    leader.stop().await;
    eventually("the other leads", async || {
        [&first, &second].into_iter().find(|election| election.is_leader())
    })
    .await;
}

/// A table that is not there any more, or is not ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn dropped_tables_are_reported_and_end_the_term() {
    let env = TestEnv::new(LEASE).await;
    let election = env.campaign("only").await;
    let leadership = leads(&election).await;
    let token = leadership.token();
    env.admin("DROP TABLE incumbent_elections").await;
    soon("the end", leadership.ended()).await;
    let failure = eventually("a failure", async || {
        election.lock_failure().filter(|failure| failure.kind == LockErrorKind::Misconfigured)
    })
    .await;
    assert!(failure.message.contains("run deploy/postgres.sql"), "{}", failure.message);
    drop(leadership);
    env.open().await; // makes them again
    let leadership = leads(&election).await;
    assert!(leadership.token() > token, "tokens never go back");
}

/// No log and no error contains the password.
#[tokio::test]
async fn no_password_is_ever_shown() {
    let env = TestEnv::new(LEASE).await;
    let port = env.server.port();
    let database = &env.database;
    let mut shown = Vec::new();
    for url in [
        format!("postgres://nobody:s3cret@127.0.0.1:{port}/{database}?sslmode=disable"),
        "postgres://postgres:s3cret@127.0.0.1:1/any".to_owned(),
        "postgres://postgres:s3cret@127.0.0.1:notaport/s3cret".to_owned(),
        "postgres://postgres:s3c/ret@127.0.0.1/any".to_owned(),
        "postgres://postgres@127.0.0.1/any?sslmode=s3cret".to_owned(),
    ] {
        let error = Postgres::connect(&url).await.unwrap_err();
        shown.push(format!("{error} {error:?} {:?}", std::error::Error::source(&error)));
    }
    let url = env.url().replace("postgres@", "postgres:s3cret@");
    let postgres = connected(&url, TableSetup::create()).await;
    shown.push(format!("{postgres:?} {:?}", postgres.lock()));
    for text in shown {
        assert!(!text.contains("s3c"), "{text}");
    }
}

/// sqlx logs the lines that it cannot read, also before the one that it looks for.
#[test]
fn no_line_of_a_password_file_is_logged() {
    // With the permissions that sqlx demands.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"127.0.0.1:s3cret\n").unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "postgres::a_process_that_logs", "--nocapture"])
        .env("PGPASSFILE", file.path())
        .env_remove("PGPASSWORD")
        .output()
        .unwrap();
    let logged = String::from_utf8_lossy(&output.stdout);
    assert!(logged.contains("it is parsed"), "{logged}");
    assert!(!logged.contains("s3c"), "{logged}");
}

#[test]
#[ignore = "a part of another test, run in a process of its own"]
fn a_process_that_logs() {
    if std::env::var_os("PGPASSFILE").is_none() {
        return;
    }
    tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).init();
    PostgresProbe::new("postgres://nobody@127.0.0.1/any").unwrap();
    tracing::info!("it is parsed");
}

/// A replica refuses writes, which is reported.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_replica_is_refused_until_it_is_promoted() {
    let env = TestEnv::alone(LEASE).await;
    env.open().await;
    let replica = env.server.replica(&[]).await;
    let url = replica.url(&env.database);
    let error = answer(&url, TableSetup::create()).await.expect_err("a refusal");
    assert_eq!(error.kind(), SqlErrorKind::Unavailable);
    assert!(error.to_string().ends_with("elections are held on the primary"), "{error}");
    replica.promote();
    let lock = connected(&url, TableSetup::create()).await.lock();
    lock.read("my_app", TIMEOUT).await.expect("an answer");
    run(&url, "SELECT 1").await;
}

/// The server renewed, and the reply was lost: the renewal counts, and the leader stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_reply_that_is_lost_costs_no_term() {
    let env = TestEnv::new(STEADY).await;
    let proxy = FaultProxy::start(env.server.port()).await;
    env.open().await;
    let url =
        env.url().replace(&format!(":{}/", env.server.port()), &format!(":{}/", proxy.port()));
    let lock = connected(&url, TableSetup::create()).await.lock();
    let election = env.campaign_every(RENEWAL, "only", lock);
    let leadership = leads(&election).await;
    for turn in 1..=3 {
        proxy.lose_reply("UPDATE incumbent_elections");
        eventually("a reply is lost", async || (proxy.lost_replies() == turn).then_some(())).await;
        let before = leadership.deadline();
        soon("a renewal", leadership.renewed(before)).await.unwrap();
    }
    assert!(leadership.is_valid());
    drop(leadership);
    proxy.lose_reply("UPDATE incumbent_elections");
    let before = Instant::now();
    election.stop().await; // whose release is applied, too
    // It waits for the reply first, and then looks, on a busy machine for a while only.
    let is_prompt = before.elapsed() < STEADY / 8 + RENEWAL;
    let row = env.row().await.unwrap();
    let holder = row.get::<Option<&str>, _>("holder");
    assert!(holder.is_none() || !is_prompt, "{holder:?}");
}

/// A row that stays locked in psql keeps no connection busy for longer than an attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_locked_row_ends_the_term_and_leaves_no_backends_behind() {
    let env = TestEnv::new(LEASE).await;
    let election = env.campaign("only").await;
    let leadership = leads(&election).await;
    let mut connection = PgConnection::connect(&env.url()).await.unwrap();
    let lock = "BEGIN; SELECT FROM incumbent_elections FOR UPDATE";
    sqlx::raw_sql(lock).execute(&mut connection).await.unwrap();
    let loss = soon("the end", leadership.ended()).await;
    assert!(matches!(loss.cause, Cause::Expired { .. }), "{:?}", loss.cause);
    drop(leadership);
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    // The server ends those that are given up, a little later.
    eventually("at most one backend waits for the row", async || {
        (env.admin(waiting).await[0].get::<i64, _>(0) <= 1).then_some(())
    })
    .await;
    drop(connection);
    drop(leads(&election).await);
}

/// A pooler that gives each transaction another connection: no prepared statements, no `LISTEN`.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn elections_go_through_pgbouncer_in_transaction_mode() {
    let env = TestEnv::new(STEADY).await;
    env.open().await;
    let pooler = Pooler::start(&env.server, &env.database).await;
    let lock = connected(&pooler.url(&env.database), TableSetup::create()).await.lock();
    let first = env.campaign_every(RENEWAL, "first", lock);
    let leadership = leads(&first).await;
    let url = format!("{}&polling", pooler.url(&env.database));
    let url = url.parse::<LockUrl>().unwrap();
    let polling = eventually("the lock", async || url.open().await.ok()).await;
    assert!(!polling.carries_calls(), "it does not listen");
    let second = env.campaign_with("second", polling);
    sees(&second, "first").await;
    for _ in 0..4 {
        let before = leadership.deadline();
        soon("a renewal", leadership.renewed(before)).await.unwrap();
    }
    drop(leadership);
    first.stop().await;
    drop(leads(&second).await);
}

/// The pooler may give the connection that listens to the next writer, which then gets
/// notifications. Taking that for a lost connection would listen again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_pooler_without_notifications_is_detected_once() {
    let server = Arc::new(PostgresServer::start(&["log_statement=all"]).await);
    let env = TestEnv::on(server, STEADY).await;
    env.open().await;
    let pooler = Pooler::start(&env.server, &env.database).await;
    let lock = connected(&pooler.url(&env.database), TableSetup::create()).await.lock();
    let election = env.campaign_every(RENEWAL, "only", lock);
    let leadership = leads(&election).await;
    for _ in 0..10 {
        let before = leadership.deadline();
        soon("a renewal", leadership.renewed(before)).await.unwrap();
    }
    let listens = env.server.log().matches("LISTEN \"incumbent.public\"").count();
    assert!((1..=2).contains(&listens), "{listens}");
    drop(leadership);
    election.stop().await;
}
