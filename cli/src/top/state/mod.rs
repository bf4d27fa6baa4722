//! The state of the view: keys, observations and results go in, and what is to be shown comes out.

mod keys;
mod recorded;
mod rows;

use crate::error::CliError;
use crate::history::Recording;
use crate::view::{Asked, Model, Moment, Observation};

pub use self::keys::KEYS;
use self::recorded::RecordedState;
pub use self::rows::{Row, Sort};
use super::request::{Done, Request};

/// What is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Screen {
    List,
    /// One election, with the index of the selected candidate.
    Details {
        election: String,
        candidate: usize,
    },
    Help,
}

/// A line that is being typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    Filter,
    Search,
}

/// A change that waits for its confirmation: Enter, once the right button is selected. Arrows
/// select it, which no text has that is typed or pasted.
#[derive(Debug)]
pub struct Question {
    pub text: String,
    /// What the right button does.
    pub verb: &'static str,
    /// Whether it is selected, rather than the left one, which cancels.
    pub is_chosen: bool,
    request: Request,
}

/// What the loop has to do for a key.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, for a moment")]
pub enum Action {
    Quit,
    Suspend,
    Redraw,
    Request(Request),
}

/// The state of the view.
#[derive(Debug)]
pub struct State {
    pub model: Model,
    /// The lock.
    pub title: String,
    /// The elections that were selected by name.
    names: Vec<String>,
    pub sort: Sort,
    pub is_reversed: bool,
    /// Elections whose name, leader or address contains it are shown.
    pub filter: String,
    search: String,
    /// The name of the selected election.
    selected: Option<String>,
    /// The index of the first row that is shown.
    pub offset: usize,
    /// How many rows fit.
    page: usize,
    pub screen: Screen,
    /// The line that is being typed, and what for.
    pub input: Option<(Input, String)>,
    pub question: Option<Question>,
    /// What came of the last key or request.
    pub message: Option<String>,
    /// Why the lock cannot be read, if it cannot.
    pub failing: Option<String>,
    /// The election whose roll is being called.
    pub calling: Option<String>,
    /// Why the last roll call of the election that is shown failed.
    pub roll_failure: Option<String>,
    /// Whether the leader of the election that is shown has changed since its roll was called.
    is_roll_due: bool,
    /// Whether a change has been requested and is not done.
    pub is_changing: bool,
    /// What is recorded of the election that is shown.
    pub recorded: RecordedState,
}

impl State {
    pub fn new(title: String, names: Vec<String>, model: Model) -> Self {
        Self {
            model,
            title,
            names,
            sort: Sort::Name,
            is_reversed: false,
            filter: String::new(),
            search: String::new(),
            selected: None,
            offset: 0,
            page: 1,
            screen: Screen::List,
            input: None,
            question: None,
            message: None,
            failing: None,
            calling: None,
            roll_failure: None,
            is_roll_due: false,
            is_changing: false,
            recorded: RecordedState::default(),
        }
    }

    /// The elections selected by name that have no entry.
    pub fn absent(&self) -> impl Iterator<Item = &str> {
        let names = self.names.iter().map(String::as_str);
        names.filter(|name| self.model.election(name).is_none())
    }

    /// Takes what was read, or why nothing could be read. Returns whether it is to be shown at
    /// once.
    pub fn on_observation(&mut self, observed: Result<Observation, CliError>, now: Moment) -> bool {
        match observed {
            Ok(observed) => {
                let recovered = self.failing.take().is_some();
                let transitions = self.model.observe(observed, now);
                if let Screen::Details { election, .. } = &self.screen {
                    self.is_roll_due |= transitions.iter().any(|t| t.election == *election);
                }
                recovered || !transitions.is_empty()
            }
            Err(failure) => {
                self.failing = Some(failure.to_string());
                true
            }
        }
    }

    /// The roll call that a change of the shown election makes necessary.
    pub fn due_roll_call(&mut self) -> Option<Request> {
        if !self.is_roll_due || self.calling.is_some() {
            return None;
        }
        self.call_roll()
    }

    /// The call of the roll of the election that is shown.
    fn call_roll(&mut self) -> Option<Request> {
        let Screen::Details { election, .. } = &self.screen else { return None };
        self.is_roll_due = false;
        self.calling = Some(election.clone());
        Some(Request::Ask(election.clone(), Asked::CallRoll))
    }

    /// Takes a recording, or why there is none, which is shown.
    pub fn open_recording(&mut self, opened: Result<Recording, CliError>) -> Option<Recording> {
        match opened {
            Ok(recording) => {
                self.recorded.open();
                Some(recording)
            }
            Err(failure) => {
                self.message = Some(format!("no recording: {failure}"));
                None
            }
        }
    }

    /// The read of the recording that is due for the election that is shown.
    pub fn due_recorded(&mut self, now: Moment) -> Option<Request> {
        let Screen::Details { election, .. } = &self.screen else { return None };
        self.recorded.due(election, now)
    }

    /// Takes what came of a request.
    pub fn on_done(&mut self, done: Done, now: Moment) {
        match done {
            Done::Roll { election, answers } => {
                self.calling.take_if(|calling| *calling == election);
                let is_shown =
                    matches!(&self.screen, Screen::Details { election: e, .. } if *e == election);
                match answers {
                    Ok(answers) => self.model.take_roll(&election, answers, now),
                    Err(failure) if is_shown => self.roll_failure = Some(failure.to_string()),
                    Err(_) => {}
                }
            }
            Done::Recorded { election, answer } => self.recorded.take(election, answer, now),
            Done::Change(outcome) => {
                self.is_changing = false;
                self.message = Some(match outcome {
                    Ok(done) => done,
                    Err(failure) => failure.to_string(),
                });
            }
        }
    }

    /// Takes the passing of time.
    pub fn on_time(&mut self, now: Moment) {
        self.model.expire(now);
    }

    /// Shows so many rows, among them the selected one.
    pub fn set_page(&mut self, rows: usize) {
        self.page = rows.max(1);
        let rows = self.rows();
        let selected = self.selected_index(&rows);
        let last = rows.len().saturating_sub(self.page);
        self.offset =
            self.offset.clamp((selected + 1).saturating_sub(self.page), selected).min(last);
    }
}
