//! Transactions of a former leader are refused.

use std::path::Path;
use std::time::Duration;

use incumbent::fence::{self, FenceErrorKind};
use incumbent::lock::Token;
use incumbent::memory::MemoryLock;
use incumbent::new_election;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{Executor, PgPool, SqlitePool};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::conformance::TIMEOUT;
use crate::env::{TestEnv, pool_options};

const FILE: &str = include_str!("../../deploy/postgres-fence.sql");
const LEDGER: &str = "CREATE TABLE ledger (id INTEGER PRIMARY KEY, token BIGINT NOT NULL)";

async fn postgres() -> PgPool {
    let url = TestEnv::new(Duration::from_secs(3)).await.url();
    let pool = pool_options().max_connections(20).connect(&url).await.expect("a pool");
    fence::create_tables(&pool).await.expect("a fence");
    fence::create_tables(&pool).await.expect("the same fence");
    create_ledger(&pool).await;
    pool
}

pub async fn create_ledger(pool: &PgPool) {
    let ledger = LEDGER.replace("INTEGER PRIMARY", "BIGSERIAL PRIMARY");
    sqlx::query(sqlx::AssertSqlSafe(ledger)).execute(pool).await.expect("a ledger");
}

pub fn sqlite_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(Duration::from_secs(60))
}

/// A pool that waits for a busy disk.
pub async fn sqlite_pool(path: &Path) -> SqlitePool {
    let options = SqlitePoolOptions::new().max_connections(20).acquire_timeout(TIMEOUT);
    options.connect_with(sqlite_options(path)).await.expect("a pool")
}

pub async fn sqlite() -> (TempDir, SqlitePool) {
    let directory = tempfile::Builder::new().prefix("fence-").tempdir().expect("a directory");
    let pool = sqlite_pool(&directory.path().join("data.db")).await;
    sqlx::query(LEDGER).execute(&pool).await.expect("a ledger");
    (directory, pool)
}

/// Fences a transaction with this token, dawdles, and appends a row to the ledger.
macro_rules! work {
    ($pool:expr, $token:expr, $pause:expr) => {{
        let mut transaction = $pool.begin().await.expect("a transaction");
        let fenced = fence::transaction(&mut transaction, "my_app", Token($token)).await;
        match fenced {
            Ok(()) => {
                tokio::time::sleep($pause).await;
                let row = sqlx::query("INSERT INTO ledger (token) VALUES ($1)").bind($token as i64);
                row.execute(&mut *transaction).await.expect("a row");
                transaction.commit().await.expect("a commit");
                Ok(())
            }
            Err(error) => Err(error.kind()),
        }
    }};
}

/// Has 120 terms write that begin while the terms before them are still at work, and returns the
/// tokens in the order of the writes, and how many were refused.
macro_rules! play {
    ($pool:expr) => {{
        let pool = $pool.clone();
        let mut writers = JoinSet::new();
        for number in 0..480_u64 {
            let pool = pool.clone();
            let (token, pause) = (1 + number / 4, Duration::from_millis(fastrand::u64(0..15)));
            writers.spawn(async move {
                tokio::time::sleep(Duration::from_millis(5 * number + fastrand::u64(0..60))).await;
                work!(pool, token, pause)
            });
        }
        let mut refused = 0;
        while let Some(written) = writers.join_next().await {
            match written.expect("no panic") {
                Ok(()) => {}
                Err(FenceErrorKind::Stale { .. }) => refused += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
        let tokens = sqlx::query_scalar("SELECT token FROM ledger ORDER BY id");
        let tokens: Vec<i64> = tokens.fetch_all(&pool).await.expect("the ledger");
        assert_eq!(tokens.len() + refused, 480);
        assert!(refused > 10, "{refused} of 480 were late");
        assert!(tokens.is_sorted(), "a former leader has written: {tokens:?}");
        // Of those that a busy machine held up, the last ones refuse the others.
        assert!(tokens.len() > 20, "{tokens:?}");
    }};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_transactions_are_refused_by_postgres() {
    play!(postgres().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_transactions_are_refused_by_sqlite() {
    let (_directory, pool) = sqlite().await;
    play!(pool);
}

#[tokio::test]
async fn first_fence_of_a_term_waits_for_open_transactions() {
    let pool = postgres().await;
    work!(pool, 7, Duration::ZERO).unwrap();
    let mut first = pool.begin().await.unwrap();
    fence::transaction(&mut first, "my_app", Token(7)).await.unwrap();
    // Those of one term do not wait for each other, nor do other elections.
    work!(pool, 7, Duration::ZERO).unwrap();
    let mut other = pool.begin().await.unwrap();
    fence::transaction(&mut other, "another", Token(3)).await.unwrap();
    let successor = tokio::spawn({
        let pool = pool.clone();
        async move { work!(pool, 9, Duration::ZERO) }
    });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    while sqlx::query_scalar::<_, i64>(waits).fetch_one(&pool).await.unwrap() == 0 {
        assert!(!successor.is_finished());
        tokio::task::yield_now().await;
    }
    sqlx::query("INSERT INTO ledger (token) VALUES (7)").execute(&mut *first).await.unwrap();
    first.commit().await.unwrap();
    successor.await.unwrap().unwrap();
    let greatest = Token(9);
    assert_eq!(work!(pool, 7, Duration::ZERO), Err(FenceErrorKind::Stale { greatest }));
}

/// What a program in another language sees: an error that ends its transaction.
#[tokio::test]
async fn fence_of_postgres_raises_an_exception() {
    let pool = postgres().await;
    pool.execute("SELECT incumbent_fence('my_app', 9)").await.unwrap();
    pool.execute("SELECT incumbent_fence('my_app', 9)").await.unwrap();
    let code = async |statement: &'static str| {
        let error = pool.execute(statement).await.unwrap_err();
        error.as_database_error().unwrap().code().unwrap().into_owned()
    };
    assert_eq!(code("SELECT incumbent_fence('my_app', 8)").await, "IN001");
    assert_eq!(code("SELECT incumbent_fence('my_app', NULL)").await, "22023");
    assert_eq!(code("SELECT incumbent_fence('my_app', 0)").await, "22023");
    pool.execute("DROP FUNCTION incumbent_fence").await.unwrap();
    let kind = work!(pool, 10, Duration::ZERO).unwrap_err();
    assert_eq!(kind, FenceErrorKind::Misconfigured);
}

/// A snapshot that is older than the successor's fence does not hide it.
#[tokio::test]
async fn stricter_isolation_levels_exclude_too() {
    let pool = postgres().await;
    work!(pool, 7, Duration::ZERO).unwrap();
    for (level, successor) in [("REPEATABLE READ", 9), ("SERIALIZABLE", 11)] {
        let begin = format!("BEGIN ISOLATION LEVEL {level}");
        let begin = async || pool.begin_with(sqlx::AssertSqlSafe(begin.clone())).await.unwrap();
        let (mut open, mut late) = (begin().await, begin().await);
        fence::transaction(&mut open, "my_app", Token(successor - 2)).await.unwrap();
        late.execute("SELECT count(*) FROM ledger").await.unwrap();
        open.rollback().await.unwrap();
        work!(pool, successor, Duration::ZERO).unwrap();
        let refused = fence::transaction(&mut late, "my_app", Token(successor - 2)).await;
        assert_eq!(refused.unwrap_err().kind(), FenceErrorKind::Unavailable, "{level}");
        late.rollback().await.unwrap();
        let refused = fence::transaction(&mut begin().await, "my_app", Token(successor - 2)).await;
        let greatest = Token(successor);
        assert_eq!(refused.unwrap_err().kind(), FenceErrorKind::Stale { greatest }, "{level}");
    }
}

/// Where a former leader always has a transaction open, its successor waits for those that are open
/// as it comes, not for later ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_transactions_do_not_keep_a_successor_out() {
    let pool = postgres().await;
    work!(pool, 7, Duration::ZERO).unwrap();
    let mut former = JoinSet::new();
    for _ in 0..8 {
        let pool = pool.clone();
        former.spawn(async move {
            let pause = || Duration::from_millis(fastrand::u64(20..60));
            while work!(pool, 7, pause()).is_ok() {}
        });
    }
    while sqlx::query_scalar::<_, i64>("SELECT count(*) FROM ledger")
        .fetch_one(&pool)
        .await
        .unwrap()
        < 50
    {
        tokio::task::yield_now().await;
    }
    tokio::time::timeout(TIMEOUT, async { work!(pool, 9, Duration::ZERO) })
        .await
        .expect("a turn of the successor")
        .unwrap();
    former.join_all().await;
}

#[tokio::test]
async fn names_and_tokens_that_cannot_be_stored_are_refused() {
    let (postgres, (_directory, sqlite)) = (postgres().await, sqlite().await);
    let most = i64::MAX.cast_unsigned();
    for (election, token) in [("", 1), ("my_app", 0), ("my_app", most + 1), ("my_app", u64::MAX)] {
        let mut transaction = postgres.begin().await.unwrap();
        let refused = fence::transaction(&mut transaction, election, Token(token)).await;
        assert_eq!(refused.unwrap_err().kind(), FenceErrorKind::Misconfigured);
        let mut transaction = sqlite.begin().await.unwrap();
        let refused = fence::transaction(&mut transaction, election, Token(token)).await;
        assert_eq!(refused.unwrap_err().kind(), FenceErrorKind::Misconfigured);
    }
    work!(postgres, most, Duration::ZERO).unwrap();
    work!(sqlite, most, Duration::ZERO).unwrap();
}

/// With the permissions of the file, and with the table that the file made, not another of its
/// name.
#[tokio::test]
async fn writer_needs_the_rights_that_the_file_names() {
    let env = TestEnv::new(Duration::from_secs(3)).await;
    let pools = async || pool_options().connect(&env.url()).await.expect("a pool");
    // All candidates of a fleet create it as they start.
    let (a, b, c) = (pools().await, pools().await, pools().await);
    let (a, b, c) =
        tokio::join!(fence::create_tables(&a), fence::create_tables(&b), fence::create_tables(&c));
    a.and(b).and(c).expect("a fence");
    let writer = env.candidate();
    env.admin(&format!("CREATE ROLE {writer} LOGIN")).await;
    env.admin(&format!("CREATE SCHEMA {writer} AUTHORIZATION {writer}")).await;
    env.admin(&format!("CREATE TABLE {writer}.incumbent_fence (name text, token bigint)")).await;
    let url = env.server.url_as(&writer, &env.database);
    let pool = pool_options().connect(&url).await.expect("a pool");
    let fenced = async |token| {
        let mut transaction = pool.begin().await.unwrap();
        let fenced = fence::transaction(&mut transaction, "my_app", Token(token)).await;
        transaction.commit().await.unwrap();
        fenced.map_err(|error| error.kind())
    };
    assert_eq!(fenced(7).await, Err(FenceErrorKind::Misconfigured));
    let grant = FILE.lines().find_map(|line| line.strip_prefix("--     GRANT")).expect("rights");
    let grant = grant.replace("incumbent_fence", "public.incumbent_fence");
    env.admin(&format!("GRANT{}", grant.replace("writers", &writer))).await;
    assert_eq!(fenced(7).await, Ok(()));
    // It exists, although this role could not create it.
    fence::create_tables(&pool).await.expect("the same fence");
    assert_eq!(env.admin("SELECT FROM public.incumbent_fence WHERE token = 7").await.len(), 1);
}

/// The pool's session is not left in the transaction that failed.
#[tokio::test]
async fn role_without_rights_cannot_create_the_fence() {
    let env = TestEnv::new(Duration::from_secs(3)).await;
    let role = env.candidate();
    env.admin(&format!("CREATE ROLE {role} LOGIN")).await;
    env.admin("REVOKE CREATE ON SCHEMA public FROM PUBLIC").await;
    let url = env.server.url_as(&role, &env.database);
    let pool = pool_options().max_connections(1).connect(&url).await.expect("a pool");
    let refused = fence::create_tables(&pool).await.expect_err("no rights");
    assert_eq!(refused.kind(), FenceErrorKind::Misconfigured, "{refused}");
    pool.execute("SELECT 1").await.expect("a session that works");
}

/// A transaction that has read before cannot write after another one: it is begun again.
#[tokio::test]
async fn transaction_of_sqlite_that_read_before_is_tried_again() {
    let (_directory, pool) = sqlite().await;
    let mut reader = pool.begin().await.unwrap();
    reader.execute("SELECT count(*) FROM ledger").await.unwrap();
    work!(pool, 7, Duration::ZERO).unwrap();
    let refused = fence::transaction(&mut reader, "my_app", Token(7)).await;
    assert_eq!(refused.unwrap_err().kind(), FenceErrorKind::Unavailable);
    reader.rollback().await.unwrap();
    let mut immediate = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    immediate.execute("SELECT count(*) FROM ledger").await.unwrap();
    fence::transaction(&mut immediate, "my_app", Token(7)).await.unwrap();
    immediate.commit().await.unwrap();
}

/// Each replica of a service, and one that was restarted, knows what another has let pass.
#[cfg(feature = "tower")]
#[tokio::test]
async fn replicas_of_a_service_share_the_greatest_token() {
    use incumbent::fence::{FenceStore, SqlFence};
    let pool = postgres().await;
    let replica = || SqlFence::new("my_app", pool.clone());
    let (a, b) = (replica(), replica());
    for (store, token) in [(&a, 7), (&b, 7), (&b, 9), (&a, 9), (&a, 9)] {
        drop(store.enter(Token(token)).await.expect("a pass"));
    }
    let greatest = Token(11);
    // As an earlier request of the next term does that is at work elsewhere.
    work!(pool, greatest.0, Duration::ZERO).unwrap();
    for store in [&a, &b, &replica()] {
        let refused = store.enter(Token(9)).await.expect_err("a later term");
        assert_eq!(refused.kind(), FenceErrorKind::Stale { greatest });
        drop(store.enter(greatest).await.expect("a pass"));
    }
}

/// As when a replica without the last commits is promoted: the next request writes it again.
#[cfg(feature = "tower")]
#[tokio::test]
async fn services_restore_a_token_that_the_database_has_lost() {
    use incumbent::fence::{FenceStore, SqlFence};
    const LOSS: &str = "UPDATE incumbent_fence SET token = 7";
    macro_rules! lose {
        ($pool:expr) => {{
            let pool = $pool;
            let service = SqlFence::new("my_app", pool.clone());
            drop(service.enter(Token(9)).await.expect("a pass"));
            pool.execute(LOSS).await.expect("a loss");
            drop(service.enter(Token(9)).await.expect("a pass"));
            let replica = SqlFence::new("my_app", pool);
            let refused = replica.enter(Token(7)).await.expect_err("a later term");
            assert_eq!(refused.kind(), FenceErrorKind::Stale { greatest: Token(9) });
        }};
    }
    lose!(postgres().await);
    let (_directory, sqlite) = sqlite().await;
    lose!(sqlite);
}

#[tokio::test]
async fn term_that_is_over_fences_nothing() {
    let (_directory, pool) = sqlite().await;
    let election = new_election("my_app", MemoryLock::new()).start().unwrap();
    let leadership = election.won().await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    leadership.fence(&mut transaction).await.unwrap();
    transaction.commit().await.unwrap();
    leadership.resign();
    leadership.ended().await;
    let mut transaction = pool.begin().await.unwrap();
    let error = leadership.fence(&mut transaction).await.unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::TermOver);
}
