//! What an exporter of the metrics facade sees of an election.

mod ended;
mod failures;
mod seen;
mod sentinel;
mod states;

use std::time::Duration;

use incumbent::lock::{Lock, LockErrorKind, Mark, Nonce, Reading, Release, Revision};
use incumbent::lock::{Write, WriteId};
use incumbent::memory::MemoryLock;
use incumbent::{Cause, Change, Changes, new_election};
use incumbent_conformance::becomes_true;
use metrics_util::debugging::Snapshotter;

use seen::{seen, shows_a_leader, shows_a_loss, takeovers};
use states::record;

const LEASE: Duration = Duration::from_secs(1);
const OTHER: Nonce = Nonce(7);

#[tokio::test]
async fn an_election_records_what_the_docs_list() {
    becomes_true("terms that do not expire", records_what_the_docs_list).await;
}

/// False: a lease ran out, as it may on a busy machine.
async fn records_what_the_docs_list() -> bool {
    let (snapshotter, _recorder) = record();
    let lock = MemoryLock::with_ttl(LEASE);
    let election = new_election("my_app", lock.clone()).identity("c1").start().unwrap();
    let leadership = election.won().await.unwrap();
    if let Err(loss) = leadership.renewed(leadership.deadline()).await {
        assert!(matches!(loss.cause, Cause::Expired { .. }), "{loss}");
        return false;
    }
    shows_a_leader(
        &seen(&snapshotter, "my_app", "c1"),
        LEASE.as_secs_f64(),
        LEASE.as_secs_f64() / 3.0,
    );

    let mut changes = election.changes();
    lock.evict("my_app");
    drop(leadership);
    loop {
        match changes.next().await {
            Some(Change::Lost { cause: Cause::Expired { .. }, .. }) => return false,
            Some(Change::Lost { .. }) => break,
            _ => {}
        }
    }
    shows_a_loss(&seen(&snapshotter, "my_app", "c1"), "evicted");
    takeovers_show_how_the_term_before_ended(&lock, changes, &snapshotter).await
}

/// How the term of another candidate ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Release(&'static str),
    Expiry,
    Eviction,
}

/// False: a lease ran out.
async fn takeovers_show_how_the_term_before_ended(
    lock: &MemoryLock,
    mut changes: Changes<Change>,
    snapshotter: &Snapshotter,
) -> bool {
    let mut wins = async |expected: &str| {
        loop {
            match changes.next().await {
                Some(Change::Won { .. }) => break,
                Some(Change::Lost { cause: Cause::Expired { .. }, .. }) => return false,
                _ => {}
            }
        }
        assert_eq!(takeovers(&seen(snapshotter, "my_app", "c1")), [(expected.to_owned(), 1)]);
        true
    };
    // Of its own term before.
    if !wins("deleted").await {
        return false;
    }
    for (end, expected) in [
        (End::Release("crashed"), "crashed"),
        (End::Release("stopped"), "released"),
        (End::Release("crashed for a second time"), "released"),
        (End::Expiry, "expired"),
        (End::Eviction, "deleted"),
        (End::Release("crashed"), "crashed"),
    ] {
        let expected_revision = other_writes(lock).await;
        match end {
            End::Release(cause) => {
                let release = Release {
                    expected: expected_revision,
                    by: OTHER,
                    left: Duration::ZERO,
                    cause,
                    to: None,
                    pause: None,
                    timeout: LEASE,
                };
                lock.release("my_app", release).await.expect("its own entry");
            }
            End::Expiry => {}
            End::Eviction => assert!(lock.evict("my_app")),
        }
        if !wins(expected).await {
            return false;
        }
    }
    true
}

/// Another candidate writes over the entry.
async fn other_writes(lock: &MemoryLock) -> Revision {
    loop {
        let read = lock.read("my_app", LEASE).await.expect("a reading");
        let Reading::Found(record) = read else { panic!("no entry") };
        let write = WriteId { nonce: OTHER, number: 1 };
        let entry = Write {
            expected: Some(record.revision),
            identity: "other".into(),
            mark: Mark::new(write, LEASE, None),
            ttl: LEASE,
            advertisement: None,
            timeout: LEASE,
        };
        match lock.write("my_app", entry).await {
            Ok(revision) => return revision,
            Err(error) => assert_eq!(error.kind(), LockErrorKind::Conflict, "a renewal"),
        }
    }
}
