//! `Lock` for `ResourceLock`.

use std::time::Duration;

use async_trait::async_trait;

use super::resource::{ResourceKind, check_object_name};
use super::resource_lock::ResourceLock;
use super::watch;
use crate::lock::{
    CandidateInfo, CandidateRequest, Capabilities, CheckpointStore, HintSink, Lock, LockAdmin,
    LockError, Messages, Reading, Release, Revision, RollCall, Subscription, Write,
    check_not_empty,
};
use crate::protocol::TimingOptions;

#[async_trait]
impl<C: ResourceKind> Lock for ResourceLock<C> {
    fn capabilities(&self) -> Capabilities {
        Capabilities::of_records(self.inner.timing.lease())
    }

    fn timing(&self) -> TimingOptions {
        self.inner.timing.options()
    }

    fn identity(&self) -> Option<String> {
        self.inner.identity.clone()
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        check_not_empty(name)?;
        check_object_name(self.inner.object_of(name))?;
        self.inner.check_answers_name(name)
    }

    fn holds_many(&self) -> bool {
        self.inner.object.is_none()
    }

    async fn read(&self, name: &str, timeout: Duration) -> Result<Reading, LockError> {
        self.inner.read(name, timeout).await
    }

    async fn write(&self, name: &str, write: Write) -> Result<Revision, LockError> {
        self.inner.write(name, write).await
    }

    async fn release(&self, name: &str, release: Release) -> Result<(), LockError> {
        self.inner.release(name, release).await
    }

    async fn check_release(&self, name: &str, timeout: Duration) -> Result<(), LockError> {
        self.inner.check_release(name, timeout).await
    }

    fn messages(&self) -> Option<&dyn Messages> {
        Some(self)
    }

    fn checkpoints(&self) -> Option<&dyn CheckpointStore> {
        Some(self)
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        Some(self)
    }

    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        watch::subscribe(&self.inner, self.inner.object_of(name), sink)
    }
}

#[async_trait]
impl<C: ResourceKind> Messages for ResourceLock<C> {
    /// A Lease does.
    fn carries_calls(&self) -> bool {
        self.inner.carries_calls()
    }

    /// Requires the permissions to `get` and `patch`, and at the first call of an election to
    /// `create`.
    async fn call_roll(
        &self,
        name: &str,
        request: CandidateRequest,
        within: Duration,
    ) -> Result<Vec<CandidateInfo>, LockError> {
        self.inner.call_roll(name, request, within).await
    }

    async fn answer_roll_call(
        &self,
        name: &str,
        call: &RollCall,
        info: &CandidateInfo,
    ) -> Result<(), LockError> {
        self.inner.answer_roll_call(name, call, info).await
    }
}
