//! Roll calls that wait for answers.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::lock::roll_call::distinct;
use crate::lock::{CallId, CandidateInfo, CandidateRequest, RollCall};

/// The calls that have not ended.
#[derive(Debug, Default)]
pub(super) struct Calls(HashMap<CallId, Call>);

#[derive(Debug)]
struct Call {
    request: CandidateRequest,
    answers: Vec<CandidateInfo>,
    /// Notified once no further answer is awaited.
    answered: Arc<Notify>,
}

impl Calls {
    pub(super) fn begin(&mut self, call: &RollCall, answered: Arc<Notify>) {
        let request = call.request.clone();
        self.0.insert(call.id, Call { request, answers: Vec::new(), answered });
    }

    /// Takes an answer, unless the call has ended.
    pub(super) fn answer(&mut self, call: &RollCall, info: &CandidateInfo) {
        if let Some(call) = self.0.get_mut(&call.id) {
            call.answers.push(info.clone());
            if call.request.is_answered_by(info) {
                call.answered.notify_one();
            }
        }
    }

    /// Ends a call, and returns the answers.
    pub(super) fn end(&mut self, id: CallId) -> Vec<CandidateInfo> {
        distinct(self.0.remove(&id).map(|call| call.answers).unwrap_or_default())
    }
}
