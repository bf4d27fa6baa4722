//! The state of the view: keys, observations and results go in, and what is to be shown comes out.

use std::cmp::Ordering;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use incumbent::CandidateInfo;
use tokio::time::Instant;

use super::cell::fit;
use crate::console::history::{Recording, Statistics};
use crate::console::model::{Command, ElectionView, Model, Moment, Observation, Transition};
use crate::error::CliError;
use crate::lock::elections::Holder;

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
        Some(Request::Ask(election.clone(), Command::CallRoll))
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

    /// Shows this many rows, among them the selected one.
    pub fn set_page(&mut self, rows: usize) {
        self.page = rows.max(1);
        let rows = self.rows();
        let selected = self.selected_index(&rows);
        let last = rows.len().saturating_sub(self.page);
        self.offset =
            self.offset.clamp((selected + 1).saturating_sub(self.page), selected).min(last);
    }
}

/// A request to the lock, or to the recording.
#[derive(Debug)]
pub enum Request {
    Ask(String, Command),
    /// Read what is recorded of this election.
    ReadRecording(String),
}

/// What is recorded of an election.
#[derive(Debug)]
pub struct Recorded {
    pub statistics: Statistics,
    /// The last transitions, the latest one last.
    pub transitions: Vec<Transition>,
    /// How the runs of its jobs ended; `None` without recorded runs.
    pub runs: Option<String>,
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

/// The order of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    Name,
    Leader,
    /// Those without a leader first, then those whose deadline is next.
    Deadline,
    /// The youngest term first.
    Since,
    Token,
}

impl Sort {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Name => "election",
            Self::Leader => "leader",
            Self::Deadline => "deadline",
            Self::Since => "since",
            Self::Token => "token",
        }
    }

    pub fn next(self) -> Self {
        match self {
            Self::Name => Self::Leader,
            Self::Leader => Self::Deadline,
            Self::Deadline => Self::Since,
            Self::Since => Self::Token,
            Self::Token => Self::Name,
        }
    }
}

/// An election of the list; without a view if it has no entry.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    pub name: &'a str,
    pub view: Option<&'a ElectionView>,
}

impl Row<'_> {
    /// Whether a text contains this one, in lower case.
    fn contains(&self, lower: &str) -> bool {
        let holder = self.view.and_then(ElectionView::holder);
        let address = holder.and_then(|holder| holder.advertisement.as_deref());
        let texts = [
            Some(self.name),
            holder.map(|holder| holder.identity.as_str()),
            address.map(incumbent::Advertisement::address),
        ];
        texts.into_iter().flatten().any(|text| text.to_lowercase().contains(lower))
    }

    fn cmp(&self, other: &Self, by: Sort) -> Ordering {
        let (a, b) = (self.view, other.view);
        let holders = (a.and_then(ElectionView::holder), b.and_then(ElectionView::holder));
        let order = match by {
            Sort::Name => Ordering::Equal,
            Sort::Leader => {
                let leaders = holders.0.map(|h| &h.identity);
                leaders.cmp(&holders.1.map(|h| &h.identity))
            }
            Sort::Deadline => {
                let key = |view: Option<&ElectionView>| {
                    let deadline = view.and_then(ElectionView::deadline).map(|end| end.at);
                    // A leader without a lease has no deadline: last.
                    (view.is_some_and(|view| view.holder().is_some()), deadline.is_none(), deadline)
                };
                key(a).cmp(&key(b))
            }
            Sort::Since => {
                let (a, b) = (holders.0.and_then(|h| h.since), holders.1.and_then(|h| h.since));
                b.cmp(&a)
            }
            Sort::Token => {
                let tokens = holders.0.and_then(|h| h.token);
                tokens.cmp(&holders.1.and_then(|h| h.token))
            }
        };
        order.then_with(|| self.name.cmp(other.name))
    }
}

impl State {
    /// The rows that the filter lets through, in order.
    pub fn rows(&self) -> Vec<Row<'_>> {
        let found = self.model.elections().map(|view| Row { name: view.name(), view: Some(view) });
        let absent = self.absent().map(|name| Row { name, view: None });
        let filter = self.filter.to_lowercase();
        let mut rows: Vec<Row<'_>> = found
            .chain(absent)
            .filter(|row| self.filter.is_empty() || row.contains(&filter))
            .collect();
        rows.sort_by(|a, b| {
            let order = a.cmp(b, self.sort);
            if self.is_reversed { order.reverse() } else { order }
        });
        rows
    }

    /// The index of the selected one of all rows: the first one, if the selected election is gone.
    pub fn selected_index(&self, rows: &[Row<'_>]) -> usize {
        let selected = self.selected.as_deref();
        rows.iter().position(|row| Some(row.name) == selected).unwrap_or_default()
    }

    /// The election that keys act on.
    pub fn current(&self) -> Option<Row<'_>> {
        match &self.screen {
            Screen::Details { election, .. } => {
                let view = self.model.election(election);
                Some(Row { name: election, view })
            }
            Screen::List | Screen::Help => {
                let rows = self.rows();
                rows.get(self.selected_index(&rows)).copied()
            }
        }
    }

    /// Selects the row this many rows further.
    fn move_by(&mut self, rows: isize) {
        let all = self.rows();
        let last = all.len().saturating_sub(1);
        let index = self.selected_index(&all).saturating_add_signed(rows).min(last);
        self.selected = all.get(index).map(|row| row.name.to_owned());
    }

    fn select(&mut self, index: usize) {
        self.selected = self.rows().get(index).map(|row| row.name.to_owned());
    }

    /// Selects the next row, or the one before, that contains what is searched.
    fn find(&mut self, is_forward: bool) -> Option<Action> {
        let rows = self.rows();
        let (count, from) = (rows.len(), self.selected_index(&rows));
        let search = self.search.to_lowercase();
        let steps = 1..=count;
        let at = |step: usize| match is_forward {
            true => (from + step) % count,
            false => (from + count - step) % count,
        };
        let found = steps.map(at).map(|index| rows[index]).find(|row| row.contains(&search));
        match found.map(|row| row.name.to_owned()) {
            Some(name) => self.selected = Some(name),
            None => self.message = Some(format!("not found: {}", self.search)),
        }
        None
    }

    fn page_size(&self) -> isize {
        isize::try_from(self.page).unwrap_or(isize::MAX)
    }
}

/// The keys, and what they do.
pub const KEYS: [(&str, &str); 13] = [
    ("up, down, j, k", "select an election, or a candidate in the details"),
    ("PgUp, PgDn, g, G", "a page up or down, the first, the last"),
    ("Enter", "details: the roll of the candidates is called"),
    ("Esc", "back; ends the filter"),
    ("f", "filter: show what contains a text"),
    ("/, n, N", "search: select the next match, the one before"),
    ("s, S", "sort by the next column; reverse the order"),
    ("r", "in the details: call the roll again"),
    ("e", "evict the leader, after a question"),
    ("m", "move the leadership, after a question"),
    ("Ctrl-L", "draw the screen again"),
    ("?", "this help"),
    ("q, Ctrl-C", "quit"),
];

/// The widest name in a question.
const MAX_NAME: usize = 60;
/// The most characters that are typed into a line.
const MAX_INPUT: usize = 200;

impl State {
    /// Takes a key. Returns what it requires.
    pub fn on_key(&mut self, key: KeyEvent) -> Option<Action> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Some(Action::Quit),
            KeyCode::Char('z') if is_control => return Some(Action::Suspend),
            KeyCode::Char('l') if is_control => return Some(Action::Redraw),
            KeyCode::Char(_) if is_control => return None,
            _ => {}
        }
        self.message = None;
        if let Some(question) = self.question.take() {
            return self.answer(question, key.code);
        }
        if let Some((input, text)) = self.input.take() {
            self.edit(input, text, key.code);
            return None;
        }
        match &self.screen {
            Screen::Help => {
                self.screen = Screen::List;
                None
            }
            Screen::List => self.on_list_key(key.code),
            Screen::Details { .. } => self.on_details_key(key.code),
        }
    }

    /// Takes text that was pasted: it is none of the keys.
    pub fn on_paste(&mut self, pasted: &str) {
        let Some((input, mut text)) = self.input.take() else { return };
        let room = MAX_INPUT.saturating_sub(text.len());
        text.extend(pasted.chars().filter(|c| !c.is_control()).take(room));
        self.type_text(input, text);
    }

    fn on_list_key(&mut self, key: KeyCode) -> Option<Action> {
        let page = self.page_size();
        match key {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::PageUp => self.move_by(-page),
            KeyCode::PageDown => self.move_by(page),
            KeyCode::Home | KeyCode::Char('g') => self.select(0),
            KeyCode::End | KeyCode::Char('G') => self.move_by(isize::MAX),
            KeyCode::Char('f') => self.input = Some((Input::Filter, self.filter.clone())),
            KeyCode::Char('/') => self.input = Some((Input::Search, String::new())),
            KeyCode::Char('n') => return self.find(true),
            KeyCode::Char('N') => return self.find(false),
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('S') => self.is_reversed = !self.is_reversed,
            KeyCode::Enter => {
                let election = self.current()?.name.to_owned();
                self.screen = Screen::Details { election, candidate: 0 };
                self.roll_failure = None;
                return self.call_roll().map(Action::Request);
            }
            _ => self.on_common_key(key),
        }
        None
    }

    fn on_details_key(&mut self, key: KeyCode) -> Option<Action> {
        let Screen::Details { election, candidate } = &mut self.screen else { return None };
        let candidates = self.model.election(election).and_then(|view| view.candidates());
        let last = candidates.map_or(0, |roll| roll.list().len().saturating_sub(1));
        match key {
            KeyCode::Char('q') | KeyCode::Esc | KeyCode::Enter => {
                self.screen = Screen::List;
            }
            KeyCode::Up | KeyCode::Char('k') => *candidate = candidate.saturating_sub(1).min(last),
            KeyCode::Down | KeyCode::Char('j') => *candidate = (*candidate + 1).min(last),
            KeyCode::Char('r') if self.calling.is_none() => {
                self.roll_failure = None;
                return self.call_roll().map(Action::Request);
            }
            _ => self.on_common_key(key),
        }
        None
    }

    fn on_common_key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char('?') | KeyCode::F(1) => self.screen = Screen::Help,
            KeyCode::Char('e') => self.ask_to_evict(),
            KeyCode::Char('m') => self.ask_to_move(),
            _ => {}
        }
    }

    fn edit(&mut self, input: Input, mut text: String, key: KeyCode) {
        match key {
            KeyCode::Enter => {
                if input == Input::Search {
                    self.search = text;
                    self.find(true);
                }
                return;
            }
            KeyCode::Esc => {
                if input == Input::Filter {
                    self.filter.clear();
                }
                return;
            }
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(c) if text.len() < MAX_INPUT => text.push(c),
            _ => {}
        }
        self.type_text(input, text);
    }

    fn type_text(&mut self, input: Input, text: String) {
        if input == Input::Filter {
            self.filter.clone_from(&text); // shown while it is typed
        }
        self.input = Some((input, text));
    }

    fn ask_to_evict(&mut self) {
        let Some((election, holder)) = self.current_holder() else {
            self.message = Some("no leader to evict".to_owned());
            return;
        };
        let (leader, name) = (short(&holder.identity), short(&election));
        let text = match &holder.pod {
            None => format!("Evict {leader}, who leads {name}"),
            Some(_) => format!(
                "Delete the lock of pod {leader}, which may still work when the successor starts"
            ),
        };
        self.ask(text, "Evict", Request::Ask(election, Command::Evict(holder)));
    }

    fn ask_to_move(&mut self) {
        let Some((election, holder)) = self.current_holder() else {
            self.message = Some("no leader to move from".to_owned());
            return;
        };
        let to = self.selected_candidate().filter(|to| *to != holder.identity);
        let successor = to.as_deref().map_or_else(|| "any ready candidate".to_owned(), short);
        let (leader, name) = (short(&holder.identity), short(&election));
        let text = format!("Move {name} from {leader} to {successor}");
        self.ask(text, "Move", Request::Ask(election, Command::Move(holder, to)));
    }

    fn ask(&mut self, text: String, verb: &'static str, request: Request) {
        match self.is_changing {
            true => self.message = Some("the last change is not done yet".to_owned()),
            false => self.question = Some(Question { text, verb, is_chosen: false, request }),
        }
    }

    fn answer(&mut self, mut question: Question, key: KeyCode) -> Option<Action> {
        match key {
            KeyCode::Left | KeyCode::Right => {
                question.is_chosen = key == KeyCode::Right;
                self.question = Some(question);
                None
            }
            KeyCode::Enter if question.is_chosen => {
                self.is_changing = true;
                Some(Action::Request(question.request))
            }
            _ => {
                self.message = Some("aborted".to_owned());
                None
            }
        }
    }

    /// The election that a change is about, and its leader.
    fn current_holder(&self) -> Option<(String, Holder)> {
        let view = self.current()?.view?;
        Some((view.name().to_owned(), view.holder()?.clone()))
    }

    /// The candidate that is selected in the details.
    fn selected_candidate(&self) -> Option<String> {
        let Screen::Details { election, candidate } = &self.screen else { return None };
        let roll = self.model.election(election)?.candidates()?;
        Some(roll.list().get(*candidate)?.identity.to_string())
    }
}

/// A name in a question, whose end is to be shown too.
fn short(name: &str) -> String {
    fit(name, MAX_NAME)
}
