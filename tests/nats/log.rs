//! What the library logs, for the tests of a runtime with one thread.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing_subscriber::EnvFilter;

/// What has been logged on this thread since it was made.
pub struct Log {
    lines: Lines,
    _guard: DefaultGuard,
}

/// While a process has one subscriber, `tracing` asks the thread that reaches a log statement first
/// whether it is of interest, for good. A test without a log would switch the statement off for
/// all: with two, every one is asked.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub fn start() -> Self {
        Self::of("incumbent=info")
    }

    /// What the modules log that the filter selects, written as in `RUST_LOG`.
    pub fn of(modules: &str) -> Self {
        LazyLock::force(&SECOND);
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(modules))
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        Self { lines, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// The lines that have all of these words.
    pub fn lines(&self, words: &[&str]) -> Vec<String> {
        let bytes = self.lines.0.lock().unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().filter(|line| words.iter().all(|word| line.contains(word)));
        lines.map(str::to_owned).collect()
    }
}

#[test]
fn a_log_has_what_a_thread_without_one_logged_first() {
    let warns = || tracing::warn!(target: "incumbent", "logged twice");
    let log = Log::start();
    std::thread::spawn(warns).join().unwrap();
    warns();
    assert_eq!(log.lines(&["logged twice"]).len(), 1);
}
