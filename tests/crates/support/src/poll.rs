//! Waiting for what signals no event.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// How long what must happen may take. No test measures it: a busy machine may stand still for half
/// a minute, more than once.
pub const LIMIT: Duration = Duration::from_secs(120);

/// How often something is looked at again.
const INTERVAL: Duration = Duration::from_millis(10);

/// Calls `look` every few milliseconds until it returns a value, for at most [`LIMIT`], even where
/// a look hangs.
pub async fn poll<T>(mut look: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            sleep(INTERVAL).await;
        }
    };
    timeout(LIMIT, found).await.ok()
}

/// Waits until `look` returns a value, and returns it: for what a server signals no event of.
///
/// # Panics
///
/// After two minutes: `what` never came.
pub async fn eventually<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    match poll(look).await {
        Some(found) => found,
        None => panic!("waited {LIMIT:?} for: {what}"),
    }
}

/// Repeats `attempt` while its error `is_late`, which a busy machine may cause, and returns what it
/// leads to: for a request with a time limit of its own that may be sent twice. Gives up after two
/// minutes.
///
/// # Errors
///
/// That of the last attempt.
pub async fn repeated<T, E, F>(
    attempt: impl Fn() -> F,
    is_late: impl Fn(&E) -> bool,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let end = Instant::now() + LIMIT;
    loop {
        match attempt().await {
            Err(error) if is_late(&error) && Instant::now() < end => sleep(INTERVAL).await,
            answer => return answer,
        }
    }
}
