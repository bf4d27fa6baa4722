//! What a guard and a step of work may rely on, where the campaign, its runtime or a callback fails
//! them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use incumbent::clock::{BootClock, Clock, sleep_until};
use incumbent::lock::{
    Capabilities, HintSink, Lock, LockError, Reading, Release, Revision, Subscription, Token, Write,
};
use incumbent::memory::MemoryLock;
use incumbent::{
    Cause, Change, Changes, CoolDown, Election, ElectionBuilder, Leadership, State, Stopped,
    new_election,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::conformance::{
    LEASE, TIMEOUT, becomes_true, change, leads, lost, resigns_to, soon, won,
};
use crate::{STEADY, WithHints, without_hints};

/// So long that nothing but a word of the campaign ends a term within a test.
const LONG: Duration = Duration::from_secs(3600);

/// A lock that calls `on_write` after each write, and counts releases.
struct Watched {
    lock: MemoryLock,
    on_write: Box<dyn Fn() + Send + Sync>,
    releases: Arc<AtomicUsize>,
    hints: bool,
}

impl Watched {
    fn new(ttl: Duration, on_write: impl Fn() + Send + Sync + 'static) -> Self {
        let (lock, on_write) = (MemoryLock::with_ttl(ttl), Box::new(on_write));
        Self { lock, on_write, releases: Arc::default(), hints: true }
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watched")
    }
}

#[async_trait]
impl Lock for Watched {
    fn capabilities(&self) -> Capabilities {
        self.lock.capabilities()
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        self.lock.check_name(name)
    }

    async fn read(&self, name: &str, timeout: Duration) -> Result<Reading, LockError> {
        self.lock.read(name, timeout).await
    }

    async fn write(&self, name: &str, write: Write) -> Result<Revision, LockError> {
        let written = self.lock.write(name, write).await;
        (self.on_write)();
        written
    }

    async fn release(&self, name: &str, release: Release) -> Result<(), LockError> {
        self.releases.fetch_add(1, Ordering::SeqCst);
        self.lock.release(name, release).await
    }

    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        if self.hints { self.lock.subscribe(name, sink) } else { Subscription::none() }
    }
}

fn campaign(lock: impl Lock, lease: Duration) -> ElectionBuilder {
    new_election("my_app", lock).identity("first").lease(lease)
}

/// A runtime besides that of the test.
struct Elsewhere(Option<Runtime>);

impl Drop for Elsewhere {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A campaign on a runtime of its own.
fn elsewhere(builder: ElectionBuilder) -> (Elsewhere, Election, Changes<Change>) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (election, changes) = {
        let _entered = runtime.enter();
        builder.start_with_changes().unwrap()
    };
    (Elsewhere(Some(runtime)), election, changes)
}

#[tokio::test]
async fn the_end_of_a_runtime_ends_the_term_for_holders_and_watchers() {
    let (runtime, election, mut changes) = elsewhere(campaign(MemoryLock::with_ttl(LONG), LONG));
    let leadership = leads(&election).await;
    drop(runtime);
    let loss = soon("the end", leadership.ended()).await;
    assert!(matches!(&loss.cause, Cause::Expired { last_error: Some(_) }), "{loss:?}");
    assert!(!leadership.is_valid() && !election.is_leader());
    let told = change(&mut changes, "the loss", |change| match change {
        Change::Lost { token, cause } => Some((*token, cause.clone())),
        _ => None,
    });
    assert_eq!(told.await, (loss.token, loss.cause.clone()));
    assert_eq!(soon("the last change", changes.next()).await, None);
    assert_eq!(soon("no further term", election.won()).await.err(), Some(Stopped));
    let work = soon("work ends", leadership.run(std::future::pending::<()>())).await;
    assert_eq!(work, Err(loss));
}

#[tokio::test]
async fn a_panic_of_a_lock_ends_the_term_for_all_holders() {
    let panics = Arc::new(AtomicBool::new(false));
    let armed = Arc::clone(&panics);
    let lock = Watched::new(LONG, move || {
        assert!(!armed.load(Ordering::SeqCst), "a lock panics, as this test wants it to");
    });
    let builder = campaign(lock, LONG).renewal(Duration::from_millis(100));
    let (_runtime, election, _) = elsewhere(builder);
    let leadership = leads(&election).await;
    panics.store(true, Ordering::SeqCst);
    soon("the end", leadership.ended()).await;
    assert!(!leadership.is_valid() && !election.is_leader());
}

#[tokio::test]
async fn a_panic_of_a_lock_as_a_term_ends_ends_its_work() {
    static PANICS: AtomicBool = AtomicBool::new(false);
    let capabilities = |lock: &MemoryLock| {
        assert!(!PANICS.load(Ordering::SeqCst), "a lock panics, as this test wants it to");
        lock.capabilities()
    };
    let lock = WithHints { capabilities, ..without_hints(MemoryLock::with_ttl(LONG)) };
    let (held, work_ends) = oneshot::channel::<()>();
    let held = std::sync::Mutex::new(Some(held));
    let builder = campaign(lock, LONG).on_won(move |leadership| {
        let held = (held.lock().unwrap().take(), leadership);
        async move {
            std::future::pending::<()>().await;
            drop(held);
        }
    });
    let (_runtime, election, _) = elsewhere(builder);
    becomes_true("it leads", async || election.is_leader()).await;
    election.resign();
    becomes_true("the term ends", async || election.state() != State::Leader).await;
    PANICS.store(true, Ordering::SeqCst);
    election.stand_aside(true);
    assert!(soon("the work ends", work_ends).await.is_err(), "it was dropped");
}

/// Blocks the campaign at its next write, until what is returned is dropped.
fn blocking(ttl: Duration) -> (Watched, Arc<AtomicBool>, mpsc::Sender<()>) {
    let (goes_on, until) = mpsc::channel::<()>();
    let until = std::sync::Mutex::new(until);
    let blocks = Arc::new(AtomicBool::new(false));
    let armed = Arc::clone(&blocks);
    let lock = Watched::new(ttl, move || {
        if armed.load(Ordering::SeqCst) {
            let _ = until.lock().unwrap().recv();
        }
    });
    (lock, blocks, goes_on)
}

#[tokio::test]
async fn an_ended_term_is_not_handed_out() {
    let (lock, blocks, goes_on) = blocking(LEASE);
    let (_runtime, election, mut changes) = elsewhere(campaign(lock, LEASE));
    soon("the win", won(&mut changes)).await;
    blocks.store(true, Ordering::SeqCst);
    while let Some(deadline) = election.deadline().filter(|at| *at > BootClock.now()) {
        sleep_until(BootClock, deadline).await; // moves on until a write blocks
    }
    assert!(!election.is_leader());
    assert!(election.won().now_or_never().is_none(), "a term that is over was handed out");
    blocks.store(false, Ordering::SeqCst);
    drop(goes_on);
    assert!(leads(&election).await.is_valid(), "a later term");
}

#[tokio::test]
async fn no_time_remains_of_a_term_that_is_over() {
    let election = campaign(MemoryLock::with_ttl(LONG), LONG).start().unwrap();
    let leadership = leads(&election).await;
    assert!(!leadership.remaining().is_zero());
    election.resign();
    leadership.ended().await;
    assert!(leadership.remaining().is_zero());
}

/// A watcher of an election that calls all of its methods as soon as it is woken.
struct AsksAtOnce {
    election: Election,
    watch: Mutex<BoxFuture<'static, ()>>,
    seen: Mutex<Vec<(State, [Option<Token>; 4])>>,
}

impl AsksAtOnce {
    fn start(election: &Election) -> Arc<Self> {
        let mut status = election.watch();
        let watch = async move { while status.next().await.is_some() {} }.boxed();
        let (election, watch) = (election.clone(), Mutex::new(watch));
        let watcher = Arc::new(Self { election, watch, seen: Mutex::default() });
        watcher.watch();
        watcher
    }

    fn watch(self: &Arc<Self>) {
        let waker = Waker::from(Arc::clone(self));
        let _ = self.watch.lock().unwrap().poll_unpin(&mut Context::from_waker(&waker));
    }
}

impl Wake for AsksAtOnce {
    fn wake(self: Arc<Self>) {
        let election = &self.election;
        let won = election.won().now_or_never().and_then(Result::ok);
        let leads = election.is_leader().then(|| election.token()).flatten();
        let step = election.step().map(|step| step.token());
        let tokens = [election.token(), won.map(|guard| guard.token()), leads, step];
        self.seen.lock().unwrap().push((election.state(), tokens));
        self.watch();
    }
}

/// Who has found by one call that a term is over gets no share of it by another.
#[tokio::test]
async fn all_calls_agree_whether_it_leads() {
    let work = |leadership: Leadership| async move { drop(leadership.ended().await) };
    let builder = campaign(MemoryLock::with_ttl(LONG), LONG).on_won(work);
    let (election, mut changes) = builder.start_with_changes().unwrap();
    let watcher = AsksAtOnce::start(&election);
    soon("the win", won(&mut changes)).await;
    let token = election.token();
    election.resign();
    soon("the loss", lost(&mut changes)).await;
    let seen = watcher.seen.lock().unwrap().clone();
    assert!(token.is_some() && seen.iter().any(|(_, tokens)| tokens[0] == token), "{seen:?}");
    for (state, tokens) in &seen {
        let token = token.filter(|_| *state == State::Leader);
        assert_eq!(*tokens, [token; 4], "{seen:?}");
    }
}

/// Where everything runs on one thread, work that was to begin may come to its turn late.
#[test]
fn work_does_not_begin_in_an_ended_term() {
    let (told, begun) = mpsc::channel();
    // Longer than a busy machine takes from the win to its notice.
    const LEASE: Duration = Duration::from_secs(10);
    let lock = Watched::new(LEASE, || {});
    let builder = campaign(lock, LEASE).on_won(move |leadership| {
        let _ = told.send(leadership.is_valid());
        async move {
            leadership.ended().await;
        }
    });
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let valid = runtime.block_on(async move {
        let (election, mut changes) = builder.start_with_changes().unwrap();
        let leads = election.clone();
        let between = tokio::spawn(async move {
            soon("the leader is known", changes.next()).await;
            assert!(leads.deadline().is_some(), "this runs between the win and the work");
            std::thread::sleep(LEASE + LEASE / 2);
        });
        let first = tokio::task::spawn_blocking(move || begun.recv_timeout(TIMEOUT));
        between.await.unwrap();
        first.await.unwrap()
    });
    assert_eq!(valid, Ok(true), "work began in a term that was over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_blocked_receiver_of_a_loss_does_not_delay_stop() {
    let (goes_on, until) = mpsc::channel::<()>();
    let until = Arc::new(std::sync::Mutex::new(until));
    let builder = campaign(MemoryLock::with_ttl(LEASE), LEASE).on_lost(move |_| {
        let until = Arc::clone(&until);
        async move {
            let _ = until.lock().unwrap().recv();
        }
    });
    let election = builder.start().unwrap();
    drop(leads(&election).await);
    soon("stop", election.stop()).await;
    drop(goes_on);
}

/// A guard of a term outlives it, and is dropped while the campaign waits to lead again.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_guard_of_an_old_term_does_not_touch_the_next() {
    let lock = Watched::new(STEADY, || {});
    let (memory, releases) = (lock.lock.clone(), Arc::clone(&lock.releases));
    let builder = campaign(lock, STEADY).cool_down(CoolDown::For(STEADY));
    let election = builder.start().unwrap();
    let old = leads(&election).await;
    assert!(memory.evict("my_app"));
    soon("the end", old.ended()).await;
    becomes_true("another entry", async || memory.holder("my_app").is_some()).await;
    let before = releases.load(Ordering::SeqCst);
    assert!(!election.is_leader(), "it waits");
    old.resign();
    drop(old);
    let next = leads(&election).await;
    assert_eq!(releases.load(Ordering::SeqCst), before, "the next term's entry was given up");
    drop(next);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_panicking_backoff_falls_back_to_the_default() {
    let lock = Watched { hints: false, ..Watched::new(LEASE, || {}) };
    let memory = lock.lock.clone();
    memory.overwrite("my_app", "a stranger");
    let polled = Arc::new(AtomicUsize::new(0));
    let polls = Arc::clone(&polled);
    let election = campaign(lock, LEASE)
        .backoff(move |_, _| {
            polls.fetch_add(1, Ordering::SeqCst);
            panic!("a back-off panics, as this test wants it to")
        })
        .start()
        .unwrap();
    let _leadership = leads(&election).await;
    assert_ne!(polled.load(Ordering::SeqCst), 0);
}

/// Gives the campaign time enough for a release that comes too early to be seen.
async fn releases_nothing(memory: &MemoryLock, election: &Election) {
    while election.is_leader() {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(memory.holder("my_app").as_deref(), Some("first"), "a step is being done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn no_successor_leads_during_a_step() {
    let lock = MemoryLock::with_ttl(LONG);
    lock.set_reachable(false);
    let (first, mut changes) = campaign(lock.clone(), LONG).start_with_changes().unwrap();
    assert!(first.step().is_none(), "it does not lead yet");
    lock.set_reachable(true);
    soon("the win", won(&mut changes)).await;
    let (step, another) = (first.step().unwrap(), first.step().unwrap());
    assert_eq!(Some(step.token()), first.token());
    drop(another);
    first.resign();
    releases_nothing(&lock, &first).await;
    assert!(first.step().is_none(), "no step begins once the term is told to end");
    drop(step);
    let second = campaign(lock.clone(), LONG).identity("second").start().unwrap();
    drop(leads(&second).await);
    second.stop().await;

    soon("the next term", won(&mut changes)).await;
    let step = first.step().unwrap();
    let stopped = first.clone();
    let stop = tokio::spawn(async move { stopped.stop().await });
    releases_nothing(&lock, &first).await;
    drop(step);
    soon("stop", stop).await.unwrap();
    assert_eq!(lock.holder("my_app"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_endless_step_delays_the_successor_until_the_deadline_only() {
    let lock = MemoryLock::with_ttl(LEASE);
    let (first, mut changes) = campaign(lock.clone(), LEASE).start_with_changes().unwrap();
    let step = loop {
        soon("the win", won(&mut changes)).await;
        // `None`: the lease has run out already, as it may on a busy machine.
        if let Some(step) = first.step() {
            break step;
        }
    };
    let second = campaign(lock, LEASE).identity("second").start().unwrap();
    let _leadership = resigns_to(&first, &second).await;
    assert!(step.deadline() <= BootClock.now());
    soon("stop", first.stop()).await;
}
