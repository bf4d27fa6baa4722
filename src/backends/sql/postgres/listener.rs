//! Hints: a connection that listens for what the triggers tell.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use sqlx::postgres::{PgListener, PgNotification};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info};

use super::errors::{self, Effect};
use super::state::{Found, LockState};
use super::statements;
use crate::backends::sql::row::{Row, span};
use crate::lock::codec::parse_nonce;
use crate::lock::{Content, Coverage, Hint, Record, Revision, StepDownNotice, Token};
use crate::util::retry::Pauses;

/// How long connecting and listening may take.
const BEGINS_WITHIN: Duration = Duration::from_secs(5);
/// How long after a write was read its notification may still come.
const HINT_DELAY: Duration = Duration::from_secs(2);
/// The pause where no notification arrives at all, as behind a pooler.
const DEAF_PAUSE: Duration = Duration::from_secs(300);

/// How long a look may take that a notification suggests.
const LOOKS_WITHIN: Duration = Duration::from_secs(1);

/// The payload of a notification, as the trigger sends it.
#[derive(Debug, Deserialize)]
struct Notification {
    name: String,
    previous: Option<u64>,
    #[serde(default)]
    stepped_down: bool,
}

/// The step-down notice that a former leader has written into the row.
#[derive(Debug, Deserialize)]
struct WrittenNotice {
    by: String,
    token: u64,
    revision: u64,
    left_ms: i64,
}

/// Why there is no listener.
enum Silent {
    /// There is no connection.
    Unconnected(sqlx::Error),
    /// It has not told what we told it.
    Deaf,
}

/// Listens until it is dropped.
pub(super) async fn run(lock: Arc<LockState>) {
    let mut pauses = Pauses::new();
    loop {
        let pause = match timeout(BEGINS_WITHIN + HINT_DELAY, begin(&lock)).await {
            Ok(Ok(listener)) => {
                lock.subscribers.announce(Coverage::Full); // which has everybody look
                let began = Instant::now();
                listen(&lock, listener).await;
                if began.elapsed() > Pauses::LONGEST {
                    pauses = Pauses::new();
                }
                pauses.next()
            }
            Ok(Err(Silent::Deaf)) => {
                info!(at = lock.connections.place(), "notifications do not arrive: polling");
                DEAF_PAUSE
            }
            Ok(Err(Silent::Unconnected(error))) => {
                debug!(at = lock.connections.place(), %error, "not listening");
                pauses.next()
            }
            Err(_) => {
                debug!(at = lock.connections.place(), "not listening in time");
                pauses.next()
            }
        };
        lock.subscribers.announce(Coverage::None);
        sleep(pause).await;
    }
}

/// Listens, and sees whether notifications arrive at all.
async fn begin(lock: &LockState) -> Result<PgListener, Silent> {
    let pool = lock.connections.for_listener();
    let mut listener = PgListener::connect_with(&pool).await.map_err(Silent::Unconnected)?;
    listener.eager_reconnect(false);
    let channel = &lock.opened.channel;
    listener.listen(channel).await.map_err(Silent::Unconnected)?;
    let probe = format!("{:016x}", fastrand::u64(..));
    let statement = statements::notify(channel, &probe);
    let told = lock.connections.ask(&statement, Effect::Read, BEGINS_WITHIN).await;
    told.map_err(|failed| match errors::is_out_of_turn(&failed) {
        true => Silent::Deaf,
        false => Silent::Unconnected(sqlx::Error::PoolTimedOut),
    })?;
    let heard = async {
        loop {
            match listener.try_recv().await {
                Ok(Some(told)) if told.payload() == probe => return Ok(()),
                Ok(Some(told)) => hear(lock, &told).await,
                Ok(None) => return Err(Silent::Unconnected(sqlx::Error::PoolClosed)),
                Err(error) => return Err(Silent::Unconnected(error)),
            }
        }
    };
    match timeout(HINT_DELAY, heard).await {
        Ok(heard) => heard.map(|()| listener),
        Err(_) => Err(Silent::Deaf),
    }
}

/// Passes on what is told, until the connection is lost or has left something out.
async fn listen(lock: &LockState, listener: PgListener) {
    let mut next = Box::pin(receive(listener));
    let mut behind_since: Option<Instant> = None;
    loop {
        let overdue = async {
            match behind_since {
                Some(since) => tokio::time::sleep_until(since + HINT_DELAY).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            (listener, told) = &mut next => {
                match told {
                    Ok(Some(told)) => hear(lock, &told).await,
                    Ok(None) => return debug!("the connection that listens is lost"),
                    Err(error) => return debug!(%error, "the connection that listens is lost"),
                }
                next = Box::pin(receive(listener));
            }
            () = lock.subscribers.news.notified() => {}
            () = overdue => return debug!("a write was read that no notification told: listening anew"),
        }
        behind_since = match lock.subscribers.is_behind() {
            true => behind_since.or_else(|| Some(Instant::now())),
            false => None,
        };
    }
}

/// Owns the listener, so that a message that has begun to arrive is not lost when something else happens.
async fn receive(
    mut listener: PgListener,
) -> (PgListener, Result<Option<PgNotification>, sqlx::Error>) {
    let told = listener.try_recv().await;
    (listener, told)
}

/// Anybody who may connect can have told it. So what could begin a term is looked up in the row: that an office is free, that
/// its holder has stopped, that an entry is of this very process.
async fn hear(lock: &LockState, told: &PgNotification) {
    let payload = told.payload();
    let Ok(Notification { name, previous, stepped_down }) = serde_json::from_str(payload) else {
        return;
    };
    let row = serde_json::from_str::<Row>(payload).ok().filter(|_| !stepped_down);
    let held = row.map(|row| row.record()).filter(|record| is_of_another(lock, record));
    match held {
        Some(record) => {
            let previous = previous.map(|previous| Some(Revision(previous)));
            lock.subscribers.tell(&name, &Hint::Stored { record, previous, age: None });
        }
        None => look_up(lock, &name).await,
    }
}

fn is_of_another(lock: &LockState, record: &Record) -> bool {
    match &record.content {
        Content::Held(entry) => {
            entry.mark.as_ref().is_none_or(|mark| !lock.own.may_have(mark.write.nonce))
        }
        Content::Vacant(_) => false,
    }
}

/// Passes on what the row says.
async fn look_up(lock: &LockState, name: &str) {
    if !lock.subscribers.is_heard(name) {
        return;
    }
    let found = lock.look(name, LOOKS_WITHIN).await;
    let (row, previous, conceded) = match found {
        Ok(Found { row: Some(row), previous, conceded, same_history: true, .. })
            if row.revision >= lock.seen.newest(name) =>
        {
            (row, previous, conceded)
        }
        _ => {
            lock.subscribers.tell(name, &Hint::Recheck);
            return;
        }
    };
    if let Some(notice) = conceded.as_deref().and_then(notice) {
        lock.subscribers.tell(name, &Hint::SteppedDown(notice));
    }
    let previous = previous.map(Some);
    lock.subscribers.tell(name, &Hint::Stored { record: row.record(), previous, age: None });
}

fn notice(said: &str) -> Option<StepDownNotice> {
    let WrittenNotice { by, token, revision, left_ms } = serde_json::from_str(said).ok()?;
    let (token, revision) = (Token(token), Revision(revision));
    Some(StepDownNotice { by: parse_nonce(&by)?, token, revision, left: span(left_ms) })
}
