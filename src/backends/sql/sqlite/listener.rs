//! Hints: the system reports writes to the file, and a read shows what changed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use notify::event::ModifyKind;
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tracing::{debug, info};

use super::announce::log_path;
use super::state::LockState;
use super::statements;
use crate::lock::{Coverage, Hint, Revision};

/// The timeout of a read.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// The interval between reads when no write is reported.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The same if the system reports no writes.
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

async fn read_changes(lock: &LockState) -> ReadOutcome {
    let mut news = false;
    for name in lock.subscribers.hub.names() {
        let read = sqlx::query(statements::READ).bind(name.to_string());
        let answer = match lock.file.execute(read, false, READ_TIMEOUT).await {
            Ok(Some(answer)) => answer,
            // A leader must know at once; its read finds no file.
            Ok(None) => {
                if lock.subscribers.delivered(&name).is_some() {
                    lock.subscribers.hub.send_all(&Hint::Recheck);
                }
                return ReadOutcome::Failed;
            }
            Err(failed) => {
                debug!(error = %failed, "cannot read the file");
                return ReadOutcome::Failed;
            }
        };
        let delivered = lock.subscribers.delivered(&name);
        let row = match answer.rows.first().map(|row| lock.row_of(row)) {
            Some(Ok(row)) => row,
            // The row is gone, or cannot be read.
            _ if delivered.is_some() => {
                lock.subscribers.hub.send_all(&Hint::Recheck);
                continue;
            }
            _ => continue,
        };
        let revision = Revision(row.revision);
        if lock.seen.see(&name, row.revision) > row.revision {
            lock.subscribers.deliver(&name, &Hint::Recheck); // an older copy was restored
        } else if delivered < Some(revision) {
            // Revisions are consecutive, so none is missing between these.
            let previous =
                delivered.filter(|delivered| delivered.0.checked_add(1) == Some(revision.0));
            let previous = previous.map(Some);
            let record = row.record();
            news |= lock.subscribers.deliver(&name, &Hint::Stored { record, previous, age: None });
        }
    }
    if news { ReadOutcome::News } else { ReadOutcome::NothingNew }
}

/// Records events on the file, or on the files that SQLite keeps beside it, in `events`.
fn watch(path: &Path, events: Arc<FileEvents>) -> notify::Result<RecommendedWatcher> {
    let files = [path.to_owned(), log_path(path)];
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        let done = match &event {
            Ok(event) if event.need_rescan() => Some(false),
            Ok(event) if matches!(event.kind, EventKind::Access(_)) => None,
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
