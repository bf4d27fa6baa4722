//! The last lines: a question, what is typed, an error, the outcome of a change, or the keys.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::canvas::{below, put};
use super::theme::Theme;
use crate::top::cell::wrap;
use crate::top::state::{Input, Screen, State};

/// The most lines of a question.
const MAX_LINES: usize = 5;

/// How many lines the foot has.
pub fn height(state: &State, area: Rect) -> u16 {
    let lines = question(state, area.width).map_or(1, |lines| lines.len());
    let lines = lines + usize::from(state.failing.is_some());
    u16::try_from(lines).unwrap_or(1).min(area.height)
}

pub fn draw(state: &State, theme: Theme, mut area: Rect, buffer: &mut Buffer) {
    if let Some(failure) = &state.failing {
        put(buffer, area, 0, &format!("lock failing: {failure}"), theme.bad());
        area = below(area, 1);
    }
    if let Some(lines) = question(state, area.width) {
        for (line, text) in (0..).zip(lines) {
            put(buffer, area, line, &text, theme.selected());
        }
        return;
    }
    let (text, style) = match (&state.input, &state.message) {
        (Some((Input::Filter, text)), _) => (format!("filter: {text}_"), theme.title()),
        (Some((Input::Search, text)), _) => (format!("/{text}_"), theme.title()),
        (_, Some(message)) => (message.clone(), theme.title()),
        _ => (keys(state).to_owned(), Style::new()),
    };
    put(buffer, area, 0, &text, style);
}

fn question(state: &State, width: u16) -> Option<Vec<String>> {
    let question = state.question.as_ref()?;
    let (text, verb) = (&question.text, question.verb);
    let text = match question.is_chosen {
        false => format!("{text}? [Cancel]  {verb}  (arrows, Enter)"),
        true => format!("{text}?  Cancel  [{verb}]  (arrows, Enter)"),
    };
    let mut lines = wrap(&text, width.max(1).into());
    // The end is what has to be seen.
    lines.drain(..lines.len().saturating_sub(MAX_LINES));
    Some(lines)
}

fn keys(state: &State) -> &'static str {
    match state.screen {
        Screen::List => {
            "? help  q quit  Enter details  e evict  m move  f filter  / search  s sort"
        }
        Screen::Details { .. } => "? help  Esc back  r call the roll  e evict  m move",
        Screen::Help => "any key: back",
    }
}
