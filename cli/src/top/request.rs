//! Requests of the view to the lock, and what comes of them.

use incumbent::CandidateInfo;

use crate::error::CliError;
use crate::history::Statistics;
use crate::view::{Asked, Transition};

/// A request to the lock, or to the recording.
#[derive(Debug)]
pub enum Request {
    Ask(String, Asked),
    /// Read what is recorded of this election.
    ReadRecording(String),
}

/// What is recorded of an election.
#[derive(Debug)]
pub struct Recorded {
    pub statistics: Statistics,
    /// The last transitions, the latest one last.
    pub transitions: Vec<Transition>,
}

/// What came of a request.
pub enum Done {
    Roll {
        election: String,
        answers: Result<Vec<CandidateInfo>, CliError>,
    },
    Recorded {
        election: String,
        answer: Result<Option<Recorded>, CliError>,
    },
    /// A line to show.
    Change(Result<String, CliError>),
}
