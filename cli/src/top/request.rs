//! Requests of the view to the lock, and what comes of them.

use incumbent::CandidateInfo;

use crate::elections::{ElectionStatus, Holder};
use crate::error::CliError;

/// A request to the lock.
#[derive(Debug)]
pub enum Request {
    CallRoll(String),
    /// End this term.
    Evict(Box<Term>),
    /// Have the leader hand over, to this identity or to any.
    Move(Box<Term>, Option<String>),
}

/// The term that a change is about.
#[derive(Debug)]
pub struct Term {
    pub status: ElectionStatus,
    pub holder: Holder,
}

/// What came of a request.
pub enum Done {
    Roll {
        election: String,
        answers: Result<Vec<CandidateInfo>, CliError>,
    },
    /// A line to show.
    Change(Result<String, CliError>),
}
