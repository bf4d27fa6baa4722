//! What a checkpoint does to an election while its lock cannot be reached, or refuses.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use incumbent::clock::TokioClock;
use incumbent::lock::{
    Capabilities, CheckpointStore, CheckpointVersion, HintSink, Lock, LockError, LockErrorKind,
    Reading, Release, Revision, StoredContent, Subscription, Write,
};
use incumbent::memory::MemoryLock;
use incumbent::{
    Cause, Change, CheckpointErrorKind, Readiness, StartError, State, all_of, new_election,
};

use crate::Memory;
use crate::conformance::{self, LEASE, change, leads};

suite!(Memory, checkpoint);

/// A lock whose checkpoints fail, one request after the other, as this says.
#[derive(Debug, Clone)]
struct Failing {
    lock: MemoryLock,
    requests: Arc<AtomicU32>,
    /// The request of this number, and the one after it, …: `None` is performed.
    fails: fn(u32) -> Option<LockErrorKind>,
    /// Whether a write that fails is performed.
    performs: bool,
    /// The response to the request of this number comes after a lease.
    late: Option<u32>,
}

impl Failing {
    fn new(fails: fn(u32) -> Option<LockErrorKind>) -> Self {
        let lock = MemoryLock::with_clock(LEASE, TokioClock::new());
        Self { lock, requests: Arc::default(), fails, performs: false, late: None }
    }

    fn next(&self) -> Result<(), LockError> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        (self.fails)(number).map_or(Ok(()), |kind| Err(LockError::new(kind, "the test says so")))
    }
}

#[async_trait]
impl Lock for Failing {
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
        self.lock.write(name, write).await
    }

    async fn release(&self, name: &str, release: Release) -> Result<(), LockError> {
        self.lock.release(name, release).await
    }

    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        self.lock.subscribe(name, sink)
    }

    fn checkpoints(&self) -> Option<&dyn CheckpointStore> {
        Some(self)
    }
}

#[async_trait]
impl CheckpointStore for Failing {
    async fn load(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Option<StoredContent>, LockError> {
        self.next()?;
        self.lock.load(name, timeout).await
    }

    async fn store(
        &self,
        name: &str,
        content: Vec<u8>,
        expected: Option<&CheckpointVersion>,
        timeout: Duration,
    ) -> Result<CheckpointVersion, LockError> {
        let late = self.late == Some(self.requests.load(Ordering::Relaxed));
        let failure = self.next();
        if failure.is_ok() || self.performs {
            let stored = self.lock.store(name, content, expected, timeout).await?;
            if late {
                // At once: no timer is polled in between.
                let _ = tokio::time::advance(LEASE).now_or_never();
            }
            return failure.map(|()| stored);
        }
        failure.map(|()| CheckpointVersion::number(0))
    }
}

fn candidate(lock: &Failing, identity: &str) -> incumbent::ElectionBuilder {
    let clock = TokioClock::new();
    new_election("my_app", lock.clone()).identity(identity).clock(clock).lease(LEASE).checkpoint()
}

#[tokio::test(start_paused = true)]
async fn no_term_begins_before_its_checkpoint_is_claimed() {
    let lock = Failing::new(|number| (number < 4).then_some(LockErrorKind::Unavailable));
    let builder = candidate(&lock, "first").on_won(|leadership| async move {
        assert!(leadership.checkpoint().is_some());
        leadership.ended().await;
    });
    let (election, mut changes) = builder.start_with_changes().unwrap();
    while lock.requests.load(Ordering::Relaxed) < 4 {
        assert!(!election.is_leader() && election.token().is_none());
        assert_ne!(election.state(), State::Leader);
        assert!(election.step().is_none());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    conformance::won(&mut changes).await;
    assert!(election.is_leader());
    let leadership = leads(&election).await;
    leadership.checkpoint().unwrap().save("one").await.unwrap();
    drop(leadership);
    election.stop().await;
}

/// Others that can claim it come first; nobody leads without.
#[tokio::test(start_paused = true)]
async fn who_cannot_claim_gives_the_entry_back_and_goes_last() {
    for kind in [LockErrorKind::Unavailable, LockErrorKind::OutcomeUnknown, LockErrorKind::Denied] {
        let fails: fn(u32) -> Option<LockErrorKind> = match kind {
            LockErrorKind::Denied => |_| Some(LockErrorKind::Denied),
            LockErrorKind::Unavailable => |_| Some(LockErrorKind::Unavailable),
            _ => |_| Some(LockErrorKind::OutcomeUnknown),
        };
        let lock = Failing::new(fails);
        let (failing, mut changes) = candidate(&lock, "failing").start_with_changes().unwrap();
        let sick = |change: &Change| {
            matches!(change, Change::Readiness(Readiness::Unhealthy)).then_some(())
        };
        change(&mut changes, "it cannot claim", sick).await;
        let why = failing.watch().current().check_failure.expect("why it stands back");
        assert!(why.contains("the test says so"), "{why}");
        let works = candidate(&Failing { fails: |_| None, ..lock.clone() }, "works");
        let works = works.start().unwrap();
        let leadership = leads(&works).await;
        assert_eq!(lock.lock.holder("my_app").as_deref(), Some("works"));
        failing.stop().await;
        let mut told = Vec::new();
        while let Some(change) = changes.next().await {
            told.push(change);
        }
        let won = |change: &Change| matches!(change, Change::Won { .. } | Change::Lost { .. });
        assert!(!told.iter().any(won), "nothing was won, and nothing lost: {told:?}");
        drop(leadership);
        works.stop().await;
    }
}

/// All of them stand back, and none for whom another one goes first is left.
#[tokio::test(start_paused = true)]
async fn fleet_that_could_not_claim_leads_soon_after() {
    const BROKEN: u32 = 1_000_000;
    let kinds: [fn(u32) -> Option<LockErrorKind>; 3] = [
        |number| (number < BROKEN).then_some(LockErrorKind::Unavailable),
        |number| (number < BROKEN).then_some(LockErrorKind::OutcomeUnknown),
        |number| (number < BROKEN).then_some(LockErrorKind::Denied),
    ];
    for fails in kinds {
        let lock = Failing::new(fails);
        let start = |identity| candidate(&lock, identity).start_with_changes().unwrap();
        let mut fleet = ["a", "b", "c"].map(start);
        for (_, changes) in &mut fleet {
            let sick = |change: &Change| {
                matches!(change, Change::Readiness(Readiness::Unhealthy)).then_some(())
            };
            change(changes, "it cannot claim", sick).await;
        }
        lock.requests.store(BROKEN, Ordering::Relaxed);
        let repaired = tokio::time::Instant::now();
        while !fleet.iter().any(|(election, _)| election.is_leader()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert!(repaired.elapsed() < LEASE * 4, "nobody leads");
        }
        for (election, _) in fleet {
            election.stop().await;
        }
    }
}

/// A few attempts a lease, not hundreds.
#[tokio::test(start_paused = true)]
async fn one_that_is_refused_tries_again_about_once_a_lease() {
    let lock = Failing::new(|_| Some(LockErrorKind::Denied));
    let election = candidate(&lock, "alone").start().unwrap();
    tokio::time::sleep(LEASE * 20).await;
    let requests = lock.requests.load(Ordering::Relaxed);
    assert!((5..=25).contains(&requests), "{requests} claims within 20 leases");
    election.stop().await;
    assert_eq!(lock.lock.holder("my_app"), None);
}

#[tokio::test(start_paused = true)]
async fn one_that_claims_again_stands_as_before() {
    let lock = Failing::new(|number| (number < 1).then_some(LockErrorKind::Denied));
    let (election, mut changes) = candidate(&lock, "first").start_with_changes().unwrap();
    for expected in [Readiness::Unhealthy, Readiness::Ready] {
        let readiness = |change: &Change| match change {
            Change::Readiness(readiness) => Some(*readiness),
            _ => None,
        };
        assert_eq!(change(&mut changes, "how it stands", readiness).await, expected);
    }
    drop(leads(&election).await);
    election.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_save_whose_response_is_lost_is_confirmed_by_a_read() {
    for performs in [true, false] {
        let lost = |number| (number == 2).then_some(LockErrorKind::OutcomeUnknown);
        let lock = Failing { performs, ..Failing::new(lost) };
        let election = candidate(&lock, "first").start().unwrap();
        let leadership = leads(&election).await; // requests 0 and 1: the claim
        leadership.checkpoint().unwrap().save("one").await.unwrap();
        let requests = lock.requests.load(Ordering::Relaxed);
        assert_eq!(requests, if performs { 4 } else { 5 });
        let stored = (&lock as &dyn Lock).checkpoint("my_app", LEASE).await.unwrap().unwrap();
        assert_eq!(&*stored.data, b"one");
        drop(leadership);
        election.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_save_is_tried_until_the_deadline() {
    let lock = Failing::new(|number| (number >= 2).then_some(LockErrorKind::Unavailable));
    let election = candidate(&lock, "first").start().unwrap();
    let leadership = leads(&election).await;
    let checkpoint = leadership.checkpoint().unwrap();
    lock.lock.set_reachable(false);
    let deadline = leadership.deadline();
    let failed = checkpoint.save("one").await.unwrap_err();
    assert_eq!(failed.kind(), CheckpointErrorKind::Unavailable);
    assert!(failed.to_string().contains("the test says so"), "{failed}");
    assert_eq!(leadership.deadline(), deadline);
    assert!(!leadership.is_valid());
    assert_eq!(checkpoint.save("two").await.unwrap_err().kind(), CheckpointErrorKind::TermOver);
    assert!(matches!(leadership.ended().await.cause, Cause::Expired { .. }));
    assert_eq!(&*checkpoint.data(), b"");
}

/// They run nothing meanwhile, and the next leader may be able to record.
#[cfg(feature = "schedule")]
#[tokio::test(start_paused = true)]
async fn jobs_that_cannot_be_recorded_end_their_term() {
    use incumbent::schedule::{Job, Jobs, RunEnd, ScheduleErrorKind, once_per};
    use std::future::ready;

    let fails: fn(u32) -> _ = |number| (number >= 2).then_some(LockErrorKind::Unavailable);
    let jobs = Jobs::new([Job::new("hourly", "0 * * * *").unwrap()]).unwrap();
    let election = candidate(&Failing::new(fails), "first").start().unwrap();
    let leadership = leads(&election).await;
    let ended = tokio::time::timeout(LEASE * 4, jobs.run(&leadership, |_| ready(RunEnd::NotBegun)));
    ended.await.expect("it ends").unwrap();
    drop(leadership);

    let election = candidate(&Failing::new(fails), "first").start().unwrap();
    let leadership = leads(&election).await;
    let taken = tokio::time::timeout(LEASE * 2, once_per(&leadership, LEASE * 10));
    let refused = taken.await.expect("it gives up").unwrap_err();
    assert_eq!(refused.kind(), ScheduleErrorKind::TermOver);
    assert!(leadership.is_valid(), "the lock itself can be reached");
}

/// As where the process was suspended: the response to the claim is ready before the timer.
#[tokio::test(start_paused = true)]
async fn no_term_begins_after_its_deadline() {
    let lock = Failing { late: Some(1), ..Failing::new(|_| None) };
    let (election, mut changes) = candidate(&lock, "first").start_with_changes().unwrap();
    let token = |change: &Change| match change {
        Change::Won { token } => Some(*token),
        _ => None,
    };
    let won = change(&mut changes, "the win is told", token).await;
    assert_eq!(election.token(), Some(won), "the term that was told is the one that leads");
    assert_eq!(lock.requests.load(Ordering::Relaxed), 4, "it has claimed after the first one");
    election.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_a_claim() {
    let lock = Failing::new(|_| Some(LockErrorKind::Unavailable));
    let election = candidate(&lock, "first").start().unwrap();
    while lock.requests.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(lock.lock.holder("my_app").as_deref(), Some("first"));
    election.stop().await;
    assert_eq!(lock.lock.holder("my_app"), None);
}

#[tokio::test]
async fn locks_without_checkpoints_are_refused_at_the_start() {
    let both = all_of([MemoryLock::new(), MemoryLock::new()]);
    let without = crate::without_hints(MemoryLock::new());
    for builder in [new_election("my_app", both), new_election("my_app", without)] {
        let refused = builder.checkpoint().start().unwrap_err();
        assert!(matches!(refused, StartError::Checkpoint { .. }), "{refused}");
        assert!(refused.to_string().contains("use one lock on NATS"), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_later_term_has_claimed_is_not_claimed_again() {
    let lock = MemoryLock::with_clock(LEASE, TokioClock::new());
    let of_later =
        br#"{"incumbent_checkpoint":1,"token":99,"write":"0000000000000001","saved_unix_ms":1}"#;
    let content = [&of_later[..], b"\nkept"].concat();
    lock.store("my_app", content.clone(), None, LEASE).await.unwrap();
    let builder = new_election("my_app", lock.clone()).clock(TokioClock::new()).lease(LEASE);
    let (election, mut changes) = builder.checkpoint().start_with_changes().unwrap();
    let sick =
        |change: &Change| matches!(change, Change::Readiness(Readiness::Unhealthy)).then_some(());
    change(&mut changes, "it cannot claim", sick).await;
    let why = election.watch().current().check_failure.expect("why");
    assert!(why.contains("greater token 99") && why.contains("delete the checkpoint"), "{why}");
    assert_eq!(lock.load("my_app", LEASE).await.unwrap().unwrap().content, content);
    election.stop().await;
}

/// What the leaders of a random schedule have saved: each save is the one before it and a byte.
#[derive(Default)]
struct Ledger {
    acknowledged: Vec<u8>,
    saves: u32,
    terms: u32,
    wrong: Vec<String>,
}

impl Ledger {
    fn check(&mut self, found: &[u8]) {
        if !found.starts_with(&self.acknowledged) {
            self.wrong.push(format!("{found:?} without {:?}", self.acknowledged));
        }
    }
}

/// Lost responses, failures, outages, evictions and resignations: what was acknowledged is in all
/// that is read and saved later.
#[tokio::test(start_paused = true)]
async fn random_faults_lose_nothing_that_was_acknowledged() {
    let fails = |number: u32| match number.wrapping_mul(0x9e37_79b9) >> 28 {
        0 => Some(LockErrorKind::Unavailable),
        1..=3 => Some(LockErrorKind::OutcomeUnknown),
        _ => None,
    };
    let (mut saves, mut terms) = (0, 0);
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let lock = Failing::new(fails);
        lock.requests.store(random.u32(..), Ordering::Relaxed);
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let start = |(number, identity): (usize, &str)| {
            let of_it = Failing { performs: number > 0, ..lock.clone() };
            let ledger = Arc::clone(&ledger);
            let work = move |leadership: incumbent::Leadership| {
                let ledger = Arc::clone(&ledger);
                async move {
                    let checkpoint = leadership.checkpoint().unwrap();
                    let mut history = checkpoint.data().to_vec();
                    ledger.lock().unwrap().terms += 1;
                    ledger.lock().unwrap().check(&history);
                    // Also when the term is over: a former leader that does not notice it.
                    for _ in 0..40 {
                        history.push(fastrand::u8(..));
                        match checkpoint.save(&history).await {
                            Ok(()) => {
                                let mut ledger = ledger.lock().unwrap();
                                ledger.check(&history);
                                ledger.saves += 1;
                                ledger.acknowledged.clone_from(&history);
                            }
                            Err(_) => history = checkpoint.data().to_vec(),
                        }
                        tokio::time::sleep(Duration::from_millis(40)).await;
                    }
                }
            };
            candidate(&of_it, identity).on_won(work).start().unwrap()
        };
        let elections: Vec<_> = ["a", "b", "c"].into_iter().enumerate().map(start).collect();
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_millis(random.u64(..200))).await;
            match random.u8(..8) {
                0 => drop(lock.lock.evict("my_app")),
                1 => lock.lock.set_reachable(false),
                2 => elections.iter().for_each(incumbent::Election::resign),
                _ => lock.lock.set_reachable(true),
            }
        }
        lock.lock.set_reachable(true);
        for election in elections {
            election.stop().await;
        }
        let stored = (&lock.lock as &dyn Lock).checkpoint("my_app", LEASE).await.unwrap();
        let mut ledger = ledger.lock().unwrap();
        ledger.check(&stored.map(|stored| stored.data.to_vec()).unwrap_or_default());
        assert!(ledger.wrong.is_empty(), "seed {seed}: {:?}", ledger.wrong.first());
        (saves, terms) = (saves + ledger.saves, terms + ledger.terms);
    }
    println!("{saves} saves in {terms} terms");
    assert!(saves > 300 && terms > 60, "{saves} saves in {terms} terms");
}
