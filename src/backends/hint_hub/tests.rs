//! Tests with a listener that receives no hints.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::guard::subscribe;
use super::*;
use crate::lock::Subscription;

struct Fake {
    hub: HintHub<()>,
    coverage: Coverage,
    listeners: AtomicUsize,
    forgotten: Mutex<Vec<String>>,
}

impl Fake {
    fn new(coverage: Coverage) -> Arc<Self> {
        let (hub, forgotten) = (HintHub::default(), Mutex::default());
        Arc::new(Self { hub, coverage, listeners: AtomicUsize::new(0), forgotten })
    }
}

/// Counts the running listeners.
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

    fn forget(&self, name: &str) {
        self.forgotten.lock().unwrap().push(name.to_owned());
    }

    async fn listen(self: Arc<Self>) {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        let _running = Running(&self.listeners);
        self.hub.announce(self.coverage);
        std::future::pending().await
    }
}

/// Subscribes, and returns the last coverage that the subscriber received.
fn watch_coverage(of: &Arc<Fake>, name: &str) -> (watch::Receiver<Coverage>, Subscription) {
    let (last, coverage) = watch::channel(Coverage::None);
    let sink = HintSink::new(move |hint| {
        if let Hint::Coverage(coverage) = hint {
            last.send_replace(coverage);
        }
    });
    (coverage, subscribe(of, name, sink))
}

async fn is(last: &mut watch::Receiver<Coverage>, coverage: Coverage) {
    let waits = last.wait_for(|last| *last == coverage);
    let within = std::time::Duration::from_secs(60);
    tokio::time::timeout(within, waits).await.expect("in time").expect("the coverage is reported");
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[tokio::test]
async fn an_election_is_forgotten_with_its_last_subscriber() {
    let fake = Fake::new(Coverage::Full);
    let [first, second] = [(); 2].map(|()| watch_coverage(&fake, "a"));
    let other = watch_coverage(&fake, "b");
    drop(first);
    assert!(fake.forgotten.lock().unwrap().is_empty());
    drop(second);
    assert_eq!(*fake.forgotten.lock().unwrap(), ["a"]);
    drop(other);
    assert_eq!(*fake.forgotten.lock().unwrap(), ["a", "b"]);
}

#[test]
fn listener_changes_runtime_and_ends_with_the_last_subscriber() {
    let (first, second) = (runtime(), runtime());
    let fake = Fake::new(Coverage::Full);
    let (mut on_first, _subscription) = first.block_on(async { watch_coverage(&fake, "a") });
    first.block_on(is(&mut on_first, Coverage::Full));
    let (mut on_second, subscription) = second.block_on(async { watch_coverage(&fake, "b") });
    second.block_on(is(&mut on_second, Coverage::Full));
    first.shutdown_background();
    second.block_on(async {
        // The listener notices the end of a runtime when its task is dropped: then all subscribers
        // receive `None`, and the new coverage afterwards.
        on_second.changed().await.expect("the coverage is reported");
        is(&mut on_second, Coverage::Full).await;
        assert_eq!(fake.listeners.load(Ordering::SeqCst), 1);
        drop(_subscription);
        drop(subscription);
        while fake.listeners.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
        let (mut again, _subscription) = watch_coverage(&fake, "b");
        is(&mut again, Coverage::Full).await;
        assert_eq!(fake.listeners.load(Ordering::SeqCst), 1);
    });
}

/// With several reporting tasks, an old `Full` could arrive after a newer `None`.
#[test]
fn only_the_listener_task_reports_coverage() {
    let runtime = runtime();
    runtime.block_on(async {
        let fake = Fake::new(Coverage::Full);
        let tasks = Arc::new(Mutex::new(Vec::new()));
        let mut subscriptions = Vec::new();
        for name in ["a", "b", "b"] {
            let (last, mut coverage_of) = watch::channel(Coverage::None);
            let tasks = Arc::clone(&tasks);
            let sink = HintSink::new(move |hint| {
                tasks.lock().unwrap().push(tokio::task::try_id());
                if let Hint::Coverage(coverage) = hint {
                    last.send_replace(coverage);
                }
            });
            subscriptions.push(subscribe(&fake, name, sink));
            is(&mut coverage_of, Coverage::Full).await;
        }
        let tasks = tasks.lock().unwrap();
        assert!(tasks.len() == 3 && tasks.iter().all(|task| *task == tasks[0]), "{tasks:?}");
        assert_ne!(tasks[0], tokio::task::try_id());
    });
}

/// The second election joined while the subscription to the first one was being created; the next
/// subscription includes it.
#[test]
fn uncovered_election_has_no_coverage_and_does_not_recheck() {
    let hub = HintHub::<()>::default();
    let sent: Arc<Mutex<Vec<(&str, Hint)>>> = Arc::default();
    for name in ["first", "second"] {
        let sent = Arc::clone(&sent);
        let sink = HintSink::new(move |hint| sent.lock().unwrap().push((name, hint)));
        hub.state().routes.entry(Arc::from(name)).or_default().sinks.add(0, sink);
    }
    let sent_to = |name| {
        let sent = std::mem::take(&mut *sent.lock().unwrap());
        let to = sent.into_iter().filter(|(to, _)| *to == name);
        to.map(|(_, hint)| hint).collect::<Vec<_>>()
    };
    hub.announce_of(Coverage::Full, Interest::One(Arc::from("first")));
    assert_eq!(sent_to("second"), [Hint::Coverage(Coverage::None)]);
    hub.announce_of(Coverage::Full, Interest::All);
    assert_eq!(sent_to("second"), [Hint::Coverage(Coverage::Full), Hint::Recheck]);
}

/// A candidate says that it wants all hints while the listener subscribes.
#[tokio::test]
async fn what_wants_all_hints_before_the_coverage_is_known_gets_them() {
    let fake = Fake::new(Coverage::None);
    let rechecks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&rechecks);
    let sink = HintSink::new(move |hint| {
        counted.fetch_add(usize::from(hint == Hint::Recheck), Ordering::SeqCst);
    });
    let subscription = subscribe(&fake, "a", sink);
    fake.hub.interest_changed().await;
    subscription.want_all(true);
    fake.hub.announce_of(Coverage::Sampled, Interest::All);
    let changed = futures_util::FutureExt::now_or_never(fake.hub.interest_changed());
    assert!(changed.is_some() && fake.hub.lacks_hints("a"));
    let before = rechecks.load(Ordering::SeqCst);
    for _ in 0..2 {
        fake.hub.set_whole(|name| name == "a");
    }
    assert_eq!(rechecks.load(Ordering::SeqCst), before + 1, "it reads what it missed");
    assert!(!fake.hub.lacks_hints("a"));
}
