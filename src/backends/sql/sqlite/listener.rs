//! Hints: the system reports writes to the file, and a read shows what changed.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use notify::event::ModifyKind;
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tracing::{debug, info};

use super::file::{Statement, index_path, log_path};
use super::state::LockState;
use super::statements;
use crate::lock::{Coverage, Hint, Revision};

/// The timeout of a read.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// The interval between reads when no write is reported.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The interval if the system reports no writes.
const POLL_INTERVAL_WITHOUT_EVENTS: Duration = Duration::from_millis(40);
/// The first and the longest pause between reads for a write that has begun, and how long to
/// continue. The log is written to before the disk has it, and the write is visible only after
/// that, which on a busy disk takes a second and more. Candidates announce when a write is done; a
/// shell of SQLite does not.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(128);
const AWAIT_WRITE_FOR: Duration = Duration::from_secs(4);

/// Reads whenever the file was written to, until dropped.
pub(super) async fn run(lock: Arc<LockState>) {
    let events = Arc::new(FileEvents::default());
    let watcher = watch(lock.file.path(), Arc::clone(&events));
    if let Err(error) = &watcher {
        info!(%error, path = %lock.file.path().display(), "the system reports no writes: polling");
    }
    let interval = if watcher.is_ok() { POLL_INTERVAL } else { POLL_INTERVAL_WITHOUT_EVENTS };
    let mut awaited: Option<Awaited> = None;
    loop {
        match read_changes(&lock).await {
            ReadOutcome::Failed => lock.subscribers.announce(Coverage::None),
            // Revisions delivered before are forgotten.
            _ if lock.subscribers.announce_if_none(Coverage::Full) => continue,
            ReadOutcome::News => awaited = None,
            ReadOutcome::NothingNew => {}
        }
        awaited = awaited.filter(|awaited| awaited.until > Instant::now());
        let wait = awaited.as_ref().map_or(interval, |awaited| awaited.pause);
        if timeout(wait, events.news.notified()).await.is_ok() {
            let done = events.done.load(Ordering::Relaxed);
            awaited = (!done).then(Awaited::begin);
        } else if let Some(awaited) = &mut awaited {
            awaited.pause = (awaited.pause * 2).min(MAX_PAUSE);
        }
    }
}

/// The events that the system reported.
#[derive(Debug, Default)]
struct FileEvents {
    news: Notify,
    /// Whether the last event was the end of a write, and not its beginning.
    done: AtomicBool,
}

/// A write that has begun.
struct Awaited {
    until: Instant,
    pause: Duration,
}

impl Awaited {
    fn begin() -> Self {
        Self { until: Instant::now() + AWAIT_WRITE_FOR, pause: FIRST_PAUSE }
    }
}

enum ReadOutcome {
    News,
    NothingNew,
    Failed,
}

/// Reads the revisions of all subscribed elections, and then the rows of those that are new.
async fn read_changes(lock: &LockState) -> ReadOutcome {
    let names = lock.subscribers.hub.names();
    let delivered = |name: &str| lock.subscribers.delivered(name);
    let listed = serde_json::to_string(&names).unwrap_or_default(); // they are strings
    let Some(rows) = read(lock, sqlx::query(statements::REVISIONS).bind(listed)).await else {
        return ReadOutcome::Failed;
    };
    let revision = |row: &SqliteRow| {
        let (name, revision): (String, i64) = (row.try_get("name").ok()?, row.try_get(1).ok()?);
        Some((name, u64::try_from(revision).ok()?))
    };
    let found: HashMap<_, _> = rows.iter().filter_map(revision).collect();
    let mut news = false;
    for name in names {
        let known = found.get(&*name).copied();
        match (known, delivered(&name)) {
            (Some(revision), delivered) => {
                if lock.seen.get(&name).see(Revision(revision)).0 > revision {
                    lock.subscribers.deliver(&name, &Hint::Recheck); // an older copy was restored
                } else if delivered < Some(Revision(revision)) {
                    let read_row = sqlx::query(statements::READ).bind(name.to_string());
                    let Some(rows) = read(lock, read_row).await else { return ReadOutcome::Failed };
                    news |= deliver(lock, &name, rows.first());
                }
            }
            // The row is gone, or cannot be read.
            (None, Some(_)) => {
                lock.subscribers.deliver(&name, &Hint::Recheck);
            }
            (None, None) => {}
        }
    }
    if news { ReadOutcome::News } else { ReadOutcome::NothingNew }
}

async fn read(lock: &LockState, statement: Statement) -> Option<Vec<SqliteRow>> {
    match lock.file.execute(statement, false, READ_TIMEOUT).await {
        Ok(Some(answer)) => Some(answer.rows),
        // A leader must know at once; its read finds no file.
        Ok(None) => {
            let names = lock.subscribers.hub.names();
            if names.iter().any(|name| lock.subscribers.delivered(name).is_some()) {
                lock.subscribers.hub.send_all(&Hint::Recheck);
            }
            None
        }
        Err(failed) => {
            debug!(error = %failed, "cannot read the file");
            None
        }
    }
}

/// Returns whether the row is newer than the one that was delivered last.
fn deliver(lock: &LockState, name: &str, row: Option<&SqliteRow>) -> bool {
    let delivered = lock.subscribers.delivered(name);
    let hint = match row.map(|row| lock.row_of(row)) {
        Some(Ok(row)) => {
            // Revisions are consecutive, so none is missing between these.
            let previous =
                delivered.filter(|delivered| delivered.0.checked_add(1) == Some(row.revision));
            let previous = previous.map(Some);
            Hint::Stored { record: row.record(), previous, age: None }
        }
        _ if delivered.is_some() => Hint::Recheck, // gone meanwhile, or unreadable
        _ => return false,
    };
    let is_row = matches!(hint, Hint::Stored { .. });
    lock.subscribers.deliver(name, &hint) && is_row
}

/// Records events on the file, or on the files that SQLite keeps beside it, in `events`.
fn watch(path: &Path, events: Arc<FileEvents>) -> notify::Result<RecommendedWatcher> {
    let files = [path.to_owned(), log_path(path)];
    let index = index_path(path);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        let done = match &event {
            Ok(event) if event.need_rescan() => Some(false),
            Ok(event) if matches!(event.kind, EventKind::Access(_)) => None,
            // Reads write to it as well.
            Ok(event) if event.kind.is_remove() && event.paths.contains(&index) => Some(false),
            Ok(event) if !event.paths.iter().any(|path| files.contains(path)) => None,
            Ok(event) => Some(matches!(event.kind, EventKind::Modify(ModifyKind::Metadata(_)))),
            Err(_) => Some(false),
        };
        if let Some(done) = done {
            events.done.store(done, Ordering::Relaxed);
            events.news.notify_one();
        }
    })?;
    // Watches the directory, so that a file that replaces this one is reported too.
    let directory = path.parent().unwrap_or(path);
    watcher.watch(directory, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::hint_hub::{HintHub, Listen, guard};
    use crate::backends::sql::hints::DeliveredRevisions;
    use crate::backends::sql::lock::Database;
    use crate::backends::sql::setup::TableSetup;
    use crate::backends::sql::sqlite::file::File;
    use crate::lock::{HintSink, Mark, Nonce, Write, WriteId};

    /// Subscriptions without a listener.
    struct Unheard(Arc<LockState>);

    impl Listen for Unheard {
        type Note = DeliveredRevisions;

        fn hub(&self) -> &HintHub<DeliveredRevisions> {
            &self.0.subscribers.hub
        }

        fn listen(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
            std::future::pending()
        }
    }

    #[tokio::test]
    async fn only_what_has_changed_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("elections.db");
        let file = File::open(&path, TableSetup::create()).await.unwrap();
        let lock = Arc::new(LockState::new(Arc::new(file)));
        let names = || (0..50).map(|n| format!("e{n}"));
        let unheard = Arc::new(Unheard(Arc::clone(&lock)));
        let sink = || HintSink::new(|_| {});
        let _subscriptions: Vec<_> =
            names().map(|name| guard::subscribe(&unheard, &name, sink())).collect();
        let write = WriteId { nonce: Nonce(1), number: 1 };
        let write = Write {
            expected: None,
            identity: "a".into(),
            mark: Mark::new(write, READ_TIMEOUT, None),
            ttl: READ_TIMEOUT,
            advertisement: None,
            timeout: READ_TIMEOUT,
        };
        for name in names().take(3) {
            lock.put(lock.write(&name, &write).unwrap(), READ_TIMEOUT).await.unwrap();
        }
        for expected in [1 + 3, 1] {
            let before = lock.file.transactions.load(Ordering::Relaxed);
            read_changes(&lock).await;
            assert_eq!(lock.file.transactions.load(Ordering::Relaxed) - before, expected);
        }
        let reads = names().map(|name| {
            let lock = Arc::clone(&lock);
            tokio::spawn(async move { lock.read(&name, true, READ_TIMEOUT).await })
        });
        for read in reads.collect::<Vec<_>>() {
            read.await.unwrap().unwrap();
        }
        assert!(lock.file.idle_connections() <= 4);
    }
}
