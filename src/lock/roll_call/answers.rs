//! The answers to a roll call, as they arrive.

use super::json::parse;
use super::{CandidateInfo, CandidateRequest, MAX_ANSWERS, distinct};

/// Collects the answers to a call, which anybody may send.
pub(crate) struct Answers {
    request: CandidateRequest,
    found: Vec<CandidateInfo>,
}

impl Answers {
    pub(crate) fn to(request: CandidateRequest) -> Self {
        Self { request, found: Vec::new() }
    }

    /// Takes an answer, unless it is none. Returns whether no further one is awaited.
    pub(crate) fn take(&mut self, answer: &[u8]) -> bool {
        let info = parse(answer).filter(|_| self.found.len() < MAX_ANSWERS);
        let complete = info.as_ref().is_some_and(|info| self.request.is_answered_by(info));
        self.found.extend(info);
        complete
    }

    /// The last answer of each candidate.
    pub(crate) fn into_vec(self) -> Vec<CandidateInfo> {
        distinct(self.found)
    }
}
