//! Slots of jobs under crashes, on members whose clocks differ: none runs twice at most once, and
//! none is missing at least once. `SLOTS=10000 FLEETS=40` runs that many of each.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use conformance::{LEASE, TIMEOUT};
use incumbent::lock::{Lock, StoredCheckpoint};
use incumbent::memory::MemoryLock;
use incumbent::new_election;
use incumbent::schedule::{
    Job, JobRun, Jobs, RecordedRun, RunEnd, RunState, Schedule, ScheduleErrorKind, Slot,
    new_schedule, recorded_runs,
};
use tokio::runtime::Runtime;

use crate::STEADY;

/// How far the clocks of members are ahead, in seconds.
const CLOCKS: [i64; 3] = [-2, 0, 150];

/// Which slots have begun and ended, in this order.
#[derive(Default)]
struct Ledger {
    begun: Vec<Slot>,
    ended: Vec<Slot>,
}

type Shared = Arc<Mutex<Ledger>>;

/// A member with a runtime of its own, which can crash.
struct Member {
    runtime: Runtime,
    schedule: Option<Schedule>,
}

impl Member {
    fn start(lock: MemoryLock, ahead: i64, job: Job, ledger: &Shared) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let ledger = Arc::clone(ledger);
        let run = move |run: JobRun| {
            let ledger = Arc::clone(&ledger);
            async move {
                ledger.lock().expect("whole").begun.push(run.slot);
                tokio::time::sleep(Duration::from_millis(fastrand::u64(0..8))).await;
                ledger.lock().expect("whole").ended.push(run.slot);
                0
            }
        };
        let now = move || {
            let span = Duration::from_secs(ahead.unsigned_abs());
            let now = SystemTime::now();
            if ahead < 0 { now - span } else { now + span }
        };
        let election = new_election("jobs", lock).identity(format!("{ahead}"));
        let _entered = runtime.enter();
        let schedule = new_schedule(election).job(job, run).clock(now).start().expect("starts");
        Self { runtime, schedule: Some(schedule) }
    }

    fn stop(mut self) {
        if let Some(schedule) = self.schedule.take() {
            self.runtime.block_on(schedule.stop());
        }
        self.runtime.shutdown_background();
    }

    /// Ends at once: nothing is released.
    fn crash(self) {
        self.runtime.shutdown_background();
    }
}

/// Runs a fleet whose members crash and stop until it has run this many slots.
fn run_fleet(job: &Job, slots: usize) -> Ledger {
    let lock = MemoryLock::with_ttl(LEASE);
    let ledger = Shared::default();
    let start = |ahead| Member::start(lock.clone(), ahead, job.clone(), &ledger);
    let mut members = CLOCKS.map(start);
    let mut round = 0;
    while ledger.lock().expect("whole").ended.len() < slots {
        std::thread::sleep(Duration::from_millis(fastrand::u64(100..1_500)));
        let index = round % CLOCKS.len();
        let former = std::mem::replace(&mut members[index], start(CLOCKS[index]));
        match fastrand::bool() {
            true => former.crash(),
            false => former.stop(),
        }
        round += 1;
    }
    members.into_iter().for_each(Member::stop);
    let ledger = std::mem::take(&mut *ledger.lock().expect("whole"));
    check_recorded_runs(&lock, &ledger);
    ledger
}

/// The latest runs are in the checkpoint, and ended as the ledger says.
fn check_recorded_runs(lock: &MemoryLock, ledger: &Ledger) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let stored = runtime.expect("a runtime").block_on(stored(lock));
    let runs = recorded_runs(&stored).expect("records");
    // Those that have ended are left out first: older ones whose end nobody recorded stay.
    let has_no_end = |run: &RecordedRun| run.state == RunState::CutShort { took: None };
    let follows = |pair: &[RecordedRun]| match has_no_end(&pair[0]) {
        true => pair[0].number < pair[1].number,
        false => pair[0].number + 1 == pair[1].number,
    };
    assert!(runs.windows(2).all(follows), "{runs:?}");
    let last = runs.last().expect("runs");
    assert_eq!(last.slot, *ledger.begun.last().expect("one"), "{runs:?}");
    for run in &runs {
        // The end of one may not have been recorded.
        let ended = ledger.ended.contains(&run.slot);
        assert!(ended || !matches!(run.state, RunState::Ended { .. }), "{run:?}");
    }
    let ended = runs.iter().filter(|run| matches!(run.state, RunState::Ended { .. })).count();
    assert!(2 * ended > runs.len(), "{runs:?}");
}

async fn stored(lock: &MemoryLock) -> StoredCheckpoint {
    let read = (lock as &dyn Lock).checkpoint("jobs", TIMEOUT);
    read.await.expect("an answer").expect("one")
}

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |number| number.parse().expect("a number"))
}

fn run_fleets(job: impl Fn(Job) -> Job) -> Vec<Ledger> {
    let (slots, fleets) = (number("SLOTS", 120), number("FLEETS", 6));
    let every_second = Job::new("every-second", "* * * * * *").expect("a job");
    let job = job(every_second.catch_up(Duration::from_secs(3600)));
    std::thread::scope(|scope| {
        let ledgers: Vec<_> =
            (0..fleets).map(|_| scope.spawn(|| run_fleet(&job, slots / fleets))).collect();
        ledgers.into_iter().map(|fleet| fleet.join().expect("a ledger")).collect()
    })
}

#[test]
fn slots_run_at_most_once() {
    for ledger in run_fleets(|job| job) {
        let slots: BTreeSet<_> = ledger.begun.iter().collect();
        assert_eq!(slots.len(), ledger.begun.len(), "a slot ran twice");
    }
}

#[test]
fn slots_run_at_least_once() {
    for ledger in run_fleets(Job::at_least_once) {
        let slots: BTreeSet<_> = ledger.ended.iter().map(|slot| slot.unix_seconds()).collect();
        let (first, last) = (slots.first().expect("one"), slots.last().expect("one"));
        let missing: Vec<_> = (*first..*last).filter(|slot| !slots.contains(slot)).collect();
        assert_eq!(missing, [0_i64; 0], "slots never ended");
    }
}

/// What is recorded cannot be recorded any more while another job runs.
#[tokio::test]
async fn leadership_is_kept_until_all_runs_have_stopped() {
    let lock = MemoryLock::with_ttl(STEADY);
    let election = new_election("jobs", lock.clone()).checkpoint().start().expect("starts");
    let leadership = Arc::new(election.won().await.expect("a term"));
    let every_second = |name| Job::new(name, "* * * * * *").expect("a job");
    let jobs = Jobs::new([every_second("long"), every_second("short")]).expect("jobs");
    let stopped = Arc::new(AtomicBool::new(false));
    let ended = jobs.run(&leadership, |run| {
        let (leadership, stopped) = (Arc::clone(&leadership), Arc::clone(&stopped));
        let lock = lock.clone();
        async move {
            if &*run.job == "short" {
                let lock: Arc<dyn Lock> = Arc::new(lock);
                let store = lock.checkpoints().expect("checkpoints");
                let (name, timeout) = ("jobs", TIMEOUT);
                let stored = store.load(name, timeout).await.expect("an answer").expect("one");
                let other = b"something else".to_vec();
                store.store(name, other, Some(&stored.version), timeout).await.expect("stored");
                return RunEnd::Ended(0);
            }
            leadership.ended().await;
            tokio::time::sleep(Duration::from_millis(100)).await; // it stops
            stopped.store(true, Ordering::Relaxed);
            RunEnd::CutShort
        }
    });
    let ended = tokio::time::timeout(TIMEOUT, ended).await.expect("in time");
    let error = ended.expect_err("the records are lost");
    assert_eq!(error.kind(), ScheduleErrorKind::NoRecords);
    assert!(stopped.load(Ordering::Relaxed), "a run continues");
}

/// A panic before the first await point, too, ends one run and not the schedule.
#[tokio::test]
async fn job_that_panics_ends_no_other() {
    let every_second = |name| Job::new(name, "* * * * * *").expect("a job");
    let (ran, mut runs) = tokio::sync::mpsc::unbounded_channel();
    let schedule = new_schedule(new_election("jobs", MemoryLock::with_ttl(LEASE)))
        .job(every_second("panics"), |_| -> std::future::Ready<u8> {
            panic!("so the test wants it")
        })
        .job(every_second("other"), move |run| {
            let _ = ran.send(run.slot);
            std::future::ready(0)
        })
        .start()
        .expect("starts");
    for _ in 0..3 {
        conformance::soon("a run of the other job", runs.recv()).await.expect("it continues");
    }
    schedule.stop().await;
}

/// A new member that drains has nothing to wait for.
#[tokio::test]
async fn jobs_end_with_the_drain_once_no_run_continues() {
    let election = new_election("jobs", MemoryLock::new()).checkpoint();
    let election = election.drain(Duration::from_secs(600)).start().expect("starts");
    let leadership = election.won().await.expect("a term");
    let jobs = Jobs::new([Job::new("yearly", "@yearly").expect("a job")]).expect("jobs");
    let stop = election.stop();
    tokio::pin!(stop);
    let run = jobs.run(&leadership, |_| std::future::ready(RunEnd::Ended(0)));
    tokio::select! {
        loss = run => assert!(loss.expect("no error").is_none(), "it drained"),
        () = &mut stop => panic!("it waits for its leader"),
    }
    drop(leadership);
    stop.await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn no_run_begins_once_the_leader_drains() {
    let lock = MemoryLock::new();
    let election = new_election("jobs", lock.clone()).checkpoint();
    let election = election.drain(Duration::from_secs(600)).start().expect("starts");
    let leadership = Arc::new(election.won().await.expect("a term"));
    let (leads, looks) = (Arc::clone(&leadership), AtomicU32::new(0));
    let job = Job::new("every-second", "* * * * * *").expect("a job").at_least_once();
    // The drain begins when a run is found to be due.
    let jobs = Jobs::new([job]).expect("jobs").clock(move || {
        if looks.fetch_add(1, Ordering::Relaxed) == 0 {
            return SystemTime::UNIX_EPOCH;
        }
        leads.resign();
        while !leads.is_draining() {
            std::thread::yield_now();
        }
        SystemTime::UNIX_EPOCH + Duration::from_secs(10)
    });
    let run = jobs.run(&leadership, |run| -> std::future::Ready<RunEnd> {
        panic!("a run begins: {run:?}");
    });
    assert!(run.await.expect("records").is_none(), "it drained");
    assert!(recorded_runs(&stored(&lock).await).expect("records").is_empty());
    drop((jobs, leadership));
    election.stop().await;
}

/// Nobody else can lead while a leader that records nothing waits for the end of its drain.
#[tokio::test]
async fn refused_record_does_not_wait_for_the_drain() {
    let lock = MemoryLock::new();
    let election = new_election("jobs", lock.clone()).checkpoint();
    let election = election.drain(Duration::from_secs(600)).start().expect("starts");
    let leadership = election.won().await.expect("a term");
    let (name, timeout) = ("jobs", TIMEOUT);
    let store = (&lock as &dyn Lock).checkpoints().expect("checkpoints");
    let stored = store.load(name, timeout).await.expect("an answer").expect("one");
    let other = b"something else".to_vec();
    store.store(name, other, Some(&stored.version), timeout).await.expect("stored");
    let jobs = Jobs::new([Job::new("yearly", "@yearly").expect("a job")]).expect("jobs");
    let run = jobs.run(&leadership, |_| std::future::ready(RunEnd::Ended(0)));
    let ended = tokio::time::timeout(TIMEOUT, run).await.expect("in time");
    assert_eq!(ended.expect_err("nothing is recorded").kind(), ScheduleErrorKind::NoRecords);
    drop(leadership);
    election.stop().await;
}

/// Leads, and gives the lead up in the first run, which ends so. Returns that run, and what the
/// checkpoint held during it.
async fn run_one(lock: &MemoryLock, end: RunEnd) -> (JobRun, StoredCheckpoint) {
    let election = new_election("jobs", lock.clone()).checkpoint().start().expect("starts");
    let leadership = Arc::new(election.won().await.expect("a term"));
    let job = Job::new("every-second", "* * * * * *").expect("a job").at_least_once();
    let first = Arc::new(Mutex::new(None));
    let run = Jobs::new([job]).expect("jobs");
    let run = run.run(&leadership, |run| {
        let (leadership, first) = (Arc::clone(&leadership), Arc::clone(&first));
        let lock = lock.clone();
        async move {
            let during = stored(&lock).await;
            first.lock().expect("whole").get_or_insert((run, during));
            leadership.resign();
            end
        }
    });
    let loss = tokio::time::timeout(TIMEOUT, run).await.expect("in time");
    assert!(loss.expect("records").is_some());
    drop(leadership);
    election.stop().await;
    first.lock().expect("whole").take().expect("a run")
}

#[tokio::test]
async fn run_that_was_cut_short_runs_again_in_the_next_term() {
    let lock = MemoryLock::with_ttl(STEADY);
    let (first, during) = run_one(&lock, RunEnd::CutShort).await;
    assert_eq!(stored(&lock).await, during, "a save that the release waits for");
    let (second, _) = run_one(&lock, RunEnd::Ended(0)).await;
    assert_eq!((second.slot, second.late), (first.slot, true));
    let runs = recorded_runs(&stored(&lock).await).expect("records");
    let cut = RunState::CutShort { took: None };
    assert_eq!((runs[0].slot, runs[0].state), (first.slot, cut), "{runs:?}");
    let ended = matches!(runs[1].state, RunState::Ended { code: 0, .. });
    assert!(ended && runs[1].slot == first.slot && runs.len() == 2, "{runs:?}");
}

#[tokio::test]
async fn run_that_did_not_begin_is_not_recorded() {
    let lock = MemoryLock::with_ttl(STEADY);
    let (first, during) = run_one(&lock, RunEnd::NotBegun).await;
    assert_eq!(recorded_runs(&during).expect("records").len(), 1);
    let runs = recorded_runs(&stored(&lock).await).expect("records");
    let (second, _) = run_one(&lock, RunEnd::Ended(0)).await;
    assert!(runs.is_empty() && second.slot >= first.slot, "{runs:?}");
}
