//! The state that the task of a member and its handles share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{broadcast, mpsc, watch};

use super::change::ShardChange;
use crate::lock::{Readiness, Token};
use crate::util::locked;

/// How many changes a slow reader may lag behind.
const CHANGES_KEPT: usize = 1024;

/// An input of the task.
pub(super) enum SetInput {
    /// The result of the check.
    Checked(Result<(), Arc<str>>),
    StandAside(bool),
    Stop,
}

/// What handles of a set see.
pub(super) struct SetShared {
    pub name: Arc<str>,
    pub identity: Arc<str>,
    /// The most shards that the member may lead.
    pub max_load: Option<u32>,
    pub inputs: mpsc::UnboundedSender<SetInput>,
    pub readiness: watch::Sender<Readiness>,
    /// Set once every candidate has stopped.
    pub finished: watch::Sender<bool>,
    led: Mutex<BTreeMap<u32, Token>>,
    changes: broadcast::Sender<ShardChange>,
}

impl SetShared {
    pub fn new(
        name: Arc<str>,
        identity: Arc<str>,
        max_load: Option<u32>,
        readiness: Readiness,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<SetInput>) {
        let (sender, inputs) = mpsc::unbounded_channel();
        let shared = Self {
            name,
            identity,
            max_load,
            inputs: sender,
            readiness: watch::Sender::new(readiness),
            finished: watch::Sender::new(false),
            led: Mutex::default(),
            changes: broadcast::Sender::new(CHANGES_KEPT),
        };
        (Arc::new(shared), inputs)
    }

    pub fn send(&self, input: SetInput) {
        let _ = self.inputs.send(input); // an error means that the member has stopped
    }

    /// A term has begun. Returns false if the member leads as much as it may: the term is given
    /// back then, and its work does not begin.
    pub fn admit(&self, shard: u32, token: Token) -> bool {
        {
            let mut led = locked(&self.led);
            let full = self.max_load.is_some_and(|max| led.len() >= max as usize);
            if full && !led.contains_key(&shard) {
                return false;
            }
            led.insert(shard, token);
        }
        self.publish(ShardChange::Won { shard, token });
        true
    }

    /// A term has ended, and its work has stopped. Returns whether it had been admitted.
    pub fn leave(&self, shard: u32, token: Token) -> bool {
        let mut led = locked(&self.led);
        let admitted = led.get(&shard) == Some(&token);
        if admitted {
            led.remove(&shard);
        }
        admitted
    }

    pub fn publish(&self, change: ShardChange) {
        let _ = self.changes.send(change); // an error means that nobody listens
    }

    pub fn subscribe(&self) -> broadcast::Receiver<ShardChange> {
        self.changes.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_works_on_as_many_shards_as_it_may_and_on_no_more() {
        let (set, _inputs) = SetShared::new("s".into(), "m".into(), Some(1), Readiness::Ready);
        assert!(set.admit(0, Token(7)));
        assert!(!set.admit(1, Token(8)), "one too many");
        assert!(!set.leave(1, Token(8)), "its work did not begin");
        assert!(!set.leave(0, Token(6)), "an earlier term");
        assert!(set.leave(0, Token(7)));
        assert!(set.admit(1, Token(9)));
    }
}
