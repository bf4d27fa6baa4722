//! The lock of a quorum.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::handle::Peer;
use super::quorum::{MAX_IDENTITY_LEN, MAX_NAME_LEN, Operation, Outcome};
use super::shared::Input;
use crate::backends::hint_hub::guard;
use crate::lock::{
    Capabilities, Effect, ElectionNames, HintSink, Lock, LockAdmin, LockError, LockErrorKind,
    Messages, Reading, Release, Revision, StepDownNotice, Subscription, Write, check_plain_name,
};
use crate::protocol::MIN_LEASE;

/// The lock of a quorum, for any number of elections. Cheap to clone; it keeps its member in the
/// group.
#[derive(Clone)]
pub struct QuorumLock {
    peer: Peer,
    lease: Duration,
}

impl QuorumLock {
    pub(super) fn new(peer: Peer, lease: Duration) -> Self {
        Self { peer, lease }
    }

    async fn request(
        &self,
        name: &str,
        operation: Operation,
        timeout: Duration,
    ) -> Result<Outcome, LockError> {
        let (answer, response) = oneshot::channel();
        let effect = match operation {
            Operation::Read | Operation::Names => Effect::Read,
            Operation::Write(_) | Operation::Release(_) => Effect::Write,
        };
        let input = Input::Request { name: name.into(), operation, timeout, answer };
        self.peer.shared().send(input);
        match response.await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(refusal)) => Err(LockError::new(refusal.kind, refusal.message)),
            Err(_) => Err(LockError::new(effect.lost(), "this member has left its group")),
        }
    }
}

#[async_trait]
impl Lock for QuorumLock {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            min_lease: MIN_LEASE,
            max_lease: self.lease,
            can_read: true,
            empty_is_proof: true,
            expires_entries: false,
            reads_are_durable: true,
            max_identity_len: MAX_IDENTITY_LEN,
        }
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        check_plain_name(name, MAX_NAME_LEN)
    }

    async fn read(&self, name: &str, timeout: Duration) -> Result<Reading, LockError> {
        match self.request(name, Operation::Read, timeout).await? {
            Outcome::Read(reading) => Ok(reading),
            done => Err(unexpected(&done)),
        }
    }

    async fn write(&self, name: &str, write: Write) -> Result<Revision, LockError> {
        // A candidate may request a longer `ttl` than the maximum lease while it waits for
        // others. The `ttl` has no effect here: an empty register proves that nothing was
        // written for a lease, so no earlier leadership is still valid.
        let timeout = write.timeout;
        match self.request(name, Operation::Write(write), timeout).await? {
            Outcome::Written(revision) => Ok(revision),
            done => Err(unexpected(&done)),
        }
    }

    async fn release(&self, name: &str, release: Release) -> Result<(), LockError> {
        let timeout = release.timeout;
        self.request(name, Operation::Release(release), timeout).await.map(drop)
    }

    fn messages(&self) -> Option<&dyn Messages> {
        Some(self)
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        Some(self)
    }

    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        guard::subscribe(self.peer.shared(), name, sink)
    }
}

#[async_trait]
impl Messages for QuorumLock {
    fn carries_calls(&self) -> bool {
        false
    }

    async fn notify_step_down(&self, name: &str, notice: StepDownNotice) -> Result<(), LockError> {
        self.peer.shared().send(Input::NotifyStepDown(name.into(), notice));
        Ok(())
    }
}

#[async_trait]
impl ElectionNames for QuorumLock {
    fn lock(&self) -> &dyn Lock {
        self
    }

    /// Returns the elections that this member received messages about within two leases. Waits for
    /// up to `timeout` until the member has been in its group for a lease, because every leader is
    /// announced within a lease.
    async fn election_names(&self, timeout: Duration) -> Result<Vec<String>, LockError> {
        match self.request("", Operation::Names, timeout).await? {
            Outcome::Names(names) => Ok(names),
            done => Err(unexpected(&done)),
        }
    }
}

fn unexpected(done: &Outcome) -> LockError {
    LockError::new(
        LockErrorKind::OutcomeUnknown,
        format!("the quorum returned the response of another request: {done:?}"),
    )
}

partial_debug!(QuorumLock, self, peer: self.peer);
