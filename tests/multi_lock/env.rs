//! Locks that refuse and fail as a test sets, and that log their requests in a common order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use incumbent::lock::{
    Capabilities, HintSink, Lock, LockError, LockErrorKind, Messages, Reading, Release, Revision,
    Subscription, Write,
};
use incumbent::memory::MemoryLock;
use incumbent::{ElectionBuilder, new_election};
use tokio::sync::watch;

use crate::conformance::{LEASE, soon, working};

pub const NAME: &str = "my_app";

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
    /// Writes only.
    Writes(LockErrorKind),
    All(LockErrorKind),
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

    /// Hints of what is stored come through whatever fails; they carry no less than a read.
    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        let (lock, fails) = (
            self.lock.subscribe(name, {
                let (fails, sink) = (Arc::clone(&self.fails), sink.clone());
                HintSink::new(move |hint| {
                    if !matches!(*fails.borrow(), Failing::All(_)) {
                        sink.send(hint);
                    }
                })
            }),
            self.fails.subscribe(),
        );
        let task = tokio::spawn(send_coverage(fails, sink));
        Subscription::new((lock, AbortOnDrop(task)))
    }
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// As a connection that is lost and found does.
async fn send_coverage(mut fails: watch::Receiver<Failing>, sink: HintSink) {
    use incumbent::lock::{Coverage, Hint};
    while fails.changed().await.is_ok() {
        let cut = matches!(*fails.borrow(), Failing::All(_));
        sink.send(Hint::Coverage(if cut { Coverage::None } else { Coverage::Full }));
        sink.send(Hint::Recheck);
    }
}

pub fn memory() -> MemoryLock {
    MemoryLock::with_ttl(LEASE)
}

/// A candidate whose work continues until it must stop.
pub fn candidate(lock: impl Lock, identity: &str) -> ElectionBuilder {
    working(new_election(NAME, lock).identity(identity).lease(LEASE))
}

/// Waits until `lock` is held by `identity`, or is free.
pub async fn held(lock: &MemoryLock, identity: Option<&str>) {
    let observer = incumbent::observe(NAME, lock.clone()).expect("an observer");
    let mut changes = observer.changes();
    soon(&format!("{identity:?} holds the lock"), async {
        while lock.holder(NAME).as_deref() != identity {
            changes.next().await.expect("a change");
        }
    })
    .await;
}
