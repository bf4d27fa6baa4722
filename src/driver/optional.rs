//! Futures that may not be there: they are never ready then.

use std::future::pending;

use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;

/// Waits for the future. Cancel safe: it goes on with the next call.
pub(super) async fn poll_optional<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

/// Waits for the end of `on_campaign`, and returns whether it panicked. Cancel safe.
pub(super) async fn poll_campaigning(task: &mut Option<JoinHandle<()>>) -> bool {
    match task {
        Some(task) => task.await.is_err_and(|error| error.is_panic()),
        None => pending().await,
    }
}
