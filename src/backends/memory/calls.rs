//! Roll calls that wait for answers.

use std::collections::HashMap;
use std::sync::Arc;

use crate::lock::roll_call::distinct;
use crate::lock::{CandidateInfo, RollCall};

/// The answers to each call, by where they go.
#[derive(Debug, Default)]
pub(super) struct Calls(HashMap<Arc<str>, Vec<CandidateInfo>>);

impl Calls {
    /// Begins a call. Returns where answers go.
    pub(super) fn begin(&mut self) -> Arc<str> {
        let reply_to: Arc<str> = format!("{:016x}", fastrand::u64(..)).into();
        self.0.insert(Arc::clone(&reply_to), Vec::new());
        reply_to
    }

    /// Takes an answer, unless the call has ended.
    pub(super) fn answer(&mut self, call: &RollCall, info: &CandidateInfo) {
        if let Some(answers) = self.0.get_mut(&call.reply_to) {
            answers.push(info.clone());
        }
    }

    /// Ends a call, and returns the answers.
    pub(super) fn end(&mut self, reply_to: &str) -> Vec<CandidateInfo> {
        distinct(self.0.remove(reply_to).unwrap_or_default())
    }
}
