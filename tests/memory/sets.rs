//! Sets: shards are led evenly, and move by handovers alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent::lock::{Lock, LockErrorKind};
use incumbent::memory::MemoryLock;
use incumbent::{Cause, Readiness, Set, SetBuilder, SetError, ShardChange, new_set};

use crate::conformance::{Diary, Failing, LEASE, SwitchableLock, TIMEOUT, becomes_true};
use crate::without_hints;

const SHARDS: u32 = 12;

/// For members that must not lose a shard meanwhile, as they may on a busy machine.
const LONGER: Duration = Duration::from_secs(5);

/// Which member works on which shard: a second one at once fails the test.
#[derive(Clone, Default)]
struct Work(Arc<Mutex<BTreeMap<u32, String>>>);

impl Work {
    fn begin(&self, shard: u32, member: &str) -> Working {
        let before = self.0.lock().unwrap().insert(shard, member.to_owned());
        assert_eq!(before, None, "{member} works on shard {shard} beside another member");
        Working(self.clone(), shard)
    }
}

struct Working(Work, u32);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().remove(&self.1);
    }
}

fn member(lock: &MemoryLock, work: &Work, identity: &'static str) -> SetBuilder {
    member_on(lock.clone(), work, identity)
}

fn member_on(lock: impl Lock, work: &Work, identity: &'static str) -> SetBuilder {
    let work = work.clone();
    new_set("shop", lock)
        .shards(SHARDS)
        .identity(identity)
        .settle(LEASE / 4)
        .moves_at_once(4)
        .on_won(move |shard, leadership| {
            let working = work.begin(shard, identity);
            async move {
                leadership.draining().await;
                drop(working);
            }
        })
}

/// Waits until each member leads this many shards.
async fn lead(members: &[(&Set, usize)]) {
    let settled = async {
        loop {
            if members.iter().all(|(set, wanted)| set.shards().len() == *wanted) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(TIMEOUT, settled).await.is_err() {
        let lead: Vec<_> = members.iter().map(|(set, _)| set.shards().len()).collect();
        panic!("the members lead {lead:?}");
    }
}

/// It may not write, and leads nothing: it does not ask for shards again and again.
#[tokio::test]
async fn a_refused_member_takes_its_part_once_it_may_write() {
    let lock = MemoryLock::with_ttl(LEASE);
    let work = Work::default();
    let first = member(&lock, &work, "first").start().unwrap();
    lead(&[(&first, 12)]).await;
    let refusing = SwitchableLock::new(&lock, "refusing", &Diary::default());
    refusing.fail(Failing::Writes(LockErrorKind::Denied));
    let second = member_on(refusing.clone(), &work, "second").start().unwrap();
    let becomes = async |readiness: Readiness| {
        becomes_true(readiness.as_str(), async || second.readiness() == readiness).await;
    };
    becomes(Readiness::Unhealthy).await;
    lead(&[(&first, 12), (&second, 0)]).await;
    refusing.fail(Failing::Nothing);
    lead(&[(&first, 6), (&second, 6)]).await;
    becomes(Readiness::Ready).await;
}

#[tokio::test]
async fn a_joining_member_gets_its_part_with_the_fewest_moves() {
    becomes_true("terms that do not expire", gets_its_part_with_the_fewest_moves).await;
}

/// False: a lease ran out, as it may on a busy machine.
async fn gets_its_part_with_the_fewest_moves() -> bool {
    let lock = MemoryLock::with_ttl(LONGER);
    let work = Work::default();
    let (first, mut changes) = member(&lock, &work, "first").start_with_changes().unwrap();
    lead(&[(&first, 12)]).await;
    let second = member(&lock, &work, "second").start().unwrap();
    lead(&[(&first, 6), (&second, 6)]).await;
    let third = member(&lock, &work, "third").start().unwrap();
    lead(&[(&first, 4), (&second, 4), (&third, 4)]).await;
    first.stop().await;
    let (mut won, mut moved) = (0, 0);
    while let Some(change) = changes.next().await {
        match change {
            ShardChange::Won { .. } => won += 1,
            ShardChange::Lost { cause: Cause::HandedOver { .. }, .. } => moved += 1,
            ShardChange::Lost { cause: Cause::Stopped, .. } => {}
            ShardChange::Draining { .. } => {}
            ShardChange::Lost { cause: Cause::Expired { .. }, .. } => return false,
            other => panic!("{other:?}"),
        }
        if won == 12 && moved == 8 {
            break;
        }
    }
    lead(&[(&second, 6), (&third, 6)]).await;
    second.stop().await;
    lead(&[(&third, 12)]).await;
    assert_eq!(
        third.shards().iter().map(|led| led.shard).collect::<Vec<_>>(),
        (0..12).collect::<Vec<_>>()
    );
    true
}

#[tokio::test]
async fn members_that_start_together_divide_shards_before_leading() {
    becomes_true("terms that do not expire", divide_shards_before_leading).await;
}

/// False: a lease ran out, as it may on a busy machine.
async fn divide_shards_before_leading() -> bool {
    let lock = MemoryLock::with_ttl(LONGER);
    let work = Work::default();
    let start = |identity| {
        // So long that each knows the other.
        let member = member(&lock, &work, identity).settle(LEASE * 2);
        member.start_with_changes().unwrap()
    };
    let ((first, of_first), (second, of_second)) = (start("first"), start("second"));
    lead(&[(&first, 6), (&second, 6)]).await;
    for mut changes in [of_first, of_second] {
        for _ in 0..6 {
            let change = changes.next().await;
            if matches!(change, Some(ShardChange::Lost { cause: Cause::Expired { .. }, .. })) {
                return false;
            }
            assert!(matches!(change, Some(ShardChange::Won { .. })), "{change:?}");
        }
    }
    true
}

#[tokio::test]
async fn a_member_of_twice_the_weight_leads_twice_as_much() {
    let lock = MemoryLock::with_ttl(LEASE);
    let work = Work::default();
    let light = member(&lock, &work, "light").start().unwrap();
    lead(&[(&light, 12)]).await;
    let heavy = member(&lock, &work, "heavy").weight(2).start().unwrap();
    lead(&[(&light, 4), (&heavy, 8)]).await;
}

#[tokio::test]
async fn a_cordoned_member_hands_over_its_shards_and_gets_them_back() {
    let lock = MemoryLock::with_ttl(LEASE);
    let work = Work::default();
    let first = member(&lock, &work, "first").start().unwrap();
    let second = member(&lock, &work, "second").start().unwrap();
    let third = member(&lock, &work, "third").start().unwrap();
    lead(&[(&first, 4), (&second, 4), (&third, 4)]).await;
    first.stand_aside(true);
    lead(&[(&first, 0), (&second, 6), (&third, 6)]).await;
    first.stand_aside(false);
    lead(&[(&first, 4), (&second, 4), (&third, 4)]).await;
}

#[tokio::test]
async fn a_cordoned_member_keeps_what_is_paused() {
    let lock = MemoryLock::with_ttl(LONGER);
    let work = Work::default();
    let first = member(&lock, &work, "first").start().unwrap();
    lead(&[(&first, 12)]).await;
    let paused = first.election(0).unwrap();
    // The holder answers; one that is too slow is asked again.
    let pause = async |span| !paused.pause(span).await.unwrap().is_empty();
    becomes_true("it is paused", async || pause(Duration::from_secs(3600)).await).await;
    let second = member(&lock, &work, "second").start().unwrap();
    first.stand_aside(true);
    lead(&[(&first, 1), (&second, 11)]).await;
    assert_eq!(first.shards()[0].shard, 0, "it was the first one to be given away");
    becomes_true("the pause ends", async || pause(Duration::ZERO).await).await;
    lead(&[(&first, 0), (&second, 12)]).await;
}

#[tokio::test]
async fn a_move_waits_for_the_drain() {
    becomes_true("terms that do not expire", waits_for_the_drain).await;
}

/// False: a lease ran out, as it may on a busy machine.
async fn waits_for_the_drain() -> bool {
    let lock = MemoryLock::with_ttl(LONGER);
    let finish = Arc::new(tokio::sync::Notify::new());
    let until = Arc::clone(&finish);
    let work = Work::default();
    let first = member(&lock, &work, "first").drain(Duration::from_secs(60)).on_won(
        move |_, leadership| {
            let until = Arc::clone(&until);
            async move {
                leadership.draining().await;
                until.notified().await;
            }
        },
    );
    let (first, mut changes) = first.start_with_changes().unwrap();
    lead(&[(&first, 12)]).await;
    let second = member(&lock, &work, "second").start().unwrap();
    let mut draining = BTreeSet::new();
    while draining.len() < 4 {
        match changes.next().await {
            Some(ShardChange::Draining { shard, .. }) => {
                draining.insert(shard);
            }
            Some(ShardChange::Lost { cause: Cause::Expired { .. }, .. }) => return false,
            _ => {}
        }
    }
    assert_eq!((first.shards().len(), second.shards().len()), (12, 0), "they still lead");
    finish.notify_one();
    lead(&[(&first, 11), (&second, 1)]).await;
    let moved = second.shards().first().map(|led| led.shard);
    assert!(moved.is_some_and(|shard| draining.contains(&shard)));
    true
}

/// A member whose work is on keys: key `k` belongs to shard `k % shards`.
fn by_key(lock: &MemoryLock, keys: &Work, identity: &'static str, shards: u32) -> SetBuilder {
    let keys = keys.clone();
    new_set("shop", lock.clone())
        .shards(shards)
        .identity(identity)
        .settle(LEASE / 4)
        .moves_at_once(8)
        .on_won(move |shard, leadership| {
            let own = (shard..8).step_by(shards as usize);
            let working: Vec<_> = own.map(|key| keys.begin(key, identity)).collect();
            async move {
                leadership.draining().await;
                drop(working);
            }
        })
}

#[tokio::test]
async fn the_number_of_shards_grows_without_two_leaders_of_a_key() {
    let lock = MemoryLock::with_ttl(LEASE);
    let keys = Work::default();
    let old = |identity| by_key(&lock, &keys, identity, 4).start().unwrap();
    let both = |identity| by_key(&lock, &keys, identity, 4).resizing(8).start().unwrap();
    let new = |identity| by_key(&lock, &keys, identity, 8).start().unwrap();

    let (first, second) = (old("first"), old("second"));
    lead(&[(&first, 2), (&second, 2)]).await;
    let third = both("third");
    first.stop().await;
    let fourth = both("fourth");
    second.stop().await;
    lead(&[(&third, 2), (&fourth, 2)]).await;

    let fifth = new("fifth");
    third.stop().await;
    let sixth = new("sixth");
    fourth.stop().await;
    lead(&[(&fifth, 4), (&sixth, 4)]).await;
}

#[tokio::test]
async fn a_member_acquires_nothing_beside_one_not_excluded_by_it() {
    let lock = MemoryLock::with_ttl(LEASE);
    let keys = Work::default();
    let old = by_key(&lock, &keys, "old", 4).start().unwrap();
    lead(&[(&old, 4)]).await;
    let (new, mut changes) = by_key(&lock, &keys, "new", 8).start_with_changes().unwrap();
    assert_eq!(changes.next().await, Some(ShardChange::OtherNumber { shards: 4 }));
    let change = tokio::time::timeout(LEASE * 3, changes.next()).await;
    assert!(change.is_err(), "{change:?}");
    old.stop().await;
    lead(&[(&new, 8)]).await;
}

#[tokio::test]
async fn a_set_changes_to_a_multiple_of_its_shards_only() {
    let lock = MemoryLock::with_ttl(LEASE);
    for other in [0, 3, 4, 9] {
        let set = new_set("shop", lock.clone()).shards(4).resizing(other).start();
        assert_eq!(set.err(), Some(SetError::Resizing { shards: 4, other }));
    }
}

#[tokio::test]
async fn a_member_states_how_much_it_may_lead() {
    let lock = MemoryLock::with_ttl(LEASE);
    let work = Work::default();
    let small = member(&lock, &work, "small").weight(3).max_shards(2).start().unwrap();
    lead(&[(&small, 2)]).await;
    let states_it = async || {
        let answers = small.roll_call(LEASE / 4).await.unwrap();
        let load = answers.first().and_then(|info| info.load);
        let load = load.map(|it| (it.shards, it.load, it.weight, it.max));
        load == Some((12, 2, 3, Some(2)))
    };
    becomes_true("it states its load", states_it).await;
}

#[tokio::test]
async fn a_member_acquires_shards_though_its_roll_call_hangs() {
    let lock = MemoryLock::with_ttl(LEASE);
    let only = member_on(without_hints(lock), &Work::default(), "only").start().unwrap();
    lead(&[(&only, 12)]).await;
}

#[tokio::test]
async fn a_set_needs_a_number_of_shards_and_a_weight() {
    let lock = MemoryLock::with_ttl(LEASE);
    let none = new_set("shop", lock.clone()).start();
    assert_eq!(none.err(), Some(SetError::Shards(0)));
    let weightless = new_set("shop", lock.clone()).shards(3).weight(0).start();
    assert_eq!(weightless.err(), Some(SetError::Weight(0)));
    let late = new_set("shop", lock).shards(3).settle(Duration::from_secs(7 * 86400)).start().err();
    assert!(matches!(late, Some(SetError::Election(_))), "{late:?}");
}
