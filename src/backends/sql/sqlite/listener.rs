//! Hints: the system tells that the file was written to, and a look tells what.

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

/// How long a look may take.
const LOOK: Duration = Duration::from_secs(1);
/// After how long to look though nothing was told.
const UNTOLD: Duration = Duration::from_secs(2);
/// The same where the system tells nothing.
const UNTOLD_BLIND: Duration = Duration::from_millis(40);
/// The first pause between looks for a write that has begun, the longest, and for how long to look. The log is written to before
/// the disk has it, and the write can be seen only after that, which on a busy disk takes a second and more. Campaigners say when
/// they are done; a shell of SQLite does not.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(128);
const LOOKS_FOR: Duration = Duration::from_secs(4);

/// Looks whenever the file was written to, until it is dropped.
pub(super) async fn run(lock: Arc<LockState>) {
    let told = Arc::new(Told::default());
    let watcher = watch(lock.file.path(), Arc::clone(&told));
    if let Err(error) = &watcher {
        info!(%error, path = %lock.file.path().display(), "the system does not tell of writes: polling");
    }
    let untold = if watcher.is_ok() { UNTOLD } else { UNTOLD_BLIND };
    let mut awaited: Option<Awaited> = None;
    loop {
        match look(&lock).await {
            Look::RequestError => lock.subscribers.announce(Coverage::None),
            // What was heard until then counts no more.
            _ if lock.subscribers.announce_if_none(Coverage::Full) => continue,
            Look::News => awaited = None,
            Look::NothingNew => {}
        }
        awaited = awaited.filter(|awaited| awaited.until > Instant::now());
        let patience = awaited.as_ref().map_or(untold, |awaited| awaited.pause);
        if timeout(patience, told.news.notified()).await.is_ok() {
            let done = told.done.load(Ordering::Relaxed);
            awaited = (!done).then(Awaited::begin);
        } else if let Some(awaited) = &mut awaited {
            awaited.pause = (awaited.pause * 2).min(MAX_PAUSE);
        }
    }
}

/// What the system has told.
#[derive(Debug, Default)]
struct Told {
    news: Notify,
    /// Whether the last of it was the end of a write, and not its beginning.
    done: AtomicBool,
}

/// A write that has begun.
struct Awaited {
    until: Instant,
    pause: Duration,
}

impl Awaited {
    fn begin() -> Self {
        Self { until: Instant::now() + LOOKS_FOR, pause: FIRST_PAUSE }
    }
}

enum Look {
    News,
    NothingNew,
    RequestError,
}

async fn look(lock: &LockState) -> Look {
    let mut news = false;
    for name in lock.subscribers.hub.names() {
        let read = sqlx::query(statements::READ).bind(name.to_string());
        let answer = match lock.file.ask(read, false, LOOK).await {
            Ok(Some(answer)) => answer,
            // Who leads must know at once, and finds nothing.
            Ok(None) => {
                if lock.subscribers.heard(&name).is_some() {
                    lock.subscribers.hub.send_all(&Hint::Recheck);
                }
                return Look::RequestError;
            }
            Err(failed) => {
                debug!(error = failed.message, "no look at the file");
                return Look::RequestError;
            }
        };
        let heard = lock.subscribers.heard(&name);
        let row = match answer.rows.first().map(|row| lock.row_of(row)) {
            Some(Ok(row)) => row,
            // Nothing stands there any more, or something that cannot be read.
            _ if heard.is_some() => {
                lock.subscribers.hub.send_all(&Hint::Recheck);
                continue;
            }
            _ => continue,
        };
        let revision = Revision(row.revision);
        if lock.seen.see(&name, row.revision) > row.revision {
            lock.subscribers.tell(&name, &Hint::Recheck); // the past has come back
        } else if heard < Some(revision) {
            // Revisions are counted, so none is missing between these.
            let previous = heard.filter(|heard| heard.0.checked_add(1) == Some(revision.0));
            let previous = previous.map(Some);
            let record = row.record();
            news |= lock.subscribers.tell(&name, &Hint::Stored { record, previous, age: None });
        }
    }
    if news { Look::News } else { Look::NothingNew }
}

/// Has `told` told of what happens to the file, or to what SQLite keeps beside it.
fn watch(path: &Path, told: Arc<Told>) -> notify::Result<RecommendedWatcher> {
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
            told.done.store(done, Ordering::Relaxed);
            told.news.notify_one();
        }
    })?;
    // The directory: a file that is put in the place of this one is to be told of too.
    let directory = path.parent().unwrap_or(path);
    watcher.watch(directory, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}
