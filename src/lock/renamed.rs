//! An election under another name.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{
    CandidateInfo, CandidateRequest, Capabilities, HintSink, Lock, LockError, LockMember, Reading,
    Release, Revision, RollCall, StepDownNotice, Subscription, Write,
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

#[async_trait]
impl Lock for Renamed {
    fn capabilities(&self) -> Capabilities {
        self.lock.capabilities()
    }

    fn timing(&self) -> TimingOptions {
        self.lock.timing()
    }

    fn identity(&self) -> Option<String> {
        self.lock.identity()
    }

    fn check_name(&self, _: &str) -> Result<(), String> {
        self.lock.check_name(&self.name)
    }

    fn holds_many(&self) -> bool {
        false
    }

    fn carries_messages(&self) -> bool {
        self.lock.carries_messages()
    }

    async fn read(&self, _: &str, timeout: Duration) -> Result<Reading, LockError> {
        self.lock.read(&self.name, timeout).await
    }

    async fn write(&self, _: &str, write: Write) -> Result<Revision, LockError> {
        self.lock.write(&self.name, write).await
    }

    async fn release(&self, _: &str, release: Release) -> Result<(), LockError> {
        self.lock.release(&self.name, release).await
    }

    async fn check_release(&self, _: &str, timeout: Duration) -> Result<(), LockError> {
        self.lock.check_release(&self.name, timeout).await
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
        self.lock.answer_roll_call(&self.name, call, info).await
    }

    fn subscribe(&self, _: &str, sink: HintSink) -> Subscription {
        self.lock.subscribe(&self.name, sink)
    }
}
