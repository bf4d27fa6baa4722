//! Hints: the system tells that the file was written to, and a look tells what.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info};

use super::lock::Inner;
use super::statements;
use crate::lock::{Coverage, Hint, Revision};

/// How long a look may take.
const LOOK: Duration = Duration::from_secs(1);
/// After how long to look though nothing was told.
const UNTOLD: Duration = Duration::from_secs(2);
/// The same where the system tells nothing.
const UNTOLD_BLIND: Duration = Duration::from_millis(40);
/// The first pause between looks for a write that was told, the longest, and for how long to look. The file is written to before
/// the disk has it, and the write can be seen only after that, which on a busy disk takes a second and more.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(128);
const LOOKS_FOR: Duration = Duration::from_secs(4);

/// Looks whenever the file was written to, until it is aborted.
pub(super) async fn run(lock: Arc<Inner>) {
    let told = Arc::new(Notify::new());
    let watcher = watch(lock.file.path(), Arc::clone(&told));
    if let Err(error) = &watcher {
        info!(%error, path = %lock.file.path().display(), "the system does not tell of writes: polling");
    }
    let untold = if watcher.is_ok() { UNTOLD } else { UNTOLD_BLIND };
    loop {
        match look(&lock).await {
            Look::Failed => lock.hearers.announce(Coverage::None),
            _ => lock.hearers.announce_if_none(Coverage::Full),
        }
        if timeout(untold, told.notified()).await.is_err() {
            continue;
        }
        let (mut pause, told_at) = (FIRST_PAUSE, Instant::now());
        while let Look::NothingNew = look(&lock).await
            && told_at.elapsed() < LOOKS_FOR
        {
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

enum Look {
    News,
    NothingNew,
    Failed,
}

async fn look(lock: &Inner) -> Look {
    let mut news = false;
    for name in lock.hearers.names() {
        let read = sqlx::query(statements::READ).bind(name.to_string());
        let answer = match lock.file.ask(read, false, LOOK).await {
            Ok(Some(answer)) => answer,
            // Who leads must know at once, and finds nothing.
            Ok(None) => {
                if lock.hearers.heard(&name).is_some() {
                    lock.hearers.tell_everybody(&Hint::Look);
                }
                return Look::Failed;
            }
            Err(failed) => {
                debug!(error = failed.message, "no look at the file");
                return Look::Failed;
            }
        };
        let heard = lock.hearers.heard(&name);
        let row = match answer.rows.first().map(|row| lock.row_of(row)) {
            Some(Ok(row)) => row,
            // Nothing stands there any more, or something that cannot be read.
            _ if heard.is_some() => {
                lock.hearers.tell_everybody(&Hint::Look);
                continue;
            }
            _ => continue,
        };
        let revision = Revision(row.revision);
        if lock.seen.see(&name, row.revision) > row.revision {
            lock.hearers.tell(&name, &Hint::Look); // the past has come back
        } else if heard < Some(revision) {
            // Revisions are counted, so none is missing between these.
            let previous = heard.filter(|heard| heard.0.checked_add(1) == Some(revision.0));
            let previous = previous.map(Some);
            let record = row.record();
            news |= lock.hearers.tell(&name, &Hint::Stored { record, previous, age: None });
        }
    }
    if news { Look::News } else { Look::NothingNew }
}

/// Has `told` told of what happens to the file, or to what SQLite keeps beside it.
fn watch(path: &Path, told: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let files = [path.to_owned(), PathBuf::from(log)];
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        let tells = match &event {
            Ok(event) if event.need_rescan() => true,
            Ok(event) if matches!(event.kind, EventKind::Access(_)) => false,
            Ok(event) => event.paths.iter().any(|path| files.contains(path)),
            Err(_) => true,
        };
        if tells {
            told.notify_one();
        }
    })?;
    // The directory: a file that is put in the place of this one is to be told of too.
    let directory = path.parent().unwrap_or(path);
    watcher.watch(directory, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}
