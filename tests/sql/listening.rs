//! Who listens for all subscribers of a lock, where its runtime ends, and in which order they are told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent::lock::{
    Content, Coverage, Hint, HintSink, Lock, Mark, Nonce, Release, Subscription, Tombstone, Write,
    WriteId,
};
use incumbent::sql::{Sqlite, Tables};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use crate::behaviour::{LEASE, soon};
use crate::scene::Scene;

const TIMEOUT: Duration = Duration::from_secs(5);

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

struct Heard {
    hints: mpsc::UnboundedReceiver<Hint>,
    _subscription: Subscription,
}

impl Heard {
    fn about(lock: &dyn Lock, name: &str) -> Self {
        let (told, hints) = mpsc::unbounded_channel();
        let sink = HintSink::new(move |hint| {
            let _ = told.send(hint);
        });
        Self { hints, _subscription: lock.subscribe(name, sink) }
    }

    async fn until(&mut self, what: &str, is_it: impl Fn(&Hint) -> bool) {
        soon(what, async { while !is_it(&self.hints.recv().await.expect("more")) {} }).await;
    }

    async fn coverage(&mut self, coverage: Coverage) {
        let what = format!("{coverage:?}");
        self.until(&what, |hint| *hint == Hint::Coverage(coverage)).await;
    }
}

fn write() -> Write {
    let write = WriteId { nonce: Nonce(7), number: 1 };
    Write {
        identity: "c".into(),
        mark: Mark { write, lease: LEASE, token: None, since_unix_ms: 0 },
        life: LEASE,
        expected: None,
        advertisement: None,
        timeout: TIMEOUT,
    }
}

/// `writer`: the same election, by connections of its own.
async fn hints_go_on(lock: Arc<dyn Lock>, writer: Arc<dyn Lock>) {
    let first = runtime();
    let mut on_first = {
        let _entered = first.enter();
        Heard::about(&*lock, "a")
    };
    on_first.coverage(Coverage::Full).await;
    let mut heard = Heard::about(&*lock, "b");
    heard.coverage(Coverage::Full).await;
    first.shutdown_background();
    heard.coverage(Coverage::None).await;
    heard.coverage(Coverage::Full).await;
    let expected = writer.write("b", write()).await.expect("a write");
    heard
        .until(
            "the write",
            |hint| matches!(hint, Hint::Stored { record, .. } if record.revision == expected),
        )
        .await;
    let left = Duration::ZERO;
    let release = Release { expected, by: Nonce(7), left, cause: "stopped", timeout: TIMEOUT };
    writer.release("b", release).await.expect("a release");
    let released = |hint: &Hint| {
        let Hint::Stored { record, .. } = hint else { return false };
        matches!(record.content, Content::Vacant(Tombstone::Released { by: Nonce(7), .. }))
    };
    heard.until("the release", released).await;
    // Those who come later are told as well, and the first one's end harms nobody.
    drop(on_first);
    Heard::about(&*lock, "c").coverage(Coverage::Full).await;
    drop(heard);
    Heard::about(&*lock, "d").coverage(Coverage::Full).await;
}

/// By several tasks, what was told last could come before what it replaces.
async fn one_task_tells(lock: Arc<dyn Lock>) {
    let tasks = Arc::new(Mutex::new(Vec::new()));
    let mut subscriptions = Vec::new();
    for name in ["a", "b", "b", "c"] {
        let (tasks, (told, mut tellings)) = (Arc::clone(&tasks), mpsc::unbounded_channel());
        let sink = HintSink::new(move |hint| {
            tasks.lock().unwrap().push(tokio::task::try_id());
            let _ = told.send(hint);
        });
        subscriptions.push(lock.subscribe(name, sink));
        let full = async { while tellings.recv().await != Some(Hint::Coverage(Coverage::Full)) {} };
        soon("it is told", full).await;
    }
    let tasks = tasks.lock().unwrap();
    assert!(tasks.iter().all(|task| *task == tasks[0]), "{tasks:?}");
    assert_ne!(tasks[0], tokio::task::try_id());
}

#[tokio::test]
async fn hints_of_postgres_go_on_when_the_runtime_of_the_first_listener_ends() {
    let scene = Scene::new(LEASE).await;
    let (lock, writer) = (scene.postgres_lock().await, scene.postgres_lock().await);
    hints_go_on(Arc::new(lock), Arc::new(writer)).await;
}

#[tokio::test]
async fn hints_of_a_file_go_on_when_the_runtime_of_the_first_listener_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("elections.db");
    let lock = Sqlite::open_with(&path, Tables::make()).await.unwrap().lock();
    hints_go_on(Arc::new(lock.clone()), Arc::new(lock)).await;
}

#[tokio::test]
async fn one_task_tells_everything_of_postgres() {
    let scene = Scene::new(LEASE).await;
    one_task_tells(Arc::new(scene.postgres_lock().await)).await;
}

#[tokio::test]
async fn one_task_tells_everything_of_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("elections.db");
    one_task_tells(Arc::new(Sqlite::open_with(&path, Tables::make()).await.unwrap().lock())).await;
}
