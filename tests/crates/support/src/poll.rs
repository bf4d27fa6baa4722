//! Waiting for what signals no event.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How often something is looked at again.
const INTERVAL: Duration = Duration::from_millis(10);

/// Calls `look` every few milliseconds until it returns a value, for at most `limit`.
pub(crate) async fn poll<T>(
    limit: Duration,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = look().await {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        sleep(INTERVAL).await;
    }
}

/// Waits until `look` returns a value, and returns it: for what a server signals no event of.
///
/// # Panics
///
/// After a minute: `what` never came.
pub async fn eventually<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    match poll(Duration::from_secs(60), look).await {
        Some(found) => found,
        None => panic!("waited a minute for: {what}"),
    }
}
