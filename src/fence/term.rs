//! The term whose fence it is.

use std::sync::Arc;

use super::{FenceError, check_valid, stale};
use crate::election::Leadership;
use crate::election::term::Term;
use crate::lock::Token;

/// The term of a fence, without a share in it.
pub(super) struct FencedTerm {
    pub(super) election: Arc<str>,
    pub(super) token: Token,
    /// `None`: known by its token alone.
    term: Option<Arc<Term>>,
}

impl FencedTerm {
    pub(super) fn of(leadership: &Leadership) -> Self {
        Self {
            election: leadership.election().into(),
            token: leadership.token(),
            term: Some(Arc::clone(leadership.term())),
        }
    }

    pub(super) fn with_token(election: &str, token: Token) -> Self {
        Self { election: election.into(), token, term: None }
    }

    /// Refuses a term that is over by its own clock.
    pub(super) fn check(&self) -> Result<(), FenceError> {
        match &self.term {
            Some(term) => check_valid(&self.election, term, "write nothing"),
            None => Ok(()),
        }
    }

    /// Refuses the term if the fence that was found has a greater token.
    pub(super) fn check_found(&self, found: Token) -> Result<(), FenceError> {
        match found > self.token {
            true => Err(stale(&self.election, self.token, found)),
            false => Ok(()),
        }
    }
}

partial_debug!(FencedTerm, self, election: self.election, token: self.token);
