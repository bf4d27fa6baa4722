//! Leaders that are suspended, killed or left running while a successor writes: none of their
//! writes comes late, by the history of the store.
//!
//! A leader is a process of its own with three writers. Each fences, dawdles, writes, dawdles and
//! commits, so it is suspended anywhere: before its fence, after it, and before its commit. A round
//! is a term. `INCUMBENT_LATE_WRITES=1000` plays as many.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use incumbent::fence::{
    self, ELECTION_HEADER, FenceErrorKind, FenceLayer, FenceStore, MemoryFence, SqlFence,
    TOKEN_HEADER,
};
use incumbent::lock::Token;
use incumbent::new_election;
use incumbent::sql::TableSetup;
use incumbent_test_support::{
    PostgresServer, Worker, late_write_rounds, worker_orders, worker_says,
};
use sqlx::{Executor, PgPool};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower::{Layer, Service, ServiceExt, service_fn as tower_service_fn};

use crate::env::{connected, pool_options, run};
use crate::fence::{create_ledger, sqlite, sqlite_pool};

const ELECTION: &str = "my_app";
/// Longer than any step of a round may take.
const LIMIT: Duration = Duration::from_secs(120);
/// After this long a successor that is held up has its predecessor resumed.
const HELD_UP: Duration = Duration::from_millis(300);

/// The process of a leader that is ready to write to this store.
fn leader_of(store: &str) -> Worker {
    Worker::start("late_writes::leader", &[("STORE", store.to_owned())])
}

async fn begins(leader: &mut Worker, token: u64) {
    leader.order(&token.to_string()).await;
}

async fn says(leader: &mut Worker, word: &str) {
    while leader.next().await != word {}
}

/// Waits for its first write.
async fn has_written(leader: &mut Worker) {
    says(leader, "written").await;
}

/// Waits until each of its writers was refused.
async fn ends_by_refusal(leader: Worker) {
    let succeeded = timeout(LIMIT, leader.succeeds()).await.expect("an end in time");
    assert!(succeeded, "a former leader has failed");
}

/// What happened in the rounds.
#[derive(Debug, Default)]
struct Tally {
    rounds: u64,
    suspended: u64,
    killed: u64,
    left_running: u64,
    /// Rounds in which the successor could not write before its predecessor was resumed.
    held_up: u64,
    faults: u64,
}

/// Plays terms, with a fault of the server in each round that `fault` chooses.
async fn play(store: &str, count: u64, mut fault: impl AsyncFnMut(u64) -> bool) -> Tally {
    let mut tally = Tally::default();
    let mut former = leader_of(store);
    begins(&mut former, 1).await;
    has_written(&mut former).await;
    let mut next = leader_of(store);
    for token in 2..2 + count {
        sleep(Duration::from_micros(fastrand::u64(0..8000))).await;
        let fate = fastrand::u8(0..10);
        match fate {
            0 => former.kill(),
            1 => {}
            _ => former.pause().await,
        }
        begins(&mut next, token).await;
        let spare = leader_of(store);
        if fault(token).await {
            tally.faults += 1;
        }
        if timeout(HELD_UP, has_written(&mut next)).await.is_err() {
            tally.held_up += 1;
            if fate > 1 {
                former.resume();
            }
            timeout(LIMIT, has_written(&mut next)).await.expect("a write of the successor");
        }
        tally.rounds += 1;
        match fate {
            0 => tally.killed += 1,
            1 => {
                tally.left_running += 1;
                ends_by_refusal(former).await;
            }
            _ => {
                tally.suspended += 1;
                former.resume();
                ends_by_refusal(former).await;
            }
        }
        (former, next) = (next, spare);
    }
    tally
}

/// How many of these writes, in the order of the store's history, came after a greater token.
fn late(history: &[u64]) -> usize {
    let mut greatest = 0;
    let mut is_late = |&token: &u64| {
        greatest = greatest.max(token);
        token < greatest
    };
    history.iter().copied().filter(|token| is_late(token)).count()
}

/// Of the rounds that were played, with what the store's history says.
fn judge(store: &str, tally: &Tally, history: &[u64]) {
    println!("{store}: {} writes, {} late, {tally:?}", history.len(), late(history));
    assert_eq!(late(history), 0, "late writes: {history:?}");
    let terms = history.iter().collect::<BTreeSet<_>>().len();
    assert!(terms as u64 > tally.rounds, "{terms} terms have written in {} rounds", tally.rounds);
}

/// A server whose write-ahead log is the history, with the order of the commits.
async fn postgres(settings: &[&str]) -> PostgresServer {
    let server = PostgresServer::start(&[&["wal_level=logical"], settings].concat()).await;
    let url = server.url("postgres");
    let pool = pool_options().connect(&url).await.expect("a pool");
    fence::create_tables(&pool).await.expect("a fence");
    create_ledger(&pool).await;
    pool.execute("SELECT pg_create_logical_replication_slot('history', 'test_decoding')")
        .await
        .expect("a history");
    server
}

/// Ends the transaction of a suspended leader.
const TIMEOUT: &[&str] = &["idle_in_transaction_session_timeout=100"];

/// The tokens of fences and writes, as they were committed.
async fn history_of_postgres(server: &PostgresServer) -> Vec<u64> {
    let pool = pool_options().connect(&server.url("postgres")).await.expect("a pool");
    let changes = "SELECT data FROM pg_logical_slot_get_changes('history', NULL, NULL)
        WHERE data ~ '^table public\\.(ledger|incumbent_fence):'";
    let changes: Vec<String> = sqlx::query_scalar(changes).fetch_all(&pool).await.expect("changes");
    let tokens = changes.iter().filter_map(|change| change.split_once("token[bigint]:"));
    tokens.map(|(_, token)| token.parse().expect("a token")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_late_write_reaches_postgres() {
    let server = postgres(TIMEOUT).await;
    let url = server.url("postgres");
    let tally = play(&url, late_write_rounds(20), async |round| {
        match round % 20 {
            9 => {
                server.kill();
                server.restart().await;
            }
            4 | 14 => {
                server.pause();
                sleep(Duration::from_millis(30)).await;
                server.resume();
            }
            _ => return false,
        }
        true
    });
    let tally = tally.await;
    judge("PostgreSQL", &tally, &history_of_postgres(&server).await);
}

/// Without the locks the fence compares tokens, and a late commit slips through: which the history
/// shows, though the ids of the rows are in the order of the terms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_commit_is_in_the_history_of_postgres() {
    let server = postgres(TIMEOUT).await;
    let mutilated = include_str!("../../deploy/postgres-fence.sql")
        .replace(" FOR SHARE", "")
        .replace("PERFORM pg_advisory_xact_lock_shared(1718510437, hashtext(election))", "NULL");
    run(&server.url("postgres"), &mutilated).await;
    for _ in 0..20 {
        play(&server.url("postgres"), 5, async |_| false).await;
        if late(&history_of_postgres(&server).await) > 0 {
            return;
        }
        run(&server.url("postgres"), "TRUNCATE incumbent_fence").await;
    }
    panic!("no late commit in 100 rounds");
}

/// A whole term: its deadline passes while its process is suspended behind its fence. Its successor
/// waits for its transaction, which an operator ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_leader_cannot_commit_after_its_successor() {
    const END_BLOCKERS: &str = "SELECT pg_terminate_backend(blocker)
        FROM pg_stat_activity, unnest(pg_blocking_pids(pid)) blocker
        WHERE query LIKE 'SELECT incumbent_fence(%'";
    let server = postgres(&[]).await;
    let pool = pool_options().connect(&server.url("postgres")).await.expect("a pool");
    let (mut former, mut successor) = {
        let store = format!("election:{}", server.url("postgres"));
        (leader_of(&store), leader_of(&store))
    };
    begins(&mut former, 0).await;
    timeout(LIMIT, says(&mut former, "fenced")).await.expect("a term");
    former.pause().await;
    begins(&mut successor, 0).await;
    let ended = async {
        while pool.fetch_all(END_BLOCKERS).await.expect("the sessions").is_empty() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = ended => {}
        () = says(&mut successor, "fenced") => panic!("the successor has not waited"),
        () = sleep(LIMIT) => panic!("no successor"),
    }
    timeout(LIMIT, says(&mut successor, "fenced")).await.expect("the next term");
    begins(&mut successor, 0).await;
    timeout(LIMIT, has_written(&mut successor)).await.expect("a write");
    begins(&mut former, 0).await;
    former.resume();
    timeout(LIMIT, says(&mut former, "refused")).await.expect("a refusal");
    let history = history_of_postgres(&server).await;
    let [late, fence, write] = history[..] else { panic!("{history:?}") };
    assert!(late < fence && fence == write, "{history:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_late_write_reaches_sqlite() {
    let (directory, pool) = sqlite().await;
    let path = directory.path().join("data.db").display().to_string();
    let tally = play(&format!("sqlite:{path}"), late_write_rounds(20), async |_| false).await;
    // There is one writer at a time: the order of the ids is that of the commits.
    let history = sqlx::query_scalar("SELECT token FROM ledger ORDER BY id");
    let history: Vec<i64> = history.fetch_all(&pool).await.expect("the ledger");
    let history: Vec<u64> = history.into_iter().map(i64::cast_unsigned).collect();
    judge("SQLite", &tally, &history);
}

/// A service behind a fence, whose handler appends the token to the ledger.
struct Billing {
    /// Kept when the service is restarted: a client could take the port.
    listener: Arc<TcpListener>,
    ledger: Arc<Mutex<Vec<u64>>>,
    connections: JoinSet<()>,
}

impl Billing {
    async fn start<S: FenceStore>(store: S, restarted: Option<&Self>) -> Self {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (listener, ledger) = match restarted {
            Some(old) => (Arc::clone(&old.listener), Arc::clone(&old.ledger)),
            None => (Arc::new(TcpListener::bind(any).await.expect("a port")), Arc::default()),
        };
        let accepting = Arc::clone(&listener);
        let rows = Arc::clone(&ledger);
        let service =
            FenceLayer::new(store).layer(tower_service_fn(move |request: Request<Incoming>| {
                let rows = Arc::clone(&rows);
                async move {
                    let token = *request.extensions().get::<Token>().expect("a token");
                    dawdle().await;
                    rows.lock().expect("a ledger").push(token.0);
                    dawdle().await;
                    Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
                }
            }));
        let mut connections = JoinSet::new();
        connections.spawn(serve(accepting, service));
        Self { listener, ledger, connections }
    }

    fn url(&self) -> String {
        format!("http://{}", self.listener.local_addr().expect("an address"))
    }

    fn history(&self) -> Vec<u64> {
        self.ledger.lock().expect("a ledger").clone()
    }
}

/// Serves connections until it is dropped.
pub async fn serve<S>(listener: Arc<TcpListener>, service: S)
where
    S: Service<Request<Incoming>, Response = Response<Empty<Bytes>>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let mut open = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let service = service.clone();
        open.spawn(async move {
            let serve = service_fn(|request| service.clone().oneshot(request));
            let connection = hyper::server::conn::http1::Builder::new();
            let _ = connection.serve_connection(TokioIo::new(stream), serve).await;
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_late_request_is_handled() {
    let service = Billing::start(MemoryFence::new(ELECTION), None).await;
    let url = service.url();
    let tally = play(&url, late_write_rounds(20), async |_| false).await;
    judge("HTTP, memory", &tally, &service.history());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_late_request_is_handled_after_a_restart() {
    let (_directory, pool) = sqlite().await;
    let mut service = Billing::start(SqlFence::new(ELECTION, pool.clone()), None).await;
    let url = service.url();
    let tally = play(&url, late_write_rounds(20), async |round| {
        if round % 5 != 0 {
            return false;
        }
        // Whatever is in flight ends with it.
        service.connections.shutdown().await;
        service = Billing::start(SqlFence::new(ELECTION, pool.clone()), Some(&service)).await;
        true
    });
    let tally = tally.await;
    judge("HTTP, SQLite", &tally, &service.history());
}

async fn dawdle() {
    sleep(Duration::from_micros(fastrand::u64(0..4000))).await;
}

#[derive(Debug, Clone, Copy)]
enum Written {
    Yes,
    Refused,
    /// A fault: try again.
    Unknown,
}

/// Writes a row in a fenced transaction, unless anything fails.
macro_rules! write_row {
    ($pool:expr, $token:expr) => {{
        let attempt = async || {
            let mut transaction = $pool.begin().await.map_err(|_| Written::Unknown)?;
            let fenced = fence::transaction(&mut transaction, ELECTION, $token).await;
            fenced.map_err(|error| match error.kind() {
                FenceErrorKind::Stale { .. } => Written::Refused,
                FenceErrorKind::Unavailable => Written::Unknown,
                _ => panic!("{error}"),
            })?;
            dawdle().await;
            let row = sqlx::query("INSERT INTO ledger (token) VALUES ($1)");
            let row = row.bind($token.0.cast_signed()).execute(&mut *transaction).await;
            row.map_err(|_| Written::Unknown)?;
            dawdle().await;
            transaction.commit().await.map_err(|_| Written::Unknown)
        };
        attempt().await.map_or_else(|failed| failed, |()| Written::Yes)
    }};
}

/// A leader of the tests above.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process of other tests"]
async fn leader() {
    let Ok(store) = env::var("STORE") else { return };
    match store.split_once(':').expect("a store") {
        ("sqlite", path) => {
            let (pool, token) = (sqlite_pool(path.as_ref()).await, token().await);
            write_until_refused(async || write_row!(pool, token)).await;
        }
        ("http", _) => {
            let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
            let token = token().await;
            write_until_refused(async || {
                let request = Request::post(&store)
                    .header(TOKEN_HEADER, token.0)
                    .header(ELECTION_HEADER, ELECTION)
                    .body(Empty::new())
                    .expect("a request");
                match client.request(request).await.map(|response| response.status()) {
                    Ok(StatusCode::OK) => Written::Yes,
                    Ok(StatusCode::CONFLICT) => Written::Refused,
                    // The service is down, or was on the way.
                    Ok(StatusCode::SERVICE_UNAVAILABLE) | Err(_) => Written::Unknown,
                    Ok(other) => panic!("{other}"),
                }
            })
            .await;
        }
        ("election", url) => lead(url).await,
        _ => {
            // The server may be down right now.
            let pool = PgPool::connect_lazy(&store).expect("a URL");
            let _ = pool.acquire().await;
            let token = token().await;
            write_until_refused(async || write_row!(pool, token)).await;
        }
    }
}

/// Campaigns, fences as its term begins, and then a transaction in which it writes when it is told
/// to.
async fn lead(url: &str) {
    let pool = pool_options().connect(url).await.expect("a pool");
    token().await;
    // Longer than a busy machine stands still between its win and its fence.
    let tables = TableSetup::create().max_lease(Duration::from_secs(15));
    let lock = connected(url, tables).await.lock();
    let election = new_election(ELECTION, lock).identity(std::process::id().to_string());
    let election = election.start().expect("a start");
    let leadership = election.won().await.expect("a term");
    let mut transaction = pool.begin().await.expect("a transaction");
    leadership.fence(&mut transaction).await.expect("its turn");
    transaction.commit().await.expect("a fence");
    let mut transaction = pool.begin().await.expect("a transaction");
    leadership.fence(&mut transaction).await.expect("its turn");
    worker_says("fenced");
    token().await;
    let row = sqlx::query("INSERT INTO ledger (token) VALUES ($1)");
    let row = row.bind(leadership.token().0.cast_signed()).execute(&mut *transaction).await;
    let written = row.is_ok() && transaction.commit().await.is_ok();
    worker_says(if written { "written" } else { "refused" });
    drop(leadership);
    election.stop().await;
}

/// The token of the term, which begins by it.
async fn token() -> Token {
    let line = worker_orders().next_line().await.expect("a line").expect("an order");
    Token(line.parse().expect("a token"))
}

async fn write_until_refused(write: impl AsyncFn() -> Written) {
    let has_written = AtomicBool::new(false);
    let writer = async || {
        loop {
            // Lets others have their turn: SQLite has no queue.
            dawdle().await;
            match write().await {
                Written::Yes if !has_written.swap(true, Ordering::Relaxed) => {
                    worker_says("written");
                }
                Written::Yes => {}
                Written::Refused => return,
                Written::Unknown => sleep(Duration::from_millis(2)).await,
            }
        }
    };
    tokio::join!(writer(), writer(), writer());
}
