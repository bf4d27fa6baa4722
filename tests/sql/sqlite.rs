//! What becomes of elections in a file.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use incumbent::clock::{BootClock, Clock};
use incumbent::lock::{Content, Lock, LockErrorKind, Reading, Tombstone};
use incumbent::sql::{Sqlite, SqliteLock, TableSetup};
use incumbent::{Cause, Leadership, new_election};
use incumbent_test_support::{Process, SmallDisk, eventually};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use sqlx::{ConnectOptions, Row, SqliteConnection};

use crate::conformance::{
    TIMEOUT, becomes_true, frees, in_one_term, is_renewed, leads, sees, soon,
};
use crate::file::{FileEnv, opened};

const LEASE: Duration = Duration::from_secs(3);
/// For terms that have to continue on a busy machine for a moment.
const WAIT: Duration = Duration::from_secs(12);

/// What `sqlite3` shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_row_shows_the_leader_its_start_and_its_lease() {
    becomes_true("terms that last", row_shows_the_leader).await;
}

/// False: a term expired, or was not released in time, as may be on a busy machine.
async fn row_shows_the_leader() -> bool {
    let env = FileEnv::new(LEASE);
    let first = env.campaign("first").await;
    let leadership = leads(&first).await;
    let row = env.row().await.expect("a row");
    if !leadership.is_valid() {
        return false;
    }
    assert_eq!(row.get::<Option<&str>, _>("holder"), Some("first"));
    assert_eq!(row.get::<i64, _>("transitions"), 0);
    assert_eq!(row.get::<i64, _>("lease_duration_ms"), 3000);
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
    assert_eq!(row.get::<i64, _>("transitions"), 1);
    assert_eq!(row.get::<Option<i64>, _>("token"), Some(leadership.token().0.cast_signed()));
    true
}

/// Five processes in one file, of which the leader is killed again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn killed_processes_are_replaced_and_at_most_one_leads() {
    let env = FileEnv::new(Duration::from_secs(1));
    let mut candidates: Vec<_> = (0..5).map(|i| Candidate::start(&env, i)).collect();
    let mut killed = Vec::new();
    for turn in 0..4 {
        let leader = eventually("another leads", async || {
            let wins = Candidate::wins(&env);
            let last = wins.last().filter(|_| wins.len() > turn)?.clone();
            (!killed.contains(&last.0)).then_some(last.0)
        })
        .await;
        let index = candidates.iter().position(|c| c.identity == leader).unwrap();
        candidates.swap_remove(index).process.signal(Signal::KILL);
        killed.push(leader);
    }
    eventually("the last leads", async || (Candidate::wins(&env).len() > 4).then_some(())).await;
    let log = Candidate::log(&env);
    assert!(!log.contains("overlap"), "{log}");
    let tokens: Vec<u64> = Candidate::wins(&env).into_iter().map(|(_, token)| token).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

/// A candidate in a process of its own, whose work holds a lock of the kernel's that dies with it.
pub struct Candidate {
    identity: String,
    pub process: Process,
}

impl Candidate {
    fn start(env: &FileEnv, number: usize) -> Self {
        Self::start_by(&[], env, number, env.path())
    }

    /// In the file `elections`, started by other programs.
    pub fn start_by(by: &[&str], env: &FileEnv, number: usize, elections: PathBuf) -> Self {
        let identity = format!("process-{number}");
        let program = std::env::current_exe().unwrap();
        let log = env.directory.path().join(format!("{identity}.log"));
        let first = by.first().map_or(program.as_path(), Path::new);
        let process = Process::spawn(first, &log, |command| {
            if let Some((_, rest)) = by.split_first() {
                command.args(rest).arg(&program);
            }
            command.args(["--ignored", "--exact", "sqlite::a_process", "--nocapture"]);
            command.env("ELECTIONS", elections).env("IDENTITY", &identity);
            command.env("LEASE_MS", env.lease.as_millis().to_string());
        });
        Self { identity, process: process.expect("a process") }
    }

    /// Its standard error.
    pub fn errors(&self, env: &FileEnv) -> String {
        let log = env.directory.path().join(format!("{}.log", self.identity));
        fs::read_to_string(log).unwrap_or_default()
    }

    pub fn log(env: &FileEnv) -> String {
        fs::read_to_string(env.directory.path().join("wins")).unwrap_or_default()
    }

    pub fn wins(env: &FileEnv) -> Vec<(String, u64)> {
        let log = Self::log(env);
        let wins = log.lines().filter_map(|line| line.split_once(' '));
        wins.filter_map(|(who, token)| Some((who.to_owned(), token.parse().ok()?))).collect()
    }
}

#[tokio::test]
#[ignore = "a part of another test, run in processes of its own"]
async fn a_process() {
    let Some(path) = std::env::var_os("ELECTIONS").map(PathBuf::from) else { return };
    let identity = std::env::var("IDENTITY").unwrap();
    let lease = Duration::from_millis(std::env::var("LEASE_MS").unwrap().parse().unwrap());
    let tables = TableSetup::create().max_lease(lease);
    let lock = opened(&path, tables).await.lock();
    let (said, over) = (path.with_file_name("wins"), path.with_file_name("over"));
    let append = || fs::OpenOptions::new().create(true).append(true).open(&said).unwrap();
    let election = new_election("my_app", lock).identity(&*identity).start().unwrap();
    loop {
        let leadership = election.won().await.unwrap();
        let (won, mut file) = (BootClock.now().since_origin().as_nanos(), append());
        let mut alone = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if !alone {
            // One that a busy machine holds up lets go late: its term was over before.
            while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let [wins, over] =
                [&said, &over].map(|file| fs::read_to_string(file).unwrap_or_default());
            alone = over.split_once(' ').is_some_and(|(token, until)| {
                wins.ends_with(&format!(" {token}\n"))
                    && until.parse::<u128>().expect("a time") <= won
            });
        }
        let word = if alone { leadership.token().to_string() } else { "overlap".to_owned() };
        file.write_all(format!("{identity} {word}\n").as_bytes()).unwrap();
        leadership.ended().await;
        let until = leadership.deadline().since_origin().as_nanos();
        fs::write(&over, format!("{} {until}", leadership.token())).unwrap();
        drop(file);
    }
}

/// No write succeeds, so there is no leader; once there is room the election continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_full_disk_ends_the_term_and_is_reported() {
    let Some(disk) = SmallDisk::mount("elections on a full disk") else { return };
    let lock = opened(&disk.path().join("elections.db"), TableSetup::create()).await.lock();
    let election = new_election("my_app", lock).identity("only").lease(WAIT);
    let election = crate::conformance::working(election).start().unwrap();
    let leadership = leads(&election).await;
    let filler = disk.path().join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 512]).is_ok() {}
    let loss = soon("the end", leadership.ended()).await;
    let Cause::Expired { last_error: Some(error) } = loss.cause else { panic!("{:?}", loss.cause) };
    assert!(error.contains("is full"), "{error}");
    drop(leadership);
    drop(file);
    fs::remove_file(filler).unwrap();
    drop(leads(&election).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_file_that_cannot_be_written_is_refused() {
    let Some(disk) = SmallDisk::mount("elections on a full disk") else { return };
    let path = disk.path().join("elections.db");
    drop(opened(&path, TableSetup::create()).await);
    disk.remount_read_only();
    let error = Sqlite::open(&path).await.unwrap_err();
    let what = "cannot be opened: check that it and its directory may be written";
    assert_eq!(error.to_string(), format!("{} {what}", path.display()));
    let error = Sqlite::open(disk.path().join("other.db")).await.unwrap_err();
    assert!(error.to_string().ends_with(&format!("other.db {what}")), "{error}");
}

/// Deleting the file ends the term at once; standbys report what is wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_deleted_file_ends_the_term_at_once_and_is_not_recreated() {
    let env = FileEnv::new(Duration::from_secs(30));
    let first = env.campaign("first").await;
    let leadership = leads(&first).await;
    let second = env.campaign("second").await;
    sees(&second, "first").await;
    let aside = env.directory.path().join("aside");
    fs::create_dir(&aside).unwrap();
    let files = ["elections.db", "elections.db-wal", "elections.db-shm"];
    for file in files {
        fs::rename(env.directory.path().join(file), aside.join(file)).unwrap();
    }
    // Long before the lease of 30 s is over.
    let loss = soon("the end", leadership.ended()).await;
    assert_eq!(loss.cause, Cause::Evicted);
    drop(leadership);
    let failure = eventually("a failure", async || {
        second.lock_failure().filter(|failure| failure.kind == LockErrorKind::Misconfigured)
    })
    .await;
    assert!(failure.message.contains("was deleted: restore it"), "{}", failure.message);
    assert!(!env.path().exists());
    // The file itself last: one that is opened without its log would begin another log.
    for file in files.into_iter().rev() {
        fs::rename(aside.join(file), env.directory.path().join(file)).unwrap();
    }
    eventually("one leads", async || (first.is_leader() || second.is_leader()).then_some(())).await;
}

const LOG_AND_INDEX: [&str; 2] = ["elections.db-wal", "elections.db-shm"];

/// A connection that has copied the log into the file.
async fn with_log_copied(env: &FileEnv) -> SqliteConnection {
    let mut connection = env.options().connect().await.unwrap();
    let checkpoint = sqlx::raw_sql("PRAGMA wal_checkpoint");
    checkpoint.execute(&mut connection).await.unwrap();
    connection
}

/// Who opens the file next begins another log and another index, without the last commits and the
/// locks of those that are open: it finds a row whose lease is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_deleted_log_makes_no_second_leader() {
    let env = FileEnv::new(Duration::from_secs(1));
    let _first = Candidate::start(&env, 0);
    let wins = async |count: usize| (Candidate::log(&env).lines().count() >= count).then_some(());
    eventually("the first leads", async || wins(1).await).await;
    // With this connection open, no other one is the last: its end would save the log.
    let _connection = with_log_copied(&env).await;
    tokio::time::sleep(Duration::from_millis(1500)).await; // it renews, and the file has none of it
    for name in LOG_AND_INDEX {
        fs::remove_file(env.directory.path().join(name)).unwrap();
    }
    tokio::time::sleep(Duration::from_millis(500)).await; // less than its lease
    let _second = Candidate::start(&env, 1);
    eventually("one leads again", async || wins(2).await).await;
    let log = Candidate::log(&env);
    assert!(!log.contains("overlap"), "{log}");
    let tokens: Vec<u64> = Candidate::wins(&env).into_iter().map(|(_, token)| token).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

/// The last connection saves its log as it is closed, and the next one begins another.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_candidate_whose_log_was_deleted_leads_with_another() {
    let env = FileEnv::new(LEASE);
    let election = env.campaign("only").await;
    let leadership = leads(&election).await;
    drop(with_log_copied(&env).await); // the log has the tables, too
    for name in LOG_AND_INDEX {
        // The end of a connection may delete one first.
        let _ = fs::remove_file(env.directory.path().join(name));
    }
    eventually("another log", async || {
        LOG_AND_INDEX.iter().all(|name| env.directory.path().join(name).exists()).then_some(())
    })
    .await;
    let token = leadership.token();
    election.resign();
    leadership.ended().await;
    drop(leadership);
    let (again, row) = in_one_term(&election, async |leadership: &Leadership| {
        (leadership.token(), env.row().await.expect("a row"))
    })
    .await;
    assert!(again > token, "{again} after {token}");
    assert_eq!(row.get::<Option<i64>, _>("token"), Some(again.0.cast_signed()));
}

/// Its idle connection would keep the index that others no longer see in use.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_lock_that_does_nothing_keeps_no_other_from_a_new_file() {
    let env = FileEnv::new(LEASE);
    let remove = |names: &[&str]| {
        for name in names {
            let _ = fs::remove_file(env.directory.path().join(name));
        }
    };
    let idle = env.sqlite_lock().await;
    let read = async |lock: &SqliteLock| lock.read("my_app", TIMEOUT).await.map(drop);
    read(&idle).await.unwrap();
    for way in ["deleted", "linked", "replaced"] {
        match way {
            "linked" => {
                // The same file, under a name that was deleted meanwhile.
                let backup = env.directory.path().join("backup.db");
                drop(with_log_copied(&env).await);
                fs::hard_link(env.path(), &backup).unwrap();
                remove(&["elections.db"]);
                remove(&LOG_AND_INDEX);
                fs::rename(backup, env.path()).unwrap();
            }
            "replaced" => {
                let other = env.directory.path().join("other.db");
                env.admin(&format!("VACUUM INTO '{}'", other.display())).await;
                fs::rename(other, env.path()).unwrap();
            }
            _ => {
                remove(&["elections.db"]);
                remove(&LOG_AND_INDEX);
            }
        }
        let another = env.sqlite_lock().await;
        let (first, second) = futures_util::join!(read(&another), read(&another));
        first.and(second).expect(way);
        read(&idle).await.expect(way);
    }
}

/// Another file in its place is another election, in which no term begins before the leases of the
/// first one are over.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_replaced_file_ends_the_term_and_the_next_one_waits() {
    let env = FileEnv::new(WAIT);
    let election = env.campaign("only").await;
    let leadership = leads(&election).await;
    let token = leadership.token();
    let other = env.directory.path().join("other.db");
    drop(opened(&other, TableSetup::create().max_lease(WAIT)).await);
    let log = env.directory.path().join("other.db-wal");
    eventually("the other one is closed", async || (!log.exists()).then_some(())).await;
    let replaced = BootClock.now();
    fs::remove_file(env.directory.path().join("elections.db-wal")).unwrap();
    fs::rename(other, env.path()).unwrap();
    assert_eq!(soon("the end", leadership.ended()).await.cause, Cause::Evicted);
    drop(leadership);
    let leadership = leads(&election).await;
    assert!(BootClock.now().saturating_since(replaced) >= WAIT, "the next one waits");
    assert!(leadership.token() > token);
}

/// A backup that is copied over the file: its content is old, and tokens continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_restored_backup_repeats_no_token() {
    let env = FileEnv::new(LEASE);
    let election = env.campaign("only").await;
    let backup = env.directory.path().join("backup.db");
    drop(leads(&election).await);
    env.admin(&format!("VACUUM INTO '{}'", backup.display())).await;
    election.resign();
    eventually("the term is over", async || (!election.is_leader()).then_some(())).await;
    let leadership = leads(&election).await;
    let token = leadership.token();
    fs::remove_file(env.directory.path().join("elections.db-wal")).unwrap();
    fs::rename(backup, env.path()).unwrap();
    soon("the end", leadership.ended()).await;
    drop(leadership);
    assert!(leads(&election).await.token() > token);
}

/// A wall clock ends no lease. Nor does another start of the machine: it may be another
/// container's, or another machine that the disk was put into; a reader watches the row for the
/// length of its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn another_boot_identifier_or_wall_clock_ends_no_lease() {
    let env = FileEnv::new(LEASE);
    let lock = env.sqlite_lock().await;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let write = async |revision: u64, boot: &str, boot_ms: i64, renewed_at: &str| {
        let boot = boot.trim();
        let statement = format!(
            "INSERT INTO incumbent_elections (name, holder, lease_duration_ms, revision, boot, boot_ms, renewed_at)
            VALUES ('my_app', 'before', 2000, {revision}, '{boot}', {boot_ms}, '{renewed_at}')
            ON CONFLICT (name) DO UPDATE SET revision = excluded.revision, boot = excluded.boot,
                boot_ms = excluded.boot_ms, renewed_at = excluded.renewed_at"
        );
        env.admin(&statement).await;
        match lock.read("my_app", TIMEOUT).await.unwrap() {
            Reading::Found(record) => record.content,
            Reading::Empty { .. } => panic!("no row"),
        }
    };
    let now = || i64::try_from(BootClock.now().since_origin().as_millis()).unwrap();
    let held = |content| matches!(content, Content::Held(_));
    // A little ahead of now, as this may take a while.
    let soon = now() + 120_000;
    assert!(held(write(1, &boot, soon, "2001-01-01T00:00:00Z").await), "a wall clock was set");
    assert!(held(write(2, &boot, soon, "2099-01-01T00:00:00Z").await), "and set again");
    let expired = Content::Vacant(Tombstone::Expired);
    assert_eq!(write(3, &boot, now() - 2_001, "2099-01-01T00:00:00Z").await, expired);
    for (revision, boot_ms) in [(4, now() + 60_000), (5, now() - 60_000)] {
        assert!(held(write(revision, "another-start", boot_ms, "2001-01-01T00:00:00Z").await));
    }
    drop(leads(&env.campaign("after").await).await); // who has watched it
}
