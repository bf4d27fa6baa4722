//! Permission for one step of work that checks for leadership.

use std::sync::Arc;
use std::time::Duration;

use crate::election::term::Term;
use crate::lock::Token;
use crate::time::clock::Instant;

/// Leave to do one step of the leader's work: see [`Election::step`](crate::Election::step).
///
/// While it is held the entry is not released, so that no other candidate leads beside the step,
/// before the deadline. It is no sign that work is being done, as a
/// [`Leadership`](crate::Leadership) is: when it is dropped the term continues.
#[must_use = "a step is covered for as long as this is held"]
pub struct Step {
    term: Arc<Term>,
}

impl Step {
    /// Unless the term is over.
    pub(crate) fn of(term: &Arc<Term>) -> Option<Self> {
        term.begin_step().then(|| Self { term: Arc::clone(term) })
    }

    /// As [`Leadership::token`](crate::Leadership::token).
    pub fn token(&self) -> Token {
        self.term.token
    }

    /// As [`Leadership::deadline`](crate::Leadership::deadline): what is not done by then is not
    /// covered.
    pub fn deadline(&self) -> Instant {
        self.term.deadline()
    }

    /// How long the step is still covered if the lease is not renewed; zero when it is not.
    pub fn remaining(&self) -> Duration {
        self.term.deadline().saturating_since(self.term.now())
    }
}

partial_debug!(Step, self, token: self.token(), deadline: self.deadline());

impl Drop for Step {
    fn drop(&mut self) {
        self.term.step_done();
    }
}
