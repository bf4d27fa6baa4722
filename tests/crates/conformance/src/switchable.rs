//! A lock that refuses and fails as a test sets, and logs what it grants.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use incumbent::lock::{
    Capabilities, Coverage, Hint, HintSink, Lock, LockError, LockErrorKind, Messages, Reading,
    Release, Revision, Subscription, Write,
};
use incumbent::memory::MemoryLock;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What has been granted, such as `a took` and `b released`.
#[derive(Clone, Default)]
pub struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    pub fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    /// What has been granted since the last time.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// A lock in process as one candidate reaches it: it can be denied writes and be cut off while
/// others are not.
#[derive(Clone)]
pub struct SwitchableLock {
    pub lock: MemoryLock,
    name: &'static str,
    diary: Diary,
    fails: Arc<watch::Sender<Failing>>,
}

/// How requests fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    Nothing,
    /// Reads only.
    Reads(LockErrorKind),
    /// Writes only.
    Writes(LockErrorKind),
    All(LockErrorKind),
}

impl Failing {
    fn is_cut(self) -> bool {
        matches!(self, Self::All(_))
    }
}

impl SwitchableLock {
    pub fn new(lock: &MemoryLock, name: &'static str, diary: &Diary) -> Self {
        let fails = Arc::new(watch::Sender::new(Failing::Nothing));
        Self { lock: lock.clone(), name, diary: diary.clone(), fails }
    }

    pub fn fail(&self, fails: Failing) {
        self.fails.send_replace(fails);
    }

    fn pass(&self, writes: bool) -> Result<(), LockError> {
        match *self.fails.borrow() {
            Failing::Reads(kind) if !writes => Err(LockError::new(kind, "so the test wants it")),
            Failing::Writes(kind) if writes => Err(LockError::new(kind, "so the test wants it")),
            Failing::All(kind) => Err(LockError::new(kind, "so the test wants it")),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for SwitchableLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

#[async_trait]
impl Lock for SwitchableLock {
    fn capabilities(&self) -> Capabilities {
        self.lock.capabilities()
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        self.lock.check_name(name)
    }

    async fn read(&self, name: &str, timeout: Duration) -> Result<Reading, LockError> {
        self.pass(false)?;
        self.lock.read(name, timeout).await
    }

    async fn write(&self, name: &str, write: Write) -> Result<Revision, LockError> {
        self.pass(true)?;
        let creates = write.mark.token.is_none();
        let revision = self.lock.write(name, write).await?;
        if creates {
            self.diary.note(format!("{} took", self.name));
        }
        Ok(revision)
    }

    async fn release(&self, name: &str, release: Release) -> Result<(), LockError> {
        self.pass(true)?;
        self.lock.release(name, release).await?;
        self.diary.note(format!("{} released", self.name));
        Ok(())
    }

    fn messages(&self) -> Option<&dyn Messages> {
        self.lock.messages()
    }

    /// Hints of what is stored come through unless it is cut off; they carry no less than a read.
    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        let changes = self.fails.subscribe();
        let was_cut = changes.borrow().is_cut();
        let (fails, passes) = (Arc::clone(&self.fails), sink.clone());
        let hints = HintSink::new(move |hint| {
            if !fails.borrow().is_cut() {
                passes.send(hint);
            }
        });
        let subscription = self.lock.subscribe(name, hints);
        let mut task = JoinSet::new();
        task.spawn(send_coverage(changes, was_cut, sink));
        Subscription::new((subscription, task))
    }
}

/// As a connection that is lost and found does. Permissions change in silence.
async fn send_coverage(mut changes: watch::Receiver<Failing>, mut was_cut: bool, sink: HintSink) {
    while changes.changed().await.is_ok() {
        let cut = changes.borrow().is_cut();
        if std::mem::replace(&mut was_cut, cut) || cut {
            sink.send(Hint::Coverage(if cut { Coverage::None } else { Coverage::Full }));
            sink.send(Hint::Recheck);
        }
    }
}
