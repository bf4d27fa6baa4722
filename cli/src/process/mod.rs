//! This process and others: its signals and tasks; on Linux, starting, watching and stopping
//! processes of this machine.

#[cfg(target_os = "linux")]
mod linux;
pub mod signals;

use std::io;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

#[cfg(target_os = "linux")]
pub use self::linux::*;

/// A task that is aborted when its handle is dropped.
pub struct BackgroundTask(pub JoinHandle<()>);

impl Drop for BackgroundTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Does this on a thread of its own, which begins at once, and may hang: unlike a thread of the
/// runtime, it does not keep the program from ending. Cancel safe: it is done all the same.
pub fn on_own_thread<T: Send + 'static>(
    act: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = io::Result<T>> {
    let (sender, done) = oneshot::channel();
    let started = thread::Builder::new().spawn(move || drop(sender.send(act())));
    async move {
        started?;
        done.await.map_err(io::Error::other)
    }
}

/// Reads or writes a file on a thread of its own: a disk that does not respond in time, as one of a
/// network, is a failure.
pub async fn on_disk<T: Send + 'static>(
    within: Duration,
    act: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match timeout(within, on_own_thread(act)).await {
        Ok(done) => done?,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no response of the disk")),
    }
}

/// Raises the limit of open files to this number, or as far as it may be: that of this process, and
/// of those that it starts from now on. Returns how many are allowed then.
#[cfg(unix)]
pub fn allow_files(wanted: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(current) = current.filter(|current| *current < wanted) else { return wanted };
    let raised = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }) {
        Ok(()) => raised,
        Err(_) => current,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_hangs_on_its_own_thread_does_not_keep_the_runtime() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (release, hangs) = mpsc::channel::<()>();
        let outcome = runtime.block_on(async {
            on_disk(Duration::from_millis(10), move || Ok(hangs.recv().is_err())).await
        });
        drop(runtime); // waits for the threads that are its own
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(release);
    }

    #[tokio::test]
    async fn what_is_done_on_its_own_thread_is_returned() {
        assert_eq!(on_own_thread(|| 7).await.unwrap(), 7);
    }
}
