//! What keys do.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{Action, Input, Question, Request, Screen, State};
use crate::elections::Holder;
use crate::top::cell::fit;
use crate::view::Asked;

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
        let (leader, name) = (short(&holder.leader), short(&election));
        let text = match &holder.pod {
            None => format!("Evict {leader}, who leads {name}"),
            Some(_) => format!(
                "Delete the lock of pod {leader}, which may still work when the successor starts"
            ),
        };
        self.ask(text, "Evict", Request::Ask(election, Asked::Evict(holder)));
    }

    fn ask_to_move(&mut self) {
        let Some((election, holder)) = self.current_holder() else {
            self.message = Some("no leader to move from".to_owned());
            return;
        };
        let to = self.selected_candidate().filter(|to| *to != holder.leader);
        let successor = to.as_deref().map_or_else(|| "any ready candidate".to_owned(), short);
        let (leader, name) = (short(&holder.leader), short(&election));
        let text = format!("Move {name} from {leader} to {successor}");
        self.ask(text, "Move", Request::Ask(election, Asked::Move(holder, to)));
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
