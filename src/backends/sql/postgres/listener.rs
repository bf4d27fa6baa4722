//! Hints from a connection that listens for the triggers' notifications.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use sqlx::postgres::{PgListener, PgNotification};
use tokio::time::{Instant, MissedTickBehavior, sleep, timeout};
use tracing::{debug, info};

use super::connections::MAX_IDLE;
use super::errors;
use super::probe::probe_channel;
use super::state::{LockState, ReadRow};
use super::statements;
use crate::backends::hint_hub::{BEGINS_WITHIN, HINT_DELAY};
use crate::backends::sql::row::span;
use crate::lock::codec::parse_nonce;
use crate::lock::{Coverage, Effect, Hint, LockError, Revision, RollCall, StepDownNotice, Token};
use crate::util::retry::BackendRetries;

/// The pause before the next attempt when no notification arrives at all, as behind a pooler.
const NO_NOTIFICATIONS_PAUSE: Duration = Duration::from_secs(300);

/// The timeout of a read after a notification.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// The payload of a notification: of the trigger, or a roll call.
#[derive(Debug, Deserialize)]
struct Notification {
    name: String,
    #[serde(default)]
    roll_call: Option<RollCall>,
}

/// The step-down notice that a former leader has written into the row.
#[derive(Debug, Deserialize)]
struct WrittenNotice {
    by: String,
    token: u64,
    revision: u64,
    left_ms: i64,
}

/// The reason why there is no listener.
enum ListenError {
    /// The connection failed.
    Unconnected(sqlx::Error),
    /// The probe's own notification did not arrive.
    NoNotifications,
}

/// Listens until dropped.
pub(super) async fn run(lock: Arc<LockState>) {
    let mut pauses = BackendRetries::unseeded();
    loop {
        let pause = match timeout(BEGINS_WITHIN + HINT_DELAY, begin(&lock)).await {
            Ok(Ok(listener)) => {
                lock.subscribers.announce(Coverage::Full); // every subscriber then reads
                let began = Instant::now();
                listen(&lock, listener).await;
                pauses.delay_after(began)
            }
            Ok(Err(ListenError::NoNotifications)) => {
                info!(at = lock.connections.place(), "notifications do not arrive: polling");
                NO_NOTIFICATIONS_PAUSE
            }
            Ok(Err(ListenError::Unconnected(error))) => {
                debug!(at = lock.connections.place(), %error, "not listening");
                pauses.delay()
            }
            Err(_) => {
                debug!(at = lock.connections.place(), "listening timed out");
                pauses.delay()
            }
        };
        lock.subscribers.announce(Coverage::None);
        sleep(pause).await;
    }
}

/// Listens, and checks whether notifications arrive at all.
async fn begin(lock: &LockState) -> Result<PgListener, ListenError> {
    // On a channel of its own, once: a shared one would deliver each listener's to all others.
    let probe = probe_channel();
    let channels = [&*lock.opened.channel, &*probe];
    let mut listener =
        lock.connections.listen(&channels).await.map_err(ListenError::Unconnected)?;
    let statement = statements::notify(&probe, "");
    let sent = lock.connections.execute(&statement, Effect::Read, BEGINS_WITHIN).await;
    sent.map_err(|failed| match errors::is_out_of_turn(&failed) {
        true => ListenError::NoNotifications,
        false => ListenError::Unconnected(sqlx::Error::PoolTimedOut),
    })?;
    let received = async {
        loop {
            match listener.try_recv().await {
                Ok(Some(notification)) if notification.channel() == probe => return Ok(()),
                // Every subscriber reads once all of this is over.
                Ok(Some(_)) => {}
                Ok(None) => return Err(ListenError::Unconnected(sqlx::Error::PoolClosed)),
                Err(error) => return Err(ListenError::Unconnected(error)),
            }
        }
    };
    match timeout(HINT_DELAY, received).await {
        Ok(received) => received?,
        Err(_) => return Err(ListenError::NoNotifications),
    }
    listener.unlisten(&probe).await.map_err(ListenError::Unconnected)?;
    Ok(listener)
}

/// Passes notifications on until the connection is lost, or a notification is missing.
async fn listen(lock: &LockState, listener: PgListener) {
    let mut next = Box::pin(receive(listener));
    let mut behind_since: Option<Instant> = None;
    let mut tick = tokio::time::interval(MAX_IDLE / 2);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let overdue = async {
            match behind_since {
                Some(since) => tokio::time::sleep_until(since + HINT_DELAY).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            (mut listener, notification) = &mut next => {
                match notification {
                    Ok(Some(notification)) => {
                        let read = on_notifications(lock, &mut listener, notification).await;
                        if let Err(error) = read {
                            return debug!(%error, "the listening connection does not read");
                        }
                    }
                    Ok(None) => return debug!("listening connection lost"),
                    Err(error) => return debug!(%error, "listening connection lost"),
                }
                next = Box::pin(receive(listener));
            }
            _ = tick.tick() => lock.connections.close_idle(),
            () = lock.subscribers.news.notified() => {}
            () = overdue => return debug!("a notification is missing: listening again"),
        }
        behind_since = match lock.subscribers.is_behind() {
            true => behind_since.or_else(|| Some(Instant::now())),
            false => None,
        };
    }
}

/// Owns the listener, so that a partly received message is not lost when another event occurs.
async fn receive(
    mut listener: PgListener,
) -> (PgListener, Result<Option<PgNotification>, sqlx::Error>) {
    let notification = listener.try_recv().await;
    (listener, notification)
}

/// Any client that may connect can send a notification: it is a reason to read the row, and no
/// fact. One read serves all that have arrived: they may arrive faster than rows can be read, and
/// sqlx keeps each until it is taken.
async fn on_notifications(
    lock: &LockState,
    listener: &mut PgListener,
    first: PgNotification,
) -> Result<(), LockError> {
    let mut names = BTreeSet::new();
    let mut next = Some(first);
    while let Some(notification) = next {
        match serde_json::from_str(notification.payload()) {
            Ok(Notification { name, roll_call: Some(call) }) => {
                lock.subscribers.deliver(&name, &Hint::RollCall(call));
            }
            Ok(Notification { name, roll_call: None }) if lock.subscribers.hub.has(&name) => {
                names.insert(name);
            }
            Ok(_) | Err(_) => {}
        }
        next = listener.next_buffered();
    }
    for name in names {
        deliver_row(lock, listener, &name).await?;
    }
    Ok(())
}

/// Reads the row on the connection that listens, so that a standby has no other one, and passes its
/// content on.
async fn deliver_row(
    lock: &LockState,
    listener: &mut PgListener,
    name: &str,
) -> Result<(), LockError> {
    let (mut row, previous, conceded) = match lock.fetch_on(listener, name, READ_TIMEOUT).await? {
        ReadRow { row: Some(row), previous, conceded, same_history: true, .. }
            if Some(Revision(row.revision)) >= lock.seen.get(name).newest() =>
        {
            (row, previous, conceded)
        }
        _ => {
            lock.subscribers.deliver(name, &Hint::Recheck);
            return Ok(());
        }
    };
    if let Some(notice) = conceded.as_deref().and_then(notice) {
        lock.subscribers.deliver(name, &Hint::SteppedDown(notice));
    }
    // A standby counts the lease by its own clock. An expiry would be dated by `previous`,
    // which this entry replaced.
    row.expired = false;
    let previous = previous.map(Some);
    lock.subscribers.deliver(name, &Hint::Stored { record: row.record(), previous, age: None });
    Ok(())
}

fn notice(text: &str) -> Option<StepDownNotice> {
    let WrittenNotice { by, token, revision, left_ms } = serde_json::from_str(text).ok()?;
    let (token, revision) = (Token(token), Revision(revision));
    Some(StepDownNotice { by: parse_nonce(&by)?, token, revision, left: span(left_ms) })
}
