//! The file: connections to it, and whether it is still the opened one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteRow, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row, Sqlite, SqliteConnection};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{error, trace};

use super::boot_id::{self, Moment, is_past};
use super::errors;
use super::names::{self, Id};
use super::statements;
use crate::backends::sql::row::{millis, span};
use crate::backends::sql::setup::{SqlError, TableSetup};
use crate::lock::{LockError, LockErrorKind};
use crate::time::timer::deadline_after;
use crate::util::locked;

/// The version of the tables that this library supports.
const VERSION: i64 = 1;
/// The most reads of a file at once.
const MAX_READS: usize = 3;
/// How long opening may take.
const OPENS_WITHIN: Duration = Duration::from_secs(10);
/// The pause between looks at connections that are being closed.
const CLOSING_PAUSE: Duration = Duration::from_millis(10);

/// A statement with its values.
pub(super) type Statement = sqlx::query::Query<'static, Sqlite, SqliteArguments>;

#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
    longest_lease_ms: AtomicU64,
    /// The file that this process has created, and whose elections had no holder before.
    created: Option<Id>,
    idle: Arc<Idle>,
    /// Limit the connections in use, as each has a thread of its own and open files. SQLite writes
    /// one after the other, and reads meanwhile.
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    /// How many transactions were begun.
    #[cfg(test)]
    pub(super) transactions: AtomicU64,
}

/// The connections of a lock that are not in use.
#[derive(Debug)]
struct Idle {
    path: PathBuf,
    connections: Mutex<Vec<Open>>,
}

/// Those of all locks of this process, as stale ones of any lock keep all from opening a file.
static IDLE: Mutex<Vec<Weak<Idle>>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Open {
    connection: SqliteConnection,
    ids: Ids,
    /// Whether the file has a log.
    is_wal: bool,
}

/// A connection in use. One that is not put back is closed, and counts until its thread has ended:
/// a disk that does not respond must not collect threads and open files.
struct InUse {
    open: Option<Open>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let (Some(open), Ok(runtime)) = (self.open.take(), Handle::try_current()) {
            let permit = self.permit.take();
            // It ends with its runtime, or once the disk responds.
            runtime.spawn(async move {
                let _ = open.connection.close().await;
                drop(permit);
            });
        }
    }
}

/// The files that a connection uses. SQLite opens the log and its index with the first read, and
/// keeps both until the connection is closed, whatever takes their names meanwhile. The last
/// commits are in the log, and the locks of WAL mode are in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ids {
    file: Id,
    log: Option<Id>,
    index: Option<Id>,
}

/// The result of a transaction.
pub(super) struct Response {
    pub rows: Vec<SqliteRow>,
    /// Whether the tables are older than the maximum lease, or were created by this process.
    pub settled: bool,
}

impl File {
    pub async fn open(path: &Path, tables: TableSetup) -> Result<Self, SqlError> {
        tables.check()?;
        let path = absolute(path)?;
        if let Some(kind) = path.parent().and_then(boot_id::doubtful_file_system) {
            // An error, as programs log by default: two machines would both lead.
            error!(path = %path.display(), kind, "a SQLite file on a file system that is not known to be local: elections need all processes on one machine, and SQLite's locks to work there");
        }
        let idle = Arc::new(Idle { path: path.clone(), connections: Mutex::default() });
        {
            let mut all = locked(&IDLE);
            all.retain(|idle| idle.strong_count() > 0);
            all.push(Arc::downgrade(&idle));
        }
        let mut file = Self {
            path,
            longest_lease_ms: AtomicU64::new(0),
            created: None,
            idle,
            reads: Arc::new(Semaphore::new(MAX_READS)),
            writes: Arc::new(Semaphore::new(1)),
            #[cfg(test)]
            transactions: AtomicU64::new(0),
        };
        let deadline = Instant::now() + OPENS_WITHIN;
        let (open, created) = loop {
            match file.prepare(tables, deadline).await {
                // Another process prepares the file at the same moment.
                Err(failed) if errors::is_busy(&failed) && Instant::now() < deadline => {
                    sleep(Duration::from_millis(20)).await;
                }
                done => break done?,
            }
        };
        file.created = created.then_some(open.ids.file);
        file.put_back(open);
        Ok(file)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn max_lease(&self) -> Duration {
        Duration::from_millis(self.longest_lease_ms.load(Ordering::Relaxed))
    }

    /// Whether `then` is known to be longer ago than `span`.
    pub fn is_past(&self, then: Option<&Moment>, span: Duration) -> bool {
        is_past(then, span, boot_id::now().as_ref()).unwrap_or_default()
    }

    /// Opens the file, and creates it and its tables if allowed. Returns whether this process
    /// created the tables.
    async fn prepare(
        &self,
        tables: TableSetup,
        deadline: Instant,
    ) -> Result<(Open, bool), LockError> {
        let missing = fs::symlink_metadata(&self.path).is_err();
        if missing && !tables.create {
            return Err(self.misconfigured("does not exist"));
        }
        let mut open = self.connect(tables.create, &mut None, deadline).await?;
        let odd = |error| errors::failed(error, false, &self.path);
        if !tables.create && !has_tables(&mut open.connection).await.map_err(odd)? {
            return Err(self.misconfigured("has no tables of elections"));
        }
        if !tables.create {
            self.learn(&mut open.connection).await?;
            return Ok((open, false));
        }
        // The mode is permanent. SQLite cannot wait for this lock, so a process that finds the file
        // in use retries.
        if !open.is_wal {
            sqlx::query("PRAGMA journal_mode = WAL")
                .execute(&mut open.connection)
                .await
                .map_err(odd)?;
            // A new connection learns which log it uses.
            let _ = open.connection.close().await;
            open = self.connect(false, &mut None, deadline).await?;
        }
        let connection = &mut open.connection;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(odd)?;
        sqlx::raw_sql(statements::SCHEMA).execute(&mut *transaction).await.map_err(odd)?;
        let now = boot_id::now();
        let settle = sqlx::query(statements::SETTLE)
            .bind(millis(tables.max_lease))
            .bind(now.as_ref().map(|now| now.boot.clone()))
            .bind(now.map(|now| now.ms));
        let created = settle.execute(&mut *transaction).await.map_err(odd)?.rows_affected() > 0;
        transaction.commit().await.map_err(odd)?;
        self.learn(connection).await?;
        Ok((open, created))
    }

    /// Reads the settings. Returns when the tables were created.
    async fn learn(&self, connection: &mut SqliteConnection) -> Result<Option<Moment>, LockError> {
        let (longest, created_at) = settings(connection, &self.path).await?;
        self.longest_lease_ms.store(millis(longest).unsigned_abs(), Ordering::Relaxed);
        Ok(created_at)
    }

    /// Opens a connection. `permit`: what limits it, as in [`InUse`].
    async fn connect(
        &self,
        create: bool,
        permit: &mut Option<OwnedSemaphorePermit>,
        deadline: Instant,
    ) -> Result<Open, LockError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let options = SqliteConnectOptions::new()
            .filename(&self.path)
            .create_if_missing(create)
            .busy_timeout(left)
            // The file has a few hundred pages at most: its content is small.
            .pragma("wal_autocheckpoint", "100")
            // Else acknowledged writes are lost in a crash of the machine.
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(false)
            .disable_statement_logging();
        let before = self.ids()?;
        let opening = async {
            while self.uses_others()? {
                self.close_stale(self.ids()?).await;
                sleep(CLOSING_PAUSE).await;
            }
            let odd = |error| errors::failed(error, false, &self.path);
            let held = permit.take();
            let (sender, opened) = oneshot::channel();
            // Its thread may wait for the disk for longer than we do.
            tokio::spawn(async move {
                let opened = (connection_of(options).await, held);
                if let Err((Ok((connection, _)), held)) = sender.send(opened) {
                    let _ = connection.close().await;
                    drop(held);
                }
            });
            let (opened, held) = opened.await.map_err(|_| self.late("opened"))?;
            *permit = held;
            let (connection, mode) = opened.map_err(odd)?;
            Ok((connection, mode == "wal"))
        };
        let (connection, is_wal) = match timeout_at(deadline, opening).await {
            Ok(opened) => opened?,
            Err(_) if self.uses_others()? => {
                let what = format!(
                    "{}, or its -wal or -shm, was deleted or replaced while this process had it open: restart the process",
                    self.path.display()
                );
                return Err(LockError::new(LockErrorKind::Unavailable, what));
            }
            Err(_) => return Err(self.late("opened")),
        };
        // The opened file is the one that was at the path before and is there now. The log and the
        // index are those that are there now: else they are missing, or were deleted.
        let is_opened = |ids: &Ids| {
            let same = before.map_or(create, |before| before.file == ids.file);
            same && (!is_wal || (ids.log.is_some() && ids.index.is_some()))
        };
        match self.ids()?.filter(is_opened) {
            Some(ids) if has_open(ids, is_wal)? => Ok(Open { connection, ids, is_wal }),
            _ => Err(LockError::new(LockErrorKind::Unavailable, self.moved())),
        }
    }

    /// Runs a statement, and returns its rows. `None`: the file is gone.
    pub async fn execute(
        &self,
        statement: Statement,
        writes: bool,
        timeout: Duration,
    ) -> Result<Option<Response>, LockError> {
        let deadline = deadline_after(timeout);
        let permits = Arc::clone(if writes { &self.writes } else { &self.reads });
        let Ok(Ok(permit)) = timeout_at(deadline, permits.acquire_owned()).await else {
            return Err(self.late("used"));
        };
        let mut used = InUse { open: None, permit: Some(permit) };
        let ids = self.ids()?;
        if timeout_at(deadline, self.close_stale(ids)).await.is_err() {
            return Err(self.late("used"));
        }
        let Some(ids) = ids else { return Ok(None) };
        let open = match self.idle_of(ids) {
            Some(open) => open,
            None => self.connect(false, &mut used.permit, deadline).await?,
        };
        let open = used.open.insert(open);
        let mut in_doubt = false;
        let result = self.transact(open, statement, writes, deadline, &mut in_doubt);
        let result = timeout_at(deadline, result).await;
        match result {
            Ok(Ok(answer)) => {
                used.open.take().into_iter().for_each(|open| self.put_back(open));
                if writes {
                    announce_write(&self.path);
                }
                Ok(Some(answer))
            }
            // Another file, without tables: for an election, the earlier file is gone.
            Ok(Err(failed)) if failed.kind() == LockErrorKind::Misconfigured && !writes => {
                match errors::has_no_tables(&failed) {
                    true => Ok(None),
                    false => Err(failed),
                }
            }
            Ok(Err(failed)) => Err(failed),
            Err(_) if in_doubt => Err(LockError::new(
                LockErrorKind::OutcomeUnknown,
                format!("{} did not confirm the write in {timeout:?}", self.path.display()),
            )),
            Err(_) => Err(self.late("used")),
        }
    }

    async fn transact(
        &self,
        open: &mut Open,
        statement: Statement,
        writes: bool,
        deadline: Instant,
        in_doubt: &mut bool,
    ) -> Result<Response, LockError> {
        #[cfg(test)]
        self.transactions.fetch_add(1, Ordering::Relaxed);
        let odd = |error| errors::failed(error, false, &self.path);
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        let connection = &mut open.connection;
        let set_timeout = AssertSqlSafe(format!("PRAGMA busy_timeout = {left}"));
        sqlx::query(set_timeout).persistent(false).execute(&mut *connection).await.map_err(odd)?;
        let begin = if writes { "BEGIN IMMEDIATE" } else { "BEGIN" };
        let mut transaction = connection.begin_with(begin).await.map_err(odd)?;
        let created_at = self.learn(&mut transaction).await?;
        let rows = statement.fetch_all(&mut *transaction).await.map_err(odd)?;
        if writes {
            // As late as possible: a write to files that other processes no longer see must not
            // create a leader.
            if self.ids()? != Some(open.ids) {
                return Err(LockError::new(LockErrorKind::Unavailable, self.moved()));
            }
            *in_doubt = true;
        }
        transaction.commit().await.map_err(|e| errors::failed(e, writes, &self.path))?;
        let settled = self.created == Some(open.ids.file)
            || self.is_past(created_at.as_ref(), self.max_lease());
        Ok(Response { rows, settled })
    }

    /// Returns the files that have the names now; `None`: the file itself is missing.
    fn ids(&self) -> Result<Option<Ids>, LockError> {
        let Ok(named) = names::inspect(&self.path) else { return Ok(None) };
        if let Some(why) = named.unfit() {
            return Err(self.misconfigured(&why));
        }
        let id_of = |path: PathBuf| names::inspect(&path).ok().map(|named| named.id);
        let (log, index) = (id_of(log_path(&self.path)), id_of(index_path(&self.path)));
        Ok(Some(Ids { file: named.id, log, index }))
    }

    fn uses_others(&self) -> Result<bool, LockError> {
        let beside = [log_path(&self.path), index_path(&self.path)];
        names::uses_others(&self.path, &beside).map_err(unlisted)
    }

    /// Closes the connections of all locks of this process that are not in use and whose files no
    /// longer have their names, before another one is opened: the last connection to a file deletes
    /// what has the names of its log and its index.
    async fn close_stale(&self, ids: Option<Ids>) {
        let mut stale = Vec::new();
        for idle in locked(&IDLE).iter().filter_map(Weak::upgrade) {
            if idle.path == self.path {
                let mut connections = locked(&idle.connections);
                stale.extend(connections.extract_if(.., |open| Some(open.ids) != ids));
            }
        }
        for Open { connection, .. } in stale {
            let _ = connection.close().await;
        }
    }

    /// Returns a connection to these very files.
    fn idle_of(&self, ids: Ids) -> Option<Open> {
        let mut connections = locked(&self.idle.connections);
        let found = connections.iter().position(|open| open.ids == ids)?;
        Some(connections.swap_remove(found))
    }

    /// The number of connections that are not in use.
    #[cfg(test)]
    pub(super) fn idle_connections(&self) -> usize {
        locked(&self.idle.connections).len()
    }

    fn put_back(&self, open: Open) {
        locked(&self.idle.connections).push(open);
    }

    fn moved(&self) -> String {
        format!("{}, or its -wal or -shm, was deleted or replaced", self.path.display())
    }

    fn late(&self, what: &str) -> LockError {
        let what = format!("{} could not be {what} in time", self.path.display());
        LockError::new(LockErrorKind::Unavailable, what)
    }

    /// Returns the error of a write when the file is gone.
    pub fn gone(&self) -> LockError {
        self.misconfigured("was deleted: restore it, or restart one candidate, which creates it")
    }

    fn misconfigured(&self, what: &str) -> LockError {
        misconfigured(&self.path, what)
    }
}

/// Opens a connection, and reads the mode of its log.
async fn connection_of(
    options: SqliteConnectOptions,
) -> Result<(SqliteConnection, String), sqlx::Error> {
    let mut connection = options.connect().await?;
    let mode = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut connection).await?;
    Ok((connection, mode))
}

/// Whether this process has these files open: without a log, what is beside the file is of another.
fn has_open(ids: Ids, is_wal: bool) -> Result<bool, LockError> {
    let beside = if is_wal { [ids.log, ids.index] } else { [None; 2] };
    let files: Vec<Id> = [Some(ids.file)].into_iter().chain(beside).flatten().collect();
    names::has_open(&files).map_err(unlisted)
}

fn unlisted(error: io::Error) -> LockError {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied => LockErrorKind::Misconfigured,
        _ => LockErrorKind::Unavailable,
    };
    let what = "the open files of this process cannot be listed: let it read /proc/self/fd";
    LockError::with_source(kind, what, error)
}

pub(super) fn misconfigured(path: &Path, what: &str) -> LockError {
    LockError::new(LockErrorKind::Misconfigured, format!("{} {what}", path.display()))
}

pub(super) async fn has_tables(connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    let found = "SELECT count(*) > 0 FROM sqlite_master WHERE name = 'incumbent_settings'";
    sqlx::query_scalar(found).fetch_one(connection).await
}

/// Returns the maximum lease of the tables, which must be of the supported version, and when they
/// were created.
pub(super) async fn settings(
    connection: &mut SqliteConnection,
    path: &Path,
) -> Result<(Duration, Option<Moment>), LockError> {
    let odd = |error| errors::failed(error, false, path);
    let row = sqlx::query(statements::SETTINGS).fetch_optional(connection).await.map_err(odd)?;
    let row = row.ok_or_else(|| misconfigured(path, "has no settings of elections"))?;
    let version: i64 = row.try_get("version").map_err(odd)?;
    if version != VERSION {
        let what = format!(
            "has tables of version {version}, and version {VERSION} is supported: use the same version everywhere"
        );
        return Err(misconfigured(path, &what));
    }
    let longest = span(row.try_get("longest_lease_ms").map_err(odd)?);
    Ok((longest, moment_of(&row).map_err(odd)?))
}

/// Returns when a row was written, on the machine's own clock.
pub(super) fn moment_of(row: &SqliteRow) -> Result<Option<Moment>, sqlx::Error> {
    let (boot, ms): (Option<String>, Option<i64>) = (row.try_get("boot")?, row.try_get("boot_ms")?);
    Ok(boot.zip(ms).map(|(boot, ms)| Moment { boot, ms }))
}

/// Returns the absolute path, with links resolved, of a file that need not exist yet.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, LockError> {
    resolved(path).map_err(|error| {
        let what = format!("there is no directory for {}", path.display());
        LockError::with_source(LockErrorKind::Misconfigured, what, error)
    })
}

fn resolved(path: &Path) -> io::Result<PathBuf> {
    if let Ok(there) = fs::canonicalize(path) {
        return Ok(there);
    }
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Ok(fs::canonicalize(directory)?.join(name))
}

/// Announces that a write is visible: sets the modification time of the log, which has just been
/// written to.
fn announce_write(path: &Path) {
    if let Err(error) = touch(&log_path(path)) {
        trace!(%error, path = %path.display(), "write not announced; watchers find it by polling");
    }
}

/// Does not open the file: closing it would end the locks that SQLite holds on it for the process.
#[cfg(unix)]
fn touch(path: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    Ok(utimensat(CWD, path, &times, AtFlags::empty())?)
}

/// Locks belong to a handle there, and not to the process.
#[cfg(not(unix))]
fn touch(path: &Path) -> io::Result<()> {
    let log = std::fs::File::options().write(true).open(path)?;
    log.set_modified(std::time::SystemTime::now())
}

/// Returns the log of a file, which SQLite writes to first.
pub(super) fn log_path(path: &Path) -> PathBuf {
    beside(path, "-wal")
}

/// Returns the index of the log, which processes share.
pub(super) fn index_path(path: &Path) -> PathBuf {
    beside(path, "-shm")
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
