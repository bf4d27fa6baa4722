//! The task that serves all subscribers of a lock: its runtime, and the order of hints.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent::lock::{
    Content, Coverage, Hint, HintSink, Lock, Nonce, Release, Subscription, Tombstone,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use super::{TIMEOUT, first_write, soon};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

struct Hints {
    hints: mpsc::UnboundedReceiver<Hint>,
    _subscription: Subscription,
}

impl Hints {
    fn of(lock: &dyn Lock, name: &str) -> Self {
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

/// A subscriber of one election on a runtime that ends, and one of another on this one. `writer`:
/// the same elections, by connections of its own.
pub async fn hints_continue(lock: Arc<dyn Lock>, writer: Arc<dyn Lock>, names: [&str; 2]) {
    let first = runtime();
    let mut on_first = {
        let _entered = first.enter();
        Hints::of(&*lock, names[0])
    };
    on_first.coverage(Coverage::Full).await;
    let mut hints = Hints::of(&*lock, names[1]);
    hints.coverage(Coverage::Full).await;
    first.shutdown_background();
    hints.coverage(Coverage::None).await;
    hints.coverage(Coverage::Full).await;
    let expected =
        writer.write(names[1], first_write(lock.capabilities().max_lease, 7, None, None));
    let expected = expected.await.expect("a write");
    hints
        .until(
            "the write",
            |hint| matches!(hint, Hint::Stored { record, .. } if record.revision == expected),
        )
        .await;
    let left = Duration::ZERO;
    let release = Release {
        expected,
        by: Nonce(7),
        left,
        cause: "stopped",
        to: None,
        pause: None,
        timeout: TIMEOUT,
    };
    writer.release(names[1], release).await.expect("a release");
    let released = |hint: &Hint| {
        let Hint::Stored { record, .. } = hint else { return false };
        matches!(record.content, Content::Vacant(Tombstone::Released { by: Nonce(7), .. }))
    };
    hints.until("the release", released).await;
    // Later subscribers are served as well, and the end of the first one affects none.
    drop(on_first);
    Hints::of(&*lock, names[0]).coverage(Coverage::Full).await;
    drop(hints);
    Hints::of(&*lock, names[1]).coverage(Coverage::Full).await;
}

/// Several tasks could deliver a hint before the one that it replaces.
pub async fn one_task_delivers(lock: Arc<dyn Lock>, names: &[&str]) {
    let tasks = Arc::new(Mutex::new(Vec::new()));
    let mut subscriptions = Vec::new();
    for name in names {
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
