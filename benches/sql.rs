//! Takeovers and load on PostgreSQL, beside the clients of the job queue River, and on a SQLite
//! file: lease 5 s (River's is 15 s), disks synced.
//!
//! Each of our candidates has a runtime and connections of its own in this process, so a crash is a
//! runtime that is gone; River's are processes.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use incumbent::lock::Lock;
use incumbent::new_election;
use incumbent::sql::{Postgres, Sqlite, TableSetup};
use incumbent_test_support::{PostgresServer, go_program};
use sqlx::{Connection, PgConnection, Row};
use tokio::runtime::Runtime;

use support::{Candidate, End, load, show, takeover};

const LEASE: Duration = Duration::from_secs(5);
const RELEASES: u32 = 30;
const CRASHES: u32 = 6;
const STANDBYS: usize = 49;
const STEADY: Duration = Duration::from_secs(20);
/// River's clients poll every 5 to 6 s.
const SETTLE: Duration = Duration::from_secs(12);
const DATABASE: &str = "elections";

/// Where the elections are, and whose they are.
#[derive(Clone, Copy)]
enum Place<'a> {
    Postgres { server: &'a PostgresServer, polling: bool },
    River { server: &'a PostgresServer, program: &'a Path },
    Sqlite(&'a Path),
}

impl Place<'_> {
    fn name(self) -> &'static str {
        match self {
            Self::Postgres { polling: false, .. } => "PostgreSQL",
            Self::Postgres { polling: true, .. } => "PostgreSQL, polling",
            Self::River { .. } => "PostgreSQL, River",
            Self::Sqlite(_) => "SQLite",
        }
    }

    fn start(self, name: &str, identity: &str) -> Candidate {
        match self {
            Self::Postgres { server, polling } => ours(name, identity, async |tables| {
                let database = Postgres::connect_with(&server.url(DATABASE), tables).await;
                let lock = database.expect("a database").lock();
                Arc::new(if polling { lock.polling() } else { lock }) as Arc<dyn Lock>
            }),
            Self::River { server, program } => {
                let mut command = river(program, server);
                Candidate::other(command.args(["-identity", identity]), |_| {})
            }
            Self::Sqlite(path) => ours(name, identity, async |tables| {
                Arc::new(Sqlite::open_with(path, tables).await.expect("a file").lock())
                    as Arc<dyn Lock>
            }),
        }
    }
}

fn ours(
    name: &str,
    identity: &str,
    lock: impl AsyncFnOnce(TableSetup) -> Arc<dyn Lock>,
) -> Candidate {
    Candidate::ours(async || {
        let lock = lock(TableSetup::create().max_lease(LEASE)).await;
        new_election(name, lock).identity(identity).lease(LEASE)
    })
}

fn river(program: &Path, server: &PostgresServer) -> Command {
    let mut command = Command::new(program);
    command.args(["-url", &server.url(DATABASE)]);
    command
}

fn main() {
    let runtime = Runtime::new().expect("a runtime");
    let settings = ["fsync=on", "max_connections=400"];
    let server = runtime.block_on(PostgresServer::start(&settings));
    runtime.block_on(run(&server, &format!("CREATE DATABASE {DATABASE}")));
    let program: PathBuf = go_program("river");
    let migrated = river(&program, &server).arg("-migrate").status().expect("River");
    assert!(migrated.success());
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("elections.db");
    let postgres = Place::Postgres { server: &server, polling: false };
    let river = Place::River { server: &server, program: &program };
    for (end, trials) in [(End::Release, RELEASES), (End::Crash, CRASHES)] {
        for place in [postgres, river, Place::Sqlite(&file)] {
            let trial = |trial: u32| {
                let name = format!("{end:?}-{trial}");
                // Trials strike at different ages of the last renewal.
                let age = Duration::from_millis(500) + LEASE * (trial % 6) / 12;
                takeover(|identity| place.start(&name, identity), age, end)
            };
            let mut took: Vec<_> = (0..trials).map(trial).collect();
            show(&format!("takeover after {end:?}, {}", place.name()), &mut took);
        }
    }
    let transactions = || runtime.block_on(transactions(&server)) as f64;
    let (before, began) = (transactions(), Instant::now());
    thread::sleep(STEADY);
    let quiet = (transactions() - before) / began.elapsed().as_secs_f64();
    println!("transactions a second, no candidates: {quiet:.2}");
    let polling = Place::Postgres { server: &server, polling: true };
    for place in [postgres, polling, river] {
        for standbys in [0, STANDBYS] {
            let name = format!("steady-{standbys}-{}", place.name());
            let start = |identity: &str| place.start(&name, identity);
            let rate = load(start, standbys, SETTLE, STEADY, transactions);
            println!(
                "transactions a second, {}: a leader and {standbys} standbys {rate:.2}",
                place.name()
            );
        }
    }
}

async fn run(server: &PostgresServer, statement: &str) {
    let mut connection = connection(server).await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned()))
        .execute(&mut connection)
        .await
        .expect(statement);
    let _ = connection.close().await;
}

/// Beside the one with the elections.
async fn connection(server: &PostgresServer) -> PgConnection {
    PgConnection::connect(&server.url("postgres")).await.expect("a connection")
}

/// What the server has counted: each statement of ours is one transaction.
async fn transactions(server: &PostgresServer) -> i64 {
    let mut connection = connection(server).await;
    let counted = format!(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{DATABASE}'"
    );
    let row = sqlx::raw_sql(sqlx::AssertSqlSafe(counted)).fetch_one(&mut connection).await;
    let _ = connection.close().await;
    row.expect("a count").get(0)
}
