//! Entries as Go's candidates write them. With the candidates themselves: `vimeo`.

use incumbent::lock::{Lock, LockAdmin, Reading};
use incumbent::{Change, observe};
use tokio::time::Instant;

use crate::conformance::{becomes_true, change, frees, leads, sees};
use crate::env::{Fields, Gcs, LEASE, TIMEOUT, TestEnv, of_go, unix_ms};

/// A Go leader is believed for two terms: its work may continue until a renewal that hangs has
/// timed out.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_go_leader_is_waited_for() {
    let env = TestEnv::<Gcs>::new(LEASE).await;
    let written = Instant::now();
    env.put(of_go(7, "go", LEASE)).await;
    let ours = env.campaign("ours");
    sees(&ours, "go").await;
    drop(leads(&ours).await);
    assert!(written.elapsed() >= LEASE * 2, "{:?}", written.elapsed());
}

/// Nor is a Go leader that began a new object, with the number that was seen in the last one, taken
/// for the last one.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_repeated_number_is_another_entry() {
    becomes_true("entries in time", is_another_entry).await;
}

/// False: an entry was held up for as long as it is waited for, as may be on a busy machine.
async fn is_another_entry() -> bool {
    let env = TestEnv::<Gcs>::new(LEASE).await;
    let mut last = Instant::now();
    env.put(of_go(0, "go", LEASE)).await;
    let ours = env.campaign("ours");
    sees(&ours, "go").await;
    for turn in 0..6 {
        let before = last;
        tokio::time::sleep(LEASE / 2).await;
        env.delete().await;
        last = Instant::now();
        env.put(of_go(0, &format!("go{turn}"), LEASE)).await;
        let is_leader = ours.is_leader();
        if before.elapsed() >= LEASE * 2 {
            return false;
        }
        assert!(!is_leader);
    }
    drop(leads(&ours).await);
    assert!(last.elapsed() >= LEASE * 2, "{:?}", last.elapsed());
    true
}

/// Who advertises is found by Go's clients, and who leads there by ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn addresses_go_both_ways() {
    becomes_true("a term and its release", addresses_are_read_both_ways).await;
}

/// False: the lease ran out, or the release came late, as may be on a busy machine.
async fn addresses_are_read_both_ways() -> bool {
    let env = TestEnv::<Gcs>::new(LEASE).await;
    let ours = env.describe("ours").advertise("10.0.0.1:50051").start().unwrap();
    let leadership = leads(&ours).await;
    let entry = Fields::of(&env.object().await.unwrap());
    assert_eq!(entry.text(3).as_deref(), Some("10.0.0.1:50051"));
    let is_held = entry.expiry_ms() > unix_ms();
    assert!(is_held || !leadership.is_valid());
    if !frees(&env, &ours, leadership).await {
        return false;
    }
    let released = Fields::of(&env.object().await.unwrap());
    assert_eq!((released.text(2), released.text(3)), (None, None));
    assert!(released.number(1) > entry.number(1), "it stays, and its numbers grow");
    assert!(released.expiry_ms() <= unix_ms(), "whoever is of Go may take it at once");

    let mut of_go = of_go(released.number(1) + 1, "go", LEASE);
    for address in ["10.0.0.2:1", "[fd00::2]:1"] {
        of_go.extend([0x1a, address.len() as u8]);
        of_go.extend(address.as_bytes());
    }
    env.put(of_go).await;
    let observer = observe("my_app", env.bucket().lock()).unwrap();
    let mut changes = observer.changes();
    let leader = change(&mut changes, "the leader", |change| match change {
        Change::Leader(Some(leader)) => Some(leader.clone()),
        _ => None,
    })
    .await;
    let said = leader.advertisement.unwrap();
    assert_eq!((&*leader.identity, said.address()), ("go", "10.0.0.2:1"));
    assert_eq!(said.metadata()["addresses"], "10.0.0.2:1,[fd00::2]:1");
    true
}

/// Go's work may continue for a term after its own is over, for whatever cause.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_evicted_go_leader_is_waited_for_by_newcomers() {
    let env = TestEnv::<Gcs>::new(LEASE).await;
    env.put(of_go(0, "go", LEASE)).await;
    let lock = env.bucket().lock();
    let Reading::Found(record) = lock.read("my_app", TIMEOUT).await.unwrap() else { panic!() };
    lock.evict("my_app", record.revision, TIMEOUT).await.unwrap();
    let evicted = Instant::now();
    let ours = env.campaign("ours");
    drop(leads(&ours).await);
    assert!(evicted.elapsed() >= LEASE * 2, "{:?}", evicted.elapsed());
}
