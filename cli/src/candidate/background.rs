//! Tasks beside the work of a candidate.

use tokio::task::JoinHandle;

/// A task that ends with whoever has it.
pub struct BackgroundTask(pub JoinHandle<()>);

impl Drop for BackgroundTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
