//! What is recorded of the election whose details are shown.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::CliError;
use crate::top::request::{Recorded, Request};
use crate::view::Moment;

/// How old what is shown may be.
const MAX_AGE: Duration = Duration::from_secs(5);

/// What was read of a recording, and of which election.
#[derive(Debug, Default)]
pub struct RecordedState {
    is_open: bool,
    is_reading: bool,
    last: Option<(String, Instant, Result<Option<Recorded>, String>)>,
}

impl RecordedState {
    /// What is recorded of an election, or why it cannot be read.
    pub fn of(&self, election: &str) -> Option<Result<&Recorded, &str>> {
        let (_, _, answer) = self.last.as_ref().filter(|(of, ..)| of == election)?;
        match answer {
            Ok(recorded) => recorded.as_ref().map(Ok),
            Err(failure) => Some(Err(failure)),
        }
    }

    /// The file is a recording.
    pub fn open(&mut self) {
        self.is_open = true;
    }

    /// The read that makes up for the age of what is shown of this election.
    pub fn due(&mut self, election: &str, now: Moment) -> Option<Request> {
        let known = self.last.as_ref().filter(|(of, ..)| of == election);
        let is_fresh =
            known.is_some_and(|(_, read, _)| now.at.saturating_duration_since(*read) < MAX_AGE);
        if !self.is_open || self.is_reading || is_fresh {
            return None;
        }
        self.is_reading = true;
        Some(Request::ReadRecording(election.to_owned()))
    }

    /// Takes what was read.
    pub fn take(
        &mut self,
        election: String,
        answer: Result<Option<Recorded>, CliError>,
        now: Moment,
    ) {
        self.is_reading = false;
        self.last = Some((election, now.at, answer.map_err(|failure| failure.to_string())));
    }
}
