use std::fmt;
use std::sync::mpsc::{Receiver, channel};

use tokio::time::{advance, sleep};

use super::*;
use crate::lock::{ElectionUpdate, Mark, Nonce, Record, Token, WriteId};
use crate::time::clock::TokioClock;

const TTL: Duration = Duration::from_secs(10);
const MILLISECOND: Duration = Duration::from_millis(1);
const ELECTION: &str = "election";

/// A lock on tokio's clock, which the tests pause.
fn lock() -> MemoryLock {
    MemoryLock::with_clock(TTL, TokioClock::new())
}

fn mark(number: u64) -> Mark {
    Mark::new(WriteId { nonce: Nonce(7), number }, TTL, None)
}

fn write(expected: Option<u64>, life: Duration) -> Write {
    let expected = expected.map(Revision);
    Write {
        expected,
        identity: "me".into(),
        mark: mark(1),
        ttl: life,
        advertisement: None,
        timeout: TTL,
    }
}

fn release(expected: u64, left: Duration) -> Release {
    let expected = Revision(expected);
    Release { expected, by: Nonce(7), left, cause: "stopped", to: None, pause: None, timeout: TTL }
}

fn held(revision: u64, life: Duration) -> Record {
    let entry =
        Entry { identity: "me".into(), mark: Some(mark(1)), ttl: life, advertisement: None };
    Record { revision: Revision(revision), content: Content::Held(entry) }
}

fn vacant(revision: u64, tombstone: Tombstone) -> Record {
    Record { revision: Revision(revision), content: Content::Vacant(tombstone) }
}

async fn read(lock: &MemoryLock) -> Reading {
    lock.read(ELECTION, TTL).await.unwrap()
}

async fn create(lock: &MemoryLock, life: Duration) -> u64 {
    lock.write(ELECTION, write(None, life)).await.unwrap().0
}

fn subscribe(lock: &MemoryLock) -> (Subscription, Receiver<Hint>) {
    let (sender, hints) = channel();
    let sink = HintSink::new(move |hint| drop(sender.send(hint)));
    let subscription = lock.subscribe(ELECTION, sink);
    assert_eq!(hints.try_recv(), Ok(Hint::Coverage(Coverage::Full)));
    (subscription, hints)
}

/// Returns the writes among the received hints, with what each replaced.
fn stored(hints: &Receiver<Hint>) -> Vec<(Record, Option<u64>)> {
    let stored = hints.try_iter().filter_map(|hint| match hint {
        Hint::Stored { record, previous, .. } => Some((record, previous.unwrap().map(|r| r.0))),
        _ => None,
    });
    stored.collect()
}

fn kind<T: fmt::Debug>(result: Result<T, LockError>) -> LockErrorKind {
    result.unwrap_err().kind()
}

#[tokio::test(start_paused = true)]
async fn a_write_must_expect_the_last_revision() {
    let lock = lock();
    assert_eq!(create(&lock, TTL).await, 1);
    let again = lock.write(ELECTION, write(None, TTL)).await;
    assert_eq!(again.as_ref().unwrap_err().to_string(), "expected nothing, found revision 1");
    assert_eq!(kind(again), LockErrorKind::Conflict);

    assert_eq!(lock.write(ELECTION, write(Some(1), TTL)).await.unwrap(), Revision(2));
    assert_eq!(kind(lock.write(ELECTION, write(Some(1), TTL)).await), LockErrorKind::Conflict);
    assert_eq!(kind(lock.release(ELECTION, release(1, TTL)).await), LockErrorKind::Conflict);
    assert_eq!(read(&lock).await, Reading::Found(held(2, TTL)));
}

#[tokio::test(start_paused = true)]
async fn revisions_grow_over_all_elections() {
    let lock = lock();
    assert_eq!(lock.write("a", write(None, TTL)).await.unwrap(), Revision(1));
    assert_eq!(lock.write("b", write(None, TTL)).await.unwrap(), Revision(2));
    assert_eq!(lock.clone().overwrite("c", "stranger"), Revision(3));
    assert!(lock.evict("a"));
    assert_eq!(lock.overwrite("a", "stranger"), Revision(5));
}

#[tokio::test(start_paused = true)]
async fn entry_expires_after_its_ttl() {
    let lock = lock();
    let life = Duration::from_secs(3);
    create(&lock, life).await;
    advance(life - MILLISECOND).await;
    assert_eq!(read(&lock).await, Reading::Found(held(1, life)));
    advance(MILLISECOND).await;
    assert_eq!(read(&lock).await, Reading::Found(vacant(2, Tombstone::Expired)));
    assert_eq!(kind(lock.write(ELECTION, write(Some(1), life)).await), LockErrorKind::Conflict);
}

#[tokio::test(start_paused = true)]
async fn renewal_restarts_the_ttl() {
    let lock = lock();
    create(&lock, TTL).await;
    advance(TTL - MILLISECOND).await;
    lock.write(ELECTION, write(Some(1), TTL)).await.unwrap();
    advance(TTL - MILLISECOND).await;
    assert_eq!(read(&lock).await, Reading::Found(held(2, TTL)));
}

#[tokio::test(start_paused = true)]
async fn emptiness_proves_no_write_within_the_maximum_lease() {
    let lock = lock();
    assert_eq!(read(&lock).await, Reading::Empty { proof: true });
    create(&lock, MILLISECOND).await;
    advance(TTL).await;
    assert_eq!(read(&lock).await, Reading::Found(vacant(2, Tombstone::Expired)));
    advance(MILLISECOND).await;
    assert_eq!(read(&lock).await, Reading::Empty { proof: true });
}

#[tokio::test(start_paused = true)]
async fn release_leaves_a_tombstone_for_the_maximum_lease() {
    let lock = lock();
    create(&lock, TTL).await;
    let left = Duration::from_secs(2);
    lock.release(ELECTION, release(1, left)).await.unwrap();
    let tombstone = vacant(
        2,
        Tombstone::Released {
            by: Nonce(7),
            left,
            cause: Some("stopped".into()),
            to: None,
            pause: None,
        },
    );
    assert_eq!(lock.holder(ELECTION), None);
    advance(TTL - MILLISECOND).await;
    assert_eq!(read(&lock).await, Reading::Found(tombstone));

    // A create names the tombstone that it replaces.
    assert_eq!(kind(lock.write(ELECTION, write(None, TTL)).await), LockErrorKind::Conflict);
    assert_eq!(lock.write(ELECTION, write(Some(2), TTL)).await.unwrap(), Revision(3));
}

#[tokio::test(start_paused = true)]
async fn tombstone_outlives_the_remaining_wait_and_the_replaced_entry() {
    let lock = lock();
    create(&lock, TTL).await;
    lock.release(ELECTION, release(1, 3 * TTL)).await.unwrap();
    advance(3 * TTL - MILLISECOND).await;
    assert!(matches!(read(&lock).await, Reading::Found(_)));
    advance(MILLISECOND).await;
    assert_eq!(read(&lock).await, Reading::Empty { proof: true });

    create(&lock, 2 * TTL).await;
    assert!(lock.evict(ELECTION));
    advance(2 * TTL - MILLISECOND).await;
    assert_eq!(read(&lock).await, Reading::Found(vacant(4, Tombstone::Deleted)));
    advance(MILLISECOND).await;
    assert_eq!(read(&lock).await, Reading::Empty { proof: true });
}

#[tokio::test(start_paused = true)]
async fn every_write_is_hinted_in_order_with_its_previous_revision() {
    let lock = lock();
    let (_subscription, hints) = subscribe(&lock);
    create(&lock, TTL).await;
    lock.write(ELECTION, write(Some(1), TTL)).await.unwrap();
    lock.write("another", write(None, TTL)).await.unwrap();
    lock.release(ELECTION, release(2, Duration::ZERO)).await.unwrap();
    let released = Tombstone::Released {
        by: Nonce(7),
        left: Duration::ZERO,
        cause: Some("stopped".into()),
        to: None,
        pause: None,
    };
    assert_eq!(
        stored(&hints),
        [(held(1, TTL), None), (held(2, TTL), Some(1)), (vacant(4, released), Some(2))]
    );
}

#[tokio::test(start_paused = true)]
async fn expiry_is_hinted_when_due_without_requests() {
    let clock = TokioClock::new();
    let lock = MemoryLock::with_clock(TTL, clock);
    lock.write("another", write(None, 5 * TTL)).await.unwrap();
    let (sender, mut hints) = tokio::sync::mpsc::unbounded_channel();
    let sink = HintSink::new(move |hint| drop(sender.send((clock.now(), hint))));
    let _subscription = lock.subscribe(ELECTION, sink);

    // Sooner than the expiry that the task already waits for, and then delayed by a renewal.
    sleep(MILLISECOND).await;
    create(&lock, Duration::from_secs(2)).await;
    sleep(Duration::from_secs(1)).await;
    lock.write(ELECTION, write(Some(2), Duration::from_secs(2))).await.unwrap();
    let due = clock.now() + Duration::from_secs(2);
    let (at, expiry) = loop {
        let (at, hint) = hints.recv().await.unwrap();
        if matches!(&hint, Hint::Stored { record, .. } if record.revision == Revision(4)) {
            break (at, hint);
        }
    };
    let Hint::Stored { record, previous, .. } = expiry else { unreachable!() };
    assert_eq!((record, previous), (vacant(4, Tombstone::Expired), Some(Some(Revision(3)))));
    assert!(at.saturating_since(due) <= MILLISECOND, "{at:?} is late for {due:?}");
}

#[tokio::test(start_paused = true)]
async fn step_down_notice_reaches_subscribers_of_its_election() {
    let lock = lock();
    let (_subscription, hints) = subscribe(&lock);
    let notice = StepDownNotice {
        by: Nonce(7),
        token: Token(1),
        revision: Revision(2),
        left: Duration::ZERO,
    };
    lock.notify_step_down("another", notice).await.unwrap();
    lock.notify_step_down(ELECTION, notice).await.unwrap();
    assert_eq!(hints.try_iter().collect::<Vec<_>>(), [Hint::SteppedDown(notice)]);
}

#[tokio::test(start_paused = true)]
async fn hints_end_with_their_subscription() {
    let lock = lock();
    let (subscription, hints) = subscribe(&lock);
    let (_other, others) = subscribe(&lock);
    drop(subscription);
    create(&lock, TTL).await;
    assert!(hints.recv().is_err(), "the sink is dropped");
    assert_eq!(stored(&others).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn sink_may_use_the_lock_and_receives_its_hints_afterwards() {
    let lock = lock();
    let (sender, hints) = channel();
    let sink = HintSink::new({
        let lock = lock.clone();
        move |hint| {
            if matches!(&hint, Hint::Stored { record, .. } if record.revision == Revision(1)) {
                assert!(lock.evict(ELECTION));
            }
            let _ = sender.send(hint);
        }
    });
    let _subscription = lock.subscribe(ELECTION, sink);
    create(&lock, TTL).await;
    let writes: Vec<_> = stored(&hints).into_iter().map(|(record, _)| record).collect();
    assert_eq!(writes, [held(1, TTL), vacant(2, Tombstone::Deleted)]);
}

#[tokio::test(start_paused = true)]
async fn panicking_sink_does_not_stop_other_sinks() {
    let lock = lock();
    let bad = lock.subscribe(
        ELECTION,
        HintSink::new(|hint| assert!(!matches!(hint, Hint::Stored { .. }), "a sink that fails")),
    );
    let (_subscription, hints) = subscribe(&lock);
    let writer = lock.clone();
    assert!(tokio::spawn(async move { create(&writer, TTL).await }).await.is_err());
    drop(bad);
    lock.overwrite(ELECTION, "stranger");
    assert_eq!(stored(&hints).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn outage_is_reported_and_requests_fail() {
    let lock = lock();
    let (_subscription, hints) = subscribe(&lock);
    create(&lock, MILLISECOND).await;
    lock.set_reachable(false);
    lock.set_reachable(false);
    assert_eq!(kind(lock.read(ELECTION, TTL).await), LockErrorKind::Unavailable);
    assert_eq!(kind(lock.write(ELECTION, write(Some(1), TTL)).await), LockErrorKind::Unavailable);
    assert_eq!(kind(lock.release(ELECTION, release(1, TTL)).await), LockErrorKind::Unavailable);
    assert_eq!(lock.holder(ELECTION).as_deref(), Some("me"));

    sleep(2 * MILLISECOND).await;
    lock.overwrite("another", "stranger");
    lock.set_reachable(true);
    assert_eq!(read(&lock).await, Reading::Found(vacant(2, Tombstone::Expired)));
    let received: Vec<_> = hints.try_iter().skip(1).collect(); // the first is the create
    assert_eq!(
        received,
        [Hint::Coverage(Coverage::None), Hint::Coverage(Coverage::Full), Hint::Recheck]
    );
}

#[tokio::test(start_paused = true)]
async fn an_administrator_evicts_and_a_stranger_overwrites() {
    let lock = lock();
    create(&lock, TTL).await;
    lock.overwrite(ELECTION, "stranger");
    assert_eq!(lock.holder(ELECTION).as_deref(), Some("stranger"));
    let entry = Entry { identity: "stranger".into(), mark: None, ttl: TTL, advertisement: None };
    let record = Record { revision: Revision(2), content: Content::Held(entry) };
    assert_eq!(read(&lock).await, Reading::Found(record));
    assert!(lock.evict(ELECTION));
    assert_eq!(read(&lock).await, Reading::Found(vacant(3, Tombstone::Deleted)));
    assert!(!lock.evict(ELECTION));
    assert_eq!(read(&lock).await, Reading::Found(vacant(4, Tombstone::Deleted)));
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_the_last_handle() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let lock = lock();
    assert_eq!(tasks(), 0);
    let (subscription, _hints) = subscribe(&lock);
    create(&lock, TTL).await;
    assert_eq!(tasks(), 1);
    sleep(MILLISECOND).await;
    drop(lock);
    sleep(MILLISECOND).await;
    assert_eq!(tasks(), 1, "the subscription is a handle too");
    drop(subscription);
    sleep(MILLISECOND).await;
    assert_eq!(tasks(), 0);
}

#[test]
fn the_task_moves_on_when_its_runtime_ends() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
    };
    let lock = MemoryLock::with_ttl(TTL);
    runtime().block_on(create(&lock, TTL));
    let next = runtime();
    next.block_on(async { read(&lock).await });
    assert_eq!(next.handle().metrics().num_alive_tasks(), 1);
}

#[test]
fn lock_works_without_a_runtime() {
    let lock = MemoryLock::with_ttl(TTL);
    lock.overwrite(ELECTION, "stranger");
    assert_eq!(lock.clone().holder(ELECTION).as_deref(), Some("stranger"));
    assert_eq!(MemoryLock::new().capabilities().max_lease, Duration::from_secs(60));
    assert!(lock.check_name("").is_err());
    assert!(lock.check_name("any name. at all").is_ok());
}

/// It cannot know the names of those that come later.
#[tokio::test(start_paused = true)]
async fn a_watch_on_all_elections_has_them_read_again() {
    let lock = lock();
    let mut watch = LockAdmin::watch(&lock, &[], TTL).await.unwrap();
    for _ in 0..2 {
        let update = tokio::time::timeout(TTL, watch.next()).await;
        assert!(matches!(update, Ok(Some(Ok(ElectionUpdate::Recheck)))), "{update:?}");
    }
}
