//! The checkpoint: what one term leaves to the next.

use std::sync::Arc;

use incumbent::clock::{BootClock, Clock};
use incumbent::lock::{CheckpointVersion, LockErrorKind};
use incumbent::{Checkpoint, CheckpointErrorKind, Election, Leadership, MAX_CHECKPOINT_LEN};

use super::{Process, Service, TIMEOUT, in_one_term, leads, resigns_to, soon};

async fn candidate<S: Service>(service: &S, identity: &str) -> Election {
    service.candidate(identity).await.checkpoint().start().expect("a start")
}

async fn claimed(election: &Election) -> (Leadership, Checkpoint) {
    let leadership = leads(election).await;
    let checkpoint = leadership.checkpoint().expect("it was asked for");
    (leadership, checkpoint)
}

/// Saves what the checkpoint then holds, after `before` in the same term: in a further one where
/// the lease has run out meanwhile, as it may on a busy machine.
async fn saved(
    election: &Election,
    data: &[u8],
    before: impl AsyncFn(&Leadership, &Checkpoint),
) -> (Leadership, Checkpoint) {
    soon("a save", async {
        loop {
            let (leadership, checkpoint) = claimed(election).await;
            before(&leadership, &checkpoint).await;
            match checkpoint.save(data).await {
                Ok(()) => return (leadership, checkpoint),
                Err(error) => assert!(BootClock.now() >= leadership.deadline(), "{error}"),
            }
        }
    })
    .await
}

/// Saves it at once.
async fn saved_at_once(election: &Election, data: &[u8]) -> (Leadership, Checkpoint) {
    saved(election, data, async |_: &Leadership, _: &Checkpoint| ()).await
}

pub async fn a_checkpoint_outlives_crashes_and_releases<S: Service>() {
    let service = Arc::new(S::start().await);
    let first = Process::start_with(&service, "first", |builder| builder.checkpoint()).await;
    let (_, checkpoint) = claimed(&first.election).await;
    assert_eq!(&*checkpoint.data(), b"");
    drop(saved_at_once(&first.election, b"one").await);
    let longest: Vec<u8> = (0..=u8::MAX).cycle().take(MAX_CHECKPOINT_LEN).collect();
    let (leadership, checkpoint) = saved_at_once(&first.election, &longest).await;
    assert_eq!(*checkpoint.data(), longest);
    let refused = checkpoint.save(vec![0; MAX_CHECKPOINT_LEN + 1]).await.expect_err("too long");
    assert_eq!(refused.kind(), CheckpointErrorKind::TooLong);
    drop((leadership, checkpoint));
    first.crash();

    let second = candidate(&*service, "second").await;
    let (_, checkpoint) = claimed(&second).await;
    assert_eq!(*checkpoint.data(), longest);
    // Also while the work stops.
    let resigned = async |leadership: &Leadership, _: &Checkpoint| {
        leadership.resign();
        soon("the end", leadership.ended()).await;
    };
    let (leadership, checkpoint) = saved(&second, b"two", resigned).await;
    let token = leadership.token();
    drop((leadership, checkpoint));
    second.stop().await;

    let third = candidate(&*service, "third").await;
    let lock = service.lock().await;
    let (next, data, stored) = in_one_term(&third, async |leadership: &Leadership| {
        let checkpoint = leadership.checkpoint().expect("it was asked for");
        let stored = lock.checkpoint("my_app", TIMEOUT).await.expect("a read");
        (leadership.token(), checkpoint.data(), stored.expect("a checkpoint"))
    })
    .await;
    assert_eq!(&*data, b"two");
    assert!(next > token);
    assert_eq!((stored.token, &*stored.data), (next, &b"two"[..]));
    third.stop().await;
}

pub async fn a_checkpoint_is_written_by_its_last_reader_only<S: Service>() {
    let service = S::start().await;
    let (lock, other) = (service.lock().await, service.lock().await);
    let (store, other) = (lock.checkpoints().expect("it"), other.checkpoints().expect("it"));
    assert_eq!(store.load("my_app", TIMEOUT).await.expect("a read"), None);
    let write = async |content: &[u8], expected: Option<&CheckpointVersion>| {
        store.store("my_app", content.to_vec(), expected, TIMEOUT).await
    };
    let conflicts = async |expected: Option<&CheckpointVersion>| {
        let refused = write(b"late", expected).await.expect_err("a conflict");
        assert_eq!(refused.kind(), LockErrorKind::Conflict, "{refused}");
    };
    conflicts(Some(&CheckpointVersion::number(1))).await;
    let first = write(b"a\0\xff\n", None).await.expect("a write");
    conflicts(None).await;
    let stored = other.load("my_app", TIMEOUT).await.expect("a read").expect("a checkpoint");
    assert_eq!((&stored.version, &*stored.content), (&first, &b"a\0\xff\n"[..]));
    let second = write(b"a\0\xff\r\n", Some(&first)).await.expect("a write");
    assert_ne!(first, second);
    conflicts(Some(&first)).await;
    conflicts(None).await;
    let longest = vec![b'\n'; MAX_CHECKPOINT_LEN + 200];
    let third = other.store("my_app", longest.clone(), Some(&second), TIMEOUT).await;
    let stored = store.load("my_app", TIMEOUT).await.expect("a read").expect("a checkpoint");
    assert_eq!((stored.version, stored.content), (third.expect("a write"), longest));
    conflicts(Some(&second)).await;
}

pub async fn a_former_leader_saves_nothing<S: Service>() {
    let service = Arc::new(S::start().await);
    let first = Process::start_with(&service, "first", |builder| builder.checkpoint()).await;
    let (leadership, checkpoint) = saved_at_once(&first.election, b"one").await;
    drop(leadership);
    let lock = service.lock().await;
    let store = lock.checkpoints().expect("it stores them");
    let before = store.load("my_app", TIMEOUT).await.expect("a read").expect("a checkpoint");
    let second = candidate(&*service, "second").await;
    let leadership = resigns_to(&first.election, &second).await;
    first.election.stop().await;
    let token = leadership.token();
    assert_eq!(&*leadership.checkpoint().expect("it was asked for").data(), b"one");
    drop(leadership);

    // A write that was on its way, and one by what did not notice the end of its term.
    let late = store.store("my_app", b"late".to_vec(), Some(&before.version), TIMEOUT).await;
    assert_eq!(late.expect_err("a conflict").kind(), LockErrorKind::Conflict);
    let late = checkpoint.save("late").await.expect_err("it is over");
    let is_refused = match late.kind() {
        CheckpointErrorKind::Superseded { by } => by >= token,
        kind => kind == CheckpointErrorKind::TermOver,
    };
    assert!(is_refused, "{late}");
    let (token, stored) = in_one_term(&second, async |leadership: &Leadership| {
        (leadership.token(), lock.checkpoint("my_app", TIMEOUT).await.expect("a read"))
    })
    .await;
    let stored = stored.expect("a checkpoint");
    assert_eq!((stored.token, &*stored.data), (token, &b"one"[..]));
    drop(saved_at_once(&second, b"two").await);
}

pub async fn a_checkpoint_is_no_election<S: Service>() {
    let service = S::start().await;
    let election = candidate(&service, "first").await;
    drop(saved_at_once(&election, b"one").await);
    let lock = service.operators_lock().await;
    let admin = lock.admin().expect("an operator's lock");
    let (names, records) = in_one_term(&election, async |_: &Leadership| {
        let names = admin.names(TIMEOUT).await.expect("a list");
        (names, admin.list(TIMEOUT).await.expect("a list"))
    })
    .await;
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(records.len(), 1, "{records:?}");
    election.stop().await;
}

pub async fn an_election_without_a_checkpoint_stores_none<S: Service>() {
    let service = S::start().await;
    let election = service.candidate("first").await.start().expect("a start");
    let leadership = leads(&election).await;
    assert!(leadership.checkpoint().is_none());
    let stored = service.lock().await.checkpoint("my_app", TIMEOUT).await;
    assert_eq!(stored.expect("a read"), None);
    drop(leadership);
    election.stop().await;
}
