//! Writes a recording.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sqlx::{AssertSqlSafe, Connection, Error, SqliteConnection};
use time::OffsetDateTime;

use super::prune::{is_at_limit, prune, prune_runs};
use super::runs::{self, ElectionRun};
use super::{file, row};
use crate::console::history::spans::{Event, Period};
use crate::error::{CliError, Code};
use crate::output::time_format;
use crate::output::unwritten;

/// The least maximum size.
pub const MIN_SIZE: u64 = 256 << 10;
/// The size of a page.
const PAGE: u64 = 4096;
/// How many transitions, or runs, are written at once at most.
const BATCH: usize = 500;
/// How often rows are removed for one write.
const ATTEMPTS: usize = 20;

/// The recorder's side of a file. A second one is refused.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    /// `None` after an error: SQLite ends the transaction, unknown to the client.
    connection: Option<SqliteConnection>,
    /// The file, by device and number.
    id: (u64, u64),
    /// The elections, as JSON; `None` for all.
    names: Option<String>,
    /// How many pages the file may have.
    pages: u64,
    /// Locked until this process ends. SQLite's own locks end with each transaction.
    _lock: File,
}

/// A period of which the end is still moving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedPeriod {
    /// Its row, once it has one.
    pub id: Option<i64>,
    pub period: Period,
}

/// What one transaction writes.
enum Rows<'r> {
    Events(&'r [Event], &'r mut [ObservedPeriod]),
    Runs(&'r [ElectionRun]),
}

/// Whether a full file has room again.
enum Room {
    Made,
    /// Nothing can be removed, or it would not suffice.
    None,
    /// It is the disk that is full.
    DiskFull,
}

/// Why a write failed.
#[derive(Debug)]
pub enum WriteError {
    /// It may succeed later, as on a full disk.
    Passing(CliError),
    Lasting(CliError),
}

impl Writer {
    /// Opens a file for the named elections, or for all if none is named. Creates a missing file.
    pub async fn open(path: &Path, names: &[String], max_size: u64) -> Result<Self, CliError> {
        if std::fs::metadata(path).is_ok_and(|found| found.len() > 0) {
            // Nothing is left beside a file of another program.
            let mut connection = file::open_for_reading(path).await?;
            file::check(path, &mut connection).await?;
            let _ = connection.close().await; // nothing was written
        }
        let lock = lock(path)?;
        // SQLite would let all users read it, and what it has beside it.
        match private().create_new(true).open(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(unwritten(path, error));
            }
            _ => {}
        }
        let pages = max_size.max(MIN_SIZE) / PAGE;
        let odd = |error: Error| file::failed(path, "written", &error);
        let mut connection = file::open_for_writing(path, pages).await.map_err(odd)?;
        if file::check(path, &mut connection).await? == file::Content::Empty {
            create(&mut connection).await.map_err(odd)?;
        }
        let log = sqlx::query("PRAGMA journal_mode = WAL"); // not in a transaction
        log.execute(&mut connection).await.map_err(odd)?;
        let id = id(path).ok_or_else(|| unwritten(path, "it was deleted"))?;
        let names = (!names.is_empty()).then(|| serde_json::json!(names).to_string());
        Ok(Self {
            path: path.to_owned(),
            connection: Some(connection),
            id,
            names,
            pages,
            _lock: lock,
        })
    }

    /// Notes which lock is recorded. Refuses another one than before.
    pub async fn set_lock(&mut self, lock: &str, has_lock_times: bool) -> Result<(), CliError> {
        let known = self.known_lock(lock, has_lock_times).await;
        let known = known.map_err(|error| file::failed(&self.path, "written", &error))?;
        if known == lock {
            return Ok(());
        }
        let path = self.path.display();
        let message = format!("{path} is a recording of {known}: record {lock} to another file");
        Err(CliError::new(Code::Usage, message))
    }

    /// The recorded lock: this one, if there was none.
    async fn known_lock(&mut self, lock: &str, has_lock_times: bool) -> Result<String, Error> {
        let connection = self.connected().await?;
        sqlx::query("UPDATE recording SET lock = ?, has_lock_times = ? WHERE lock IS NULL")
            .bind(lock)
            .bind(has_lock_times)
            .execute(&mut *connection)
            .await?;
        sqlx::query_scalar("SELECT lock FROM recording").fetch_one(connection).await
    }

    /// The elections that had a leader when they were last recorded, with the revision.
    pub async fn led(&mut self) -> Result<Vec<(String, u64)>, CliError> {
        let found = self.read_led().await;
        let found = found.map_err(|error| file::failed(&self.path, "read", &error))?;
        Ok(found.into_iter().map(|(name, revision)| (name, revision.cast_unsigned())).collect())
    }

    async fn read_led(&mut self) -> Result<Vec<(String, i64)>, Error> {
        let read = "SELECT name, revision FROM election e JOIN transition t ON t.id = \
             (SELECT max(id) FROM transition WHERE election = e.id) WHERE leader IS NOT NULL";
        sqlx::query_as(read).fetch_all(self.connected().await?).await
    }

    /// The connection, which is opened again after an error.
    async fn connected(&mut self) -> Result<&mut SqliteConnection, Error> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => file::open_for_writing(&self.path, self.pages).await?,
        };
        Ok(self.connection.insert(connection))
    }

    /// Ends the connection after an error.
    async fn disconnect(&mut self) {
        if let Some(connection) = self.connection.take() {
            let _ = connection.close_hard().await; // whatever it was doing has failed
        }
    }

    /// Writes the first events, and with the last ones all observations, or nothing. Returns how
    /// many events were written; if it is all of them, each observation has a row.
    pub async fn write(
        &mut self,
        events: &[Event],
        observations: &mut [ObservedPeriod],
    ) -> Result<usize, WriteError> {
        let (count, pages) = self.first(events.iter().map(row::size));
        let (events, rest) = events.split_at(count);
        // A time must not be known before its transitions are in the file.
        let observations = if rest.is_empty() { observations } else { &mut [] };
        self.store(Rows::Events(events, observations), pages).await?;
        Ok(count)
    }

    /// Writes the first runs, or nothing. Returns how many. Those that a full file has no room for
    /// are left out: their numbers say that they are missing.
    pub async fn write_runs(&mut self, runs: &[ElectionRun]) -> Result<usize, WriteError> {
        let (count, pages) = self.first(runs.iter().map(runs::size));
        let (runs, _) = runs.split_at(count);
        self.store(Rows::Runs(runs), pages).await?;
        Ok(count)
    }

    /// Writes rows that need this many pages, and makes room for them.
    async fn store(&mut self, mut rows: Rows<'_>, pages: u64) -> Result<(), WriteError> {
        if id(&self.path) != Some(self.id) {
            let why = "it was moved or deleted: restart the recorder";
            return Err(WriteError::Lasting(unwritten(&self.path, why)));
        }
        let mut attempts = 0;
        let error = loop {
            let error = match self.transact(&mut rows).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            self.disconnect().await;
            attempts += 1;
            if file::code(&error) != Some(13) {
                break error;
            }
            // Full: the file, or the disk.
            match self.make_room(pages).await {
                Ok(Room::Made) if attempts <= ATTEMPTS => {}
                Ok(Room::Made | Room::None) => {
                    return match rows {
                        Rows::Runs(_) => Ok(()),
                        Rows::Events(..) => Err(WriteError::Lasting(self.too_small())),
                    };
                }
                Ok(Room::DiskFull) => break error,
                Err(error) => {
                    self.disconnect().await;
                    break error;
                }
            }
        };
        let failed = file::failed(&self.path, "written", &error);
        Err(match file::is_passing(&error) {
            true => WriteError::Passing(failed),
            false => WriteError::Lasting(failed),
        })
    }

    /// How many of the first rows, of which these are the sizes, need a small part of the file, and
    /// how many pages they and an observation need.
    fn first(&self, sizes: impl ExactSizeIterator<Item = u64>) -> (usize, u64) {
        let (mut bytes, rows) = (0, sizes.len());
        let fitting = sizes.take(BATCH).take_while(|size| {
            bytes += size;
            bytes <= self.pages * PAGE / 8
        });
        let count = fitting.count().max(1).min(rows);
        let names = self.names.as_ref().map_or(0, |names| names.len() as u64);
        (count, (bytes + names) / PAGE)
    }

    async fn transact(&mut self, rows: &mut Rows<'_>) -> Result<(), Error> {
        let names = self.names.clone();
        let mut transaction = self.connected().await?.begin_with("BEGIN IMMEDIATE").await?;
        let mut ids = Vec::new();
        match rows {
            Rows::Events(events, observations) => {
                for event in *events {
                    insert(&mut transaction, event).await?;
                }
                for observation in observations.iter() {
                    ids.push(observe(&mut transaction, names.as_deref(), observation).await?);
                }
            }
            Rows::Runs(runs) => {
                runs::create(&mut transaction).await?;
                if runs::insert_all(&mut transaction, runs).await? {
                    prune_runs(&mut transaction).await?;
                }
            }
        }
        transaction.commit().await?;
        if let Rows::Events(_, observations) = rows {
            for (observation, id) in observations.iter_mut().zip(ids) {
                observation.id = Some(id);
            }
        }
        Ok(())
    }

    /// Removes rows if the file is full.
    async fn make_room(&mut self, pages: u64) -> Result<Room, Error> {
        // Nothing is removed for what never fits.
        if pages.saturating_mul(2) >= self.pages {
            return Ok(Room::None);
        }
        let connection = self.connected().await?;
        if !is_at_limit(connection, pages).await? {
            return Ok(Room::DiskFull);
        }
        let has_removed = prune(connection, OffsetDateTime::now_utc()).await?;
        Ok(if has_removed { Room::Made } else { Room::None })
    }

    fn too_small(&self) -> CliError {
        unwritten(&self.path, "--max-size is too small for what is to be written: raise it")
    }

    /// Closes the file, so that one file is all there is.
    pub async fn close(self) -> Result<(), CliError> {
        let Some(connection) = self.connection else { return Ok(()) };
        connection.close().await.map_err(|error| file::failed(&self.path, "written", &error))
    }
}

/// Locks a file beside the recording: a lock on the recording itself could interfere with SQLite's.
fn lock(path: &Path) -> Result<File, CliError> {
    let beside = file::beside(path, "-lock");
    let open = private().create(true).truncate(false).open(&beside);
    let lock = open.map_err(|error| unwritten(path, error))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            let why = "another recorder writes it: record to another file";
            Err(unwritten(path, why))
        }
        Err(TryLockError::Error(error)) => Err(unwritten(path, error)),
    }
}

/// Opens a file for writing. A new one is of this user alone.
fn private() -> OpenOptions {
    let mut options = File::options();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

#[cfg(unix)]
fn id(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// On Windows an open file cannot be replaced.
#[cfg(not(unix))]
fn id(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|_| (0, 0))
}

async fn create(connection: &mut SqliteConnection) -> Result<(), Error> {
    let (application, version) = (file::APPLICATION_ID, file::VERSION);
    let mark = format!("PRAGMA application_id = {application}; PRAGMA user_version = {version};");
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::raw_sql(include_str!("schema.sql")).execute(&mut *transaction).await?;
    sqlx::raw_sql(AssertSqlSafe(mark)).execute(&mut *transaction).await?;
    transaction.commit().await
}

/// Adds a transition, unless it is recorded.
async fn insert(connection: &mut SqliteConnection, event: &Event) -> Result<(), Error> {
    let transition = &event.transition;
    let name = &transition.election;
    sqlx::query("INSERT INTO election (name) VALUES (?) ON CONFLICT DO NOTHING")
        .bind(name)
        .execute(&mut *connection)
        .await?;
    let election: i64 = sqlx::query_scalar("SELECT id FROM election WHERE name = ?")
        .bind(name)
        .fetch_one(&mut *connection)
        .await?;
    let (leader, cause) = (transition.outcome().ok(), transition.outcome().err());
    let revision = transition.revision.0.cast_signed();
    let held_by = leader.map(|leader| row::cut(&leader.identity));
    let token = leader.and_then(|leader| leader.token).map(row::token);
    // A restarted recorder finds the leader of the last row, which may have renewed meanwhile, or
    // what the last row says with its revision: a vacancy, or the leader whose term had expired.
    // What it sees live can only repeat the last one: the revisions of a new lock begin again.
    let known = match transition.found {
        true => {
            "SELECT count(*) FROM transition WHERE id = (SELECT max(id) FROM transition \
             WHERE election = ?1) AND (leader IS ?3 AND token IS ?4 \
             AND (revision = ?2 OR ?3 IS NOT NULL) \
             OR leader IS NULL AND before IS ?3 AND before_token IS ?4 AND revision = ?2)"
        }
        false => {
            "SELECT count(*) FROM transition WHERE id = (SELECT max(id) FROM transition \
             WHERE election = ?1) AND revision = ?2 AND leader IS ?3 AND token IS ?4"
        }
    };
    let known: i64 = sqlx::query_scalar(known)
        .bind(election)
        .bind(revision)
        .bind(held_by)
        .bind(token)
        .fetch_one(&mut *connection)
        .await?;
    if known > 0 {
        return Ok(());
    }
    let before = transition.before.as_ref();
    sqlx::query(
        "INSERT INTO transition (election, revision, time, learned, found, leader, token, since, \
         before, before_token, cause, leaderless_ms, unrenewed_ms) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(election)
    .bind(revision)
    .bind(row::nanos(transition.time))
    .bind(row::nanos(event.learned))
    .bind(transition.found)
    .bind(held_by)
    .bind(token)
    .bind(leader.and_then(|leader| leader.since).map(|since| row::nanos(time_format::utc(since))))
    .bind(before.map(|before| row::cut(&before.identity)))
    .bind(before.and_then(|before| before.token).map(row::token))
    .bind(cause.map(row::cut))
    .bind(transition.leaderless.map(row::span))
    .bind(transition.unrenewed.map(row::span))
    .execute(connection)
    .await?;
    Ok(())
}

/// Adds an observation, or moves its end. Returns its row.
async fn observe(
    connection: &mut SqliteConnection,
    names: Option<&str>,
    observation: &ObservedPeriod,
) -> Result<i64, Error> {
    let (begin, end) = (row::nanos(observation.period.begin), row::nanos(observation.period.end));
    if let Some(id) = observation.id {
        let moved = sqlx::query("UPDATE observation SET end = ? WHERE id = ?").bind(end).bind(id);
        if moved.execute(&mut *connection).await?.rows_affected() > 0 {
            return Ok(id);
        }
    }
    sqlx::query_scalar("INSERT INTO observation (names, begin, end) VALUES (?, ?, ?) RETURNING id")
        .bind(names)
        .bind(begin)
        .bind(end)
        .fetch_one(connection)
        .await
}
