//! Roll calls in one process.

use std::sync::Arc;
use std::time::Duration;

use super::{MemoryLock, Shared};
use crate::lock::roll_call::distinct;
use crate::lock::{CandidateInfo, Hint, LockError, RollCall};

/// A call that waits for answers; its drop ends it.
struct PendingCall<'a> {
    lock: &'a Shared,
    reply_to: Arc<str>,
}

impl PendingCall<'_> {
    fn take_answers(&self) -> Vec<CandidateInfo> {
        self.lock.state().calls.remove(&self.reply_to).unwrap_or_default()
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        self.take_answers();
    }
}

pub(super) async fn call(
    lock: &MemoryLock,
    name: &str,
    within: Duration,
) -> Result<Vec<CandidateInfo>, LockError> {
    let reply_to: Arc<str> = format!("{:016x}", fastrand::u64(..)).into();
    let call = RollCall { reply_to: Arc::clone(&reply_to), within };
    let pending = PendingCall { lock: &lock.0, reply_to: Arc::clone(&reply_to) };
    lock.candidate_request(|state, _| {
        state.calls.insert(reply_to, Vec::new());
        state.hints.queue(name, &Hint::RollCall(call));
        Ok(())
    })?;
    tokio::time::sleep(within).await;
    Ok(distinct(pending.take_answers()))
}

pub(super) fn answer(
    lock: &MemoryLock,
    call: &RollCall,
    info: &CandidateInfo,
) -> Result<(), LockError> {
    lock.candidate_request(|state, _| {
        if let Some(answers) = state.calls.get_mut(&call.reply_to) {
            answers.push(info.clone());
        }
        Ok(())
    })
}
