//! Background tasks.

use tokio::task::JoinHandle;

/// A task that is aborted when its handle is dropped.
pub struct BackgroundTask(pub JoinHandle<()>);

impl Drop for BackgroundTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
