//! Sets, on every lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use incumbent::{Set, SetError, ShardChange, new_set};

use super::{Service, change, soon};

const SHARDS: u32 = 4;

/// Who works on which shard: a second one at once fails the test.
type Work = Arc<Mutex<BTreeMap<u32, &'static str>>>;

/// Work on a shard, also if it is dropped at the end of its term.
struct Working(Work, u32);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.lock().unwrap().remove(&self.1);
    }
}

async fn member<S: Service>(service: &S, work: &Work, identity: &'static str) -> Set {
    let work = Arc::clone(work);
    let set = new_set("my-set", service.lock_of_many().await)
        .shards(SHARDS)
        .identity(identity)
        .settle(S::LEASE)
        .moves_at_once(SHARDS)
        .each(|_, election| election.lease(S::LEASE))
        .on_won(move |shard, leadership| {
            let work = Arc::clone(&work);
            async move {
                let before = work.lock().unwrap().insert(shard, identity);
                assert_eq!(before, None, "{identity} works on shard {shard} beside another");
                let _working = Working(work, shard);
                leadership.draining().await;
            }
        });
    set.start().expect("a member")
}

async fn leads_shards(set: &Set, wanted: usize) {
    let mut changes = set.changes();
    if set.shards().len() != wanted {
        let what = format!("{} leads {wanted} shards", set.identity());
        change(&mut changes, &what, |change| {
            assert!(!matches!(change, ShardChange::Missed(_)));
            (set.shards().len() == wanted).then_some(())
        })
        .await;
    }
}

/// A member that joins gets its part by handovers; what a member leads that stops, the others lead.
/// A lock by which members cannot know each other is refused.
pub async fn members_of_a_set_lead_its_shards_evenly<S: Service>() {
    let service = S::start().await;
    let lock = service.lock_of_many().await;
    if !lock.carries_calls() {
        let refused = new_set("my-set", lock).shards(SHARDS).start().err();
        assert_eq!(refused, Some(SetError::NoMessages));
        return;
    }
    let work = Work::default();
    let first = member(&service, &work, "first").await;
    leads_shards(&first, 4).await;
    let second = member(&service, &work, "second").await;
    leads_shards(&second, 2).await;
    leads_shards(&first, 2).await;
    soon("the first member stops", first.stop()).await;
    leads_shards(&second, 4).await;
}
