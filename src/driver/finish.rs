//! The end of a candidate.

use std::sync::Arc;

use crate::election::change::Change;
use crate::election::shared::Shared;
use crate::protocol::{Cause, State};
use crate::telemetry::Telemetry;

/// Why a term ended that its candidate did not end.
const GONE: &str = "the task of the candidate is gone: it panicked, or its runtime was shut down";

/// Announces the end of the candidate, however its task ends.
pub(super) struct Finish {
    pub shared: Arc<Shared>,
    pub telemetry: Telemetry,
}

impl Drop for Finish {
    fn drop(&mut self) {
        let shared = &self.shared;
        // Before those who wait for a term are released.
        let term = shared.status.borrow().term.clone();
        if let Some(term) = term {
            let cause = Cause::Expired { last_error: Some(GONE.into()) };
            let loss = term.announce_end(cause, term.deadline());
            self.telemetry.lost(&loss.cause);
            term.close_span(&loss.cause);
            shared.publish(Change::Lost { token: loss.token, cause: loss.cause });
        }
        shared.leads_until.set(None);
        self.telemetry.finished(); // before a successor of the same name starts
        shared.update(|status| {
            status.finished = true;
            status.term = None;
            status.leader = None;
            status.cool_down = None;
            status.state = State::Unknown;
        });
        shared.close();
        shared.inbox.close();
    }
}
