//! A hub whose listener hears nothing.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::*;

struct Fake {
    hub: HintHub<()>,
    coverage: Coverage,
    listeners: AtomicUsize,
}

impl Fake {
    fn new(coverage: Coverage) -> Arc<Self> {
        Arc::new(Self { hub: HintHub::default(), coverage, listeners: AtomicUsize::new(0) })
    }
}

/// Counts those that run.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Listen for Fake {
    type Note = ();

    fn hub(&self) -> &HintHub<()> {
        &self.hub
    }

    async fn listen(self: Arc<Self>) {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        let _running = Running(&self.listeners);
        self.hub.announce(self.coverage);
        std::future::pending().await
    }
}

/// What a subscriber was told last.
fn told(of: &Arc<Fake>, name: &str) -> (watch::Receiver<Coverage>, Subscription) {
    let (last, told) = watch::channel(Coverage::None);
    let sink = HintSink::new(move |hint| {
        if let Hint::Coverage(coverage) = hint {
            last.send_replace(coverage);
        }
    });
    (told, subscribe(of, name, sink))
}

async fn is(told: &mut watch::Receiver<Coverage>, coverage: Coverage) {
    let waits = told.wait_for(|told| *told == coverage);
    let within = std::time::Duration::from_secs(60);
    tokio::time::timeout(within, waits).await.expect("in time").expect("it is told");
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn another_runtime_takes_over_and_nobody_left_ends_the_listener() {
    let (first, second) = (runtime(), runtime());
    let fake = Fake::new(Coverage::Full);
    let (mut on_first, _subscription) = first.block_on(async { told(&fake, "a") });
    first.block_on(is(&mut on_first, Coverage::Full));
    let (mut on_second, subscription) = second.block_on(async { told(&fake, "b") });
    second.block_on(is(&mut on_second, Coverage::Full));
    first.shutdown_background();
    second.block_on(async {
        // The end of a runtime is seen when its task is dropped: then all are told so, and told anew.
        on_second.changed().await.expect("it is told");
        is(&mut on_second, Coverage::Full).await;
        assert_eq!(fake.listeners.load(Ordering::SeqCst), 1);
        drop(_subscription);
        drop(subscription);
        while fake.listeners.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
        let (mut again, _subscription) = told(&fake, "b");
        is(&mut again, Coverage::Full).await;
        assert_eq!(fake.listeners.load(Ordering::SeqCst), 1);
    });
}

/// Told by several tasks, a Full of before could come after a newer None.
#[test]
fn the_listeners_task_alone_tells_how_much_is_heard() {
    let runtime = runtime();
    runtime.block_on(async {
        let fake = Fake::new(Coverage::Full);
        let tasks = Arc::new(Mutex::new(Vec::new()));
        let mut subscriptions = Vec::new();
        for name in ["a", "b", "b"] {
            let (last, mut told) = watch::channel(Coverage::None);
            let tasks = Arc::clone(&tasks);
            let sink = HintSink::new(move |hint| {
                tasks.lock().unwrap().push(tokio::task::try_id());
                if let Hint::Coverage(coverage) = hint {
                    last.send_replace(coverage);
                }
            });
            subscriptions.push(subscribe(&fake, name, sink));
            is(&mut told, Coverage::Full).await;
        }
        let tasks = tasks.lock().unwrap();
        assert!(tasks.len() == 3 && tasks.iter().all(|task| *task == tasks[0]), "{tasks:?}");
        assert_ne!(tasks[0], tokio::task::try_id());
    });
}

/// It joined while the subscription to the first one was being made, and is in the next.
#[test]
fn an_election_that_is_not_covered_hears_of_no_coverage() {
    let hub = HintHub::<()>::default();
    let sent: Arc<Mutex<Vec<(&str, Coverage)>>> = Arc::default();
    for name in ["first", "second"] {
        let sent = Arc::clone(&sent);
        let sink = HintSink::new(move |hint| {
            if let Hint::Coverage(coverage) = hint {
                sent.lock().unwrap().push((name, coverage));
            }
        });
        hub.state().routes.entry(Arc::from(name)).or_default().sinks.add(0, sink);
    }
    let sent_to = |name| {
        let sent = std::mem::take(&mut *sent.lock().unwrap());
        let to = sent.into_iter().filter(|(to, _)| *to == name);
        to.map(|(_, coverage)| coverage).collect::<Vec<_>>()
    };
    hub.announce_of(Coverage::Full, Interest::One(Arc::from("first")));
    assert_eq!(sent_to("second"), [Coverage::None]);
    hub.announce_of(Coverage::Full, Interest::All);
    assert_eq!(sent_to("second"), [Coverage::Full]);
}
