//! This process and others: its signals and tasks; on Linux, starting, watching and stopping
//! processes of this machine.

#[cfg(target_os = "linux")]
mod linux;
pub mod signals;

use tokio::task::JoinHandle;

#[cfg(target_os = "linux")]
pub use self::linux::*;

/// A task that is aborted when its handle is dropped.
pub struct BackgroundTask(pub JoinHandle<()>);

impl Drop for BackgroundTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
