//! Roll calls that wait for answers.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::lock::roll_call::distinct;
use crate::lock::{CandidateInfo, CandidateRequest, RollCall};

/// The calls that have not ended, by where answers go.
#[derive(Debug, Default)]
pub(super) struct Calls(HashMap<Arc<str>, Call>);

#[derive(Debug)]
struct Call {
    request: CandidateRequest,
    answers: Vec<CandidateInfo>,
    /// Notified once no further answer is awaited.
    answered: Arc<Notify>,
}

impl Calls {
    /// Begins a call. Returns where answers go.
    pub(super) fn begin(&mut self, request: CandidateRequest, answered: Arc<Notify>) -> Arc<str> {
        let reply_to: Arc<str> = format!("{:016x}", fastrand::u64(..)).into();
        self.0.insert(Arc::clone(&reply_to), Call { request, answers: Vec::new(), answered });
        reply_to
    }

    /// Takes an answer, unless the call has ended.
    pub(super) fn answer(&mut self, call: &RollCall, info: &CandidateInfo) {
        if let Some(call) = self.0.get_mut(&call.reply_to) {
            call.answers.push(info.clone());
            if call.request.is_answered_by(info) {
                call.answered.notify_one();
            }
        }
    }

    /// Ends a call, and returns the answers.
    pub(super) fn end(&mut self, reply_to: &str) -> Vec<CandidateInfo> {
        distinct(self.0.remove(reply_to).map(|call| call.answers).unwrap_or_default())
    }
}
