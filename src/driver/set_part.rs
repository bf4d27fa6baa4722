//! What a candidate adds to the part of its member in a set.

use std::sync::{Arc, Mutex};

use crate::lock::{MemberLoad, TakeRequest};
use crate::protocol::Refusal;
use crate::protocol::set::LoadLedger;
use crate::util::locked;

/// The share of a member, which its candidates have in common.
#[derive(Clone, Debug)]
pub(crate) struct SharedLedger(Arc<Mutex<LoadLedger>>);

impl SharedLedger {
    pub fn new(share: LoadLedger) -> Self {
        Self(Arc::new(Mutex::new(share)))
    }

    pub fn load(&self) -> MemberLoad {
        locked(&self.0).load()
    }
}

/// One candidate's part of it.
pub(super) struct SetPart {
    share: SharedLedger,
    leads: bool,
    /// Its shard is on its way to a member that asked for it.
    gives: bool,
}

impl SetPart {
    pub fn new(share: SharedLedger) -> Self {
        Self { share, leads: false, gives: false }
    }

    pub fn load(&self) -> MemberLoad {
        self.share.load()
    }

    pub fn begin(&mut self) {
        if !std::mem::replace(&mut self.leads, true) {
            locked(&self.share.0).begin();
        }
    }

    /// The term has ended, and what was on its way has left: at one moment.
    pub fn end(&mut self) {
        let mut share = locked(&self.share.0);
        if std::mem::take(&mut self.leads) {
            share.end();
        }
        if std::mem::take(&mut self.gives) {
            share.settled();
        }
    }

    /// A member that leads less asks for its shard.
    pub fn give(&mut self, request: &TakeRequest) -> Result<(), Refusal> {
        if self.gives {
            return Err(Refusal::Busy);
        }
        locked(&self.share.0).give(request)?;
        self.gives = true;
        Ok(())
    }

    /// The leader continues to lead.
    pub fn keep(&mut self) {
        if std::mem::take(&mut self.gives) {
            locked(&self.share.0).settled();
        }
    }
}

impl Drop for SetPart {
    fn drop(&mut self) {
        self.end();
    }
}
