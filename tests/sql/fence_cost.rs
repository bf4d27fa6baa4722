//! What a fence costs a write, beside the same write without.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use incumbent::fence::{self, FenceLayer, MemoryFence, SqlFence, TOKEN_HEADER};
use incumbent::lock::Token;
use incumbent_test_support::PostgresServer;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::SqlitePoolOptions;
use tokio::net::TcpListener;
use tower::{Layer, service_fn};

use crate::fence::{create_ledger, sqlite, sqlite_options};
use crate::late_writes::serve;

const ROUNDS: u32 = 2_000;

/// A transaction with one row, fenced by this token.
macro_rules! write {
    ($pool:expr, $fenced_by:expr) => {{
        let fenced_by: Option<u64> = $fenced_by;
        let mut transaction = $pool.begin().await.expect("a transaction");
        if let Some(token) = fenced_by {
            let fenced = fence::transaction(&mut transaction, "my_app", Token(token)).await;
            fenced.expect("its turn");
        }
        let row = sqlx::query("INSERT INTO ledger (token) VALUES ($1)").bind(7_i64);
        row.execute(&mut *transaction).await.expect("a row");
        transaction.commit().await.expect("a commit");
    }};
}

/// Prints the medians of both, by turns, and how long the first one of a term takes.
async fn compare(store: &str, fenced: impl AsyncFn(u64), plain: impl AsyncFn()) {
    fenced(7).await;
    plain().await;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        fenced(7).await;
        with.push(start.elapsed());
        let start = Instant::now();
        plain().await;
        without.push(start.elapsed());
    }
    let mut first = Vec::new();
    for token in 8..108 {
        let start = Instant::now();
        fenced(token).await;
        first.push(start.elapsed());
    }
    let [with, without, first] = [with, without, first].map(median);
    println!("{store}: fenced {with:?}, plain {without:?}, the first of a term {first:?}");
}

fn median(mut spans: Vec<Duration>) -> Duration {
    spans.sort();
    spans[spans.len() / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn cost_of_a_fence() {
    let server = PostgresServer::start(&["fsync=on"]).await;
    let pool = PgPoolOptions::new().max_connections(1).test_before_acquire(false);
    let pool = pool.connect(&server.url("postgres")).await.expect("a pool");
    fence::create_tables(&pool).await.expect("a fence");
    create_ledger(&pool).await;
    let fenced = async |token| write!(pool, Some(token));
    compare("PostgreSQL", fenced, async || write!(pool, None)).await;

    let (directory, _) = sqlite().await;
    let pool = SqlitePoolOptions::new().max_connections(1).test_before_acquire(false);
    let pool = pool.connect_with(sqlite_options(&directory.path().join("data.db"))).await;
    let pool = pool.expect("a pool");
    let fenced = async |token| write!(pool, Some(token));
    compare("SQLite", fenced, async || write!(pool, None)).await;

    let handler = || {
        service_fn(async |_: Request<Incoming>| {
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        })
    };
    let listen =
        async || Arc::new(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port"));
    let (plain, in_memory, in_sqlite) = (listen().await, listen().await, listen().await);
    let [plain_url, memory_url, sqlite_url] = [&plain, &in_memory, &in_sqlite]
        .map(|listener| format!("http://{}", listener.local_addr().expect("an address")));
    tokio::spawn(serve(plain, handler()));
    let fence = FenceLayer::new(MemoryFence::new("my_app"));
    tokio::spawn(serve(in_memory, fence.layer(handler())));
    let fence = FenceLayer::new(SqlFence::new("another", pool.clone()));
    tokio::spawn(serve(in_sqlite, fence.layer(handler())));
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let send = async |url: &str, token: Option<u64>| {
        let mut request = Request::post(url);
        if let Some(token) = token {
            request = request.header(TOKEN_HEADER, token);
        }
        let request = request.body(Empty::new()).expect("a request");
        assert!(client.request(request).await.expect("a response").status().is_success());
    };
    let plain = async || send(&plain_url, None).await;
    compare("HTTP, memory", async |token| send(&memory_url, Some(token)).await, plain).await;
    compare("HTTP, SQLite", async |token| send(&sqlite_url, Some(token)).await, plain).await;
}
