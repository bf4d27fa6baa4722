//! Takeovers and load on PostgreSQL and on a SQLite file: lease 5 s, disks synced.
//!
//! Each campaigner has a runtime and connections of its own in this process, so a crash is a runtime that is gone.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use incumbent::lock::Lock;
use incumbent::sql::{Postgres, Sqlite, Tables};
use incumbent::{Election, new_election};
use incumbent_test_support::PostgresServer;
use sqlx::{Connection, PgConnection, Row};
use tokio::runtime::{Builder, Runtime};

const LEASE: Duration = Duration::from_secs(5);
const RELEASES: u32 = 30;
const CRASHES: u32 = 6;
const STANDBYS: usize = 49;
const STEADY: Duration = Duration::from_secs(20);
/// Longer than any of them should take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the elections are.
#[derive(Clone, Copy)]
enum Place<'a> {
    Postgres { server: &'a PostgresServer, polling: bool },
    Sqlite(&'a Path),
}

impl Place<'_> {
    fn name(self) -> &'static str {
        match self {
            Self::Postgres { polling: false, .. } => "PostgreSQL",
            Self::Postgres { polling: true, .. } => "PostgreSQL, polling",
            Self::Sqlite(_) => "SQLite",
        }
    }

    async fn lock(self) -> Arc<dyn Lock> {
        let tables = Tables::make().longest_lease(LEASE);
        match self {
            Self::Postgres { server, polling } => {
                let database = Postgres::connect_with(&server.url("postgres"), tables).await;
                let lock = database.expect("a database").lock();
                Arc::new(if polling { lock.polling() } else { lock })
            }
            Self::Sqlite(path) => {
                Arc::new(Sqlite::open_with(path, tables).await.expect("a file").lock())
            }
        }
    }
}

struct Campaigner {
    runtime: Runtime,
    election: Election,
    wins: Receiver<Instant>,
}

impl Campaigner {
    fn start(place: Place<'_>, name: &str, identity: &str) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (won, wins) = channel();
        let election = runtime.block_on(async {
            let builder = new_election(name, place.lock().await).identity(identity).lease(LEASE);
            let builder = builder.on_won(move |leadership| {
                let _ = won.send(Instant::now());
                async move {
                    leadership.ended().await;
                }
            });
            builder.start().expect("a start")
        });
        Self { runtime, election, wins }
    }

    fn won(&self) -> Instant {
        self.wins.recv_timeout(PATIENCE).expect("it wins")
    }

    fn stop(self) {
        self.runtime.block_on(self.election.stop());
        self.runtime.shutdown_background();
    }

    fn crash(self) {
        self.runtime.shutdown_background();
    }
}

fn main() {
    let runtime = Runtime::new().expect("a runtime");
    let settings = ["fsync=on", "max_connections=300"];
    let server = runtime.block_on(PostgresServer::start(&settings));
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("elections.db");
    let postgres = Place::Postgres { server: &server, polling: false };
    for place in [postgres, Place::Sqlite(&file)] {
        let mut took: Vec<_> = (0..RELEASES).map(|trial| takeover(place, true, trial)).collect();
        show("release", place, &mut took);
        let mut took: Vec<_> = (0..CRASHES).map(|trial| takeover(place, false, trial)).collect();
        show("crash", place, &mut took);
    }
    let statements = || runtime.block_on(transactions(&server));
    let quiet = steady(statements);
    println!("transactions a second, nobody there: {quiet:.2}");
    for polling in [false, true] {
        let place = Place::Postgres { server: &server, polling };
        let name = format!("steady-{polling}");
        let leader = Campaigner::start(place, &name, "leader");
        leader.won();
        thread::sleep(LEASE);
        let alone = steady(statements);
        let stand_by = |number| Campaigner::start(place, &name, &format!("stand-by-{number}"));
        let standbys: Vec<_> = (0..STANDBYS).map(stand_by).collect();
        thread::sleep(LEASE * 2);
        let all = steady(statements);
        println!(
            "transactions a second, {}: leader {alone:.2}, and {STANDBYS} stand-bys {all:.2}",
            place.name()
        );
        standbys.into_iter().for_each(Campaigner::crash);
        leader.stop();
    }
}

/// How long after the end of one leader another one leads. Trials strike at different ages of the last renewal.
fn takeover(place: Place<'_>, release: bool, trial: u32) -> Duration {
    let name = format!("{release}-{trial}");
    let first = Campaigner::start(place, &name, "first");
    first.won();
    let second = Campaigner::start(place, &name, "second");
    thread::sleep(Duration::from_millis(500) + LEASE * (trial % 6) / 12);
    let began = Instant::now();
    if release {
        first.stop()
    } else {
        first.crash()
    }
    let took = second.won().saturating_duration_since(began);
    second.stop();
    took
}

fn show(end: &str, place: Place<'_>, took: &mut [Duration]) {
    took.sort_unstable();
    let [min, median, max] = [0, took.len() / 2, took.len() - 1].map(|i| took[i]);
    println!("takeover after a {end}, {}: {min:.3?} / {median:.3?} / {max:.3?}", place.name());
}

fn steady(statements: impl Fn() -> i64) -> f64 {
    let (before, began) = (statements(), Instant::now());
    thread::sleep(STEADY);
    (statements() - before) as f64 / began.elapsed().as_secs_f64()
}

/// What the server has counted: each statement of ours is one transaction.
async fn transactions(server: &PostgresServer) -> i64 {
    let mut connection =
        PgConnection::connect(&server.url("template1")).await.expect("a connection");
    let counted =
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'postgres'";
    let row = sqlx::raw_sql(counted).fetch_one(&mut connection).await.expect("a count");
    let _ = connection.close().await;
    row.get(0)
}
