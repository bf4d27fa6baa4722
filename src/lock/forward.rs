//! Locks that pass on to another one what they are asked.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{
    CandidateInfo, CandidateRequest, Capabilities, CheckpointStore, HintSink, Lock, LockAdmin,
    LockError, LockMember, Messages, Reading, Release, Revision, RollCall, StepDownNotice,
    Subscription, Write,
};
use crate::time::timing::TimingOptions;

/// The election of one name on a lock, whatever name is asked for.
#[derive(Debug)]
struct Renamed {
    lock: Arc<dyn Lock>,
    name: String,
}

/// The locks that `lock` is made of, on which every election is the one of this name.
pub(crate) fn renamed(lock: &Arc<dyn Lock>, name: &str) -> Vec<LockMember> {
    let renamed = |lock: &Arc<dyn Lock>| Renamed { lock: Arc::clone(lock), name: name.to_owned() };
    match lock.members() {
        None => vec![LockMember::from(renamed(lock))],
        Some(members) => {
            members.iter().map(|m| LockMember::new(renamed(&m.lock), m.need)).collect()
        }
    }
}

/// `$lock`: the other one; `$as`: the name of the election there.
macro_rules! forward {
    (
        $type:ty $(where $of:ident)?, $self:ident => $lock:expr, $name:ident => $as:expr,
        holds_many: $many:expr, admin: $admin:expr, checkpoints: $checkpoints:expr, messages: $messages:expr
    ) => {
        #[async_trait]
        impl $(<$of: Lock + ?Sized>)? Lock for $type {
            fn capabilities(&$self) -> Capabilities {
                $lock.capabilities()
            }

            fn timing(&$self) -> TimingOptions {
                $lock.timing()
            }

            fn identity(&$self) -> Option<String> {
                $lock.identity()
            }

            fn members(&$self) -> Option<&[LockMember]> {
                $lock.members()
            }

            fn check_name(&$self, $name: &str) -> Result<(), String> {
                $lock.check_name($as)
            }

            fn holds_many(&$self) -> bool {
                $many
            }

            async fn read(&$self, $name: &str, timeout: Duration) -> Result<Reading, LockError> {
                $lock.read($as, timeout).await
            }

            async fn write(&$self, $name: &str, write: Write) -> Result<Revision, LockError> {
                $lock.write($as, write).await
            }

            async fn release(&$self, $name: &str, release: Release) -> Result<(), LockError> {
                $lock.release($as, release).await
            }

            async fn check_release(
                &$self,
                $name: &str,
                timeout: Duration,
            ) -> Result<(), LockError> {
                $lock.check_release($as, timeout).await
            }

            fn admin(&$self) -> Option<&dyn LockAdmin> {
                $admin
            }

            fn checkpoints(&$self) -> Option<&dyn CheckpointStore> {
                $checkpoints
            }

            fn messages(&$self) -> Option<&dyn Messages> {
                $messages
            }

            fn subscribe(&$self, $name: &str, sink: HintSink) -> Subscription {
                $lock.subscribe($as, sink)
            }
        }
    };
}

forward!(Arc<L> where L, self => (**self), name => name, holds_many: (**self).holds_many(), admin: (**self).admin(), checkpoints: (**self).checkpoints(), messages: (**self).messages());
forward!(Renamed, self => self.lock, _name => &self.name, holds_many: false, admin: None, checkpoints: None, messages: self.lock.messages().map(|_| self as &dyn Messages));

#[async_trait]
impl Messages for Renamed {
    fn carries_calls(&self) -> bool {
        self.lock.carries_calls()
    }

    async fn notify_step_down(&self, _: &str, notice: StepDownNotice) -> Result<(), LockError> {
        self.lock.notify_step_down(&self.name, notice).await
    }

    async fn call_roll(
        &self,
        _: &str,
        request: CandidateRequest,
        within: Duration,
    ) -> Result<Vec<CandidateInfo>, LockError> {
        self.lock.call_roll(&self.name, request, within).await
    }

    async fn answer_roll_call(
        &self,
        _: &str,
        call: &RollCall,
        info: &CandidateInfo,
    ) -> Result<(), LockError> {
        match self.lock.messages() {
            Some(messages) => messages.answer_roll_call(&self.name, call, info).await,
            None => Ok(()),
        }
    }
}
