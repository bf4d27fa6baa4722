//! What is around the list and the details: transitions, the foot, the help.

use ratatui::layout::Rect;
use ratatui::style::Style;

use super::canvas::Pane;
use crate::console::model::{Transition, lost};
use crate::console::top::cell::wrap;
use crate::console::top::state::{Input, KEYS, Screen, State};
use crate::output::time_format;

/// The width of the time of day.
const TIME: u16 = 9;
/// The width of a time of another day.
const DATE: u16 = 12;

/// Draws transitions, the latest one first.
pub fn draw_transitions<'a>(
    transitions: impl DoubleEndedIterator<Item = &'a Transition>,
    mut pane: Pane<'_>,
) {
    let theme = pane.theme;
    pane.put(0, "TRANSITIONS (UTC)", theme.heading());
    let shown: Vec<_> = (1..pane.area.height).zip(transitions.rev()).collect();
    let today = time_format::date(pane.now.wall);
    let is_today = |transition: &Transition| time_format::date(transition.time) == today;
    let width = if shown.iter().all(|(_, transition)| is_today(transition)) { TIME } else { DATE };
    for (line, transition) in shown {
        let style = match transition.outcome() {
            Ok(_) => theme.good(),
            Err(_) => theme.bad(),
        };
        let time = match is_today(transition) {
            true => time_format::time_of_day(transition.time),
            false => time_format::month_and_time(transition.time),
        };
        pane.put(line, time.trim_end_matches(" UTC"), style);
        pane.right_of(width).put(line, &text(transition), Style::new());
    }
}

/// A transition in words.
fn text(transition: &Transition) -> String {
    let Transition { election, before, leaderless, .. } = transition;
    let before = before.as_ref().map(|before| before.identity.as_str());
    match (transition.outcome(), before) {
        (Ok(now), before) => {
            let token = now.token.map(|token| format!(", token {token}")).unwrap_or_default();
            let after = match (leaderless, before) {
                (Some(gap), _) => format!(" after {} ms without a leader", gap.as_millis()),
                (None, Some(before)) if before != now.identity => format!(", succeeding {before}"),
                (None, _) => String::new(),
            };
            // A token may be cut off, but not the time without a leader.
            format!("{election}: {} leads{after}{token}", now.identity)
        }
        (Err(cause), Some(before)) => {
            let span = transition.unrenewed.map(time_format::span);
            let since = span.map(|span| format!(", {span} after its last renewal"));
            format!("{election}: {before} {}{}", lost(cause), since.unwrap_or_default())
        }
        (Err(cause), None) => format!("{election}: no leader: {cause}"),
    }
}

/// The most lines of a question.
const MAX_LINES: usize = 5;

/// How many lines the foot has.
pub fn foot_height(state: &State, area: Rect) -> u16 {
    let lines = question(state, area.width).map_or(1, |lines| lines.len());
    let lines = lines + usize::from(state.failing.is_some());
    u16::try_from(lines).unwrap_or(1).min(area.height)
}

pub fn draw_foot(state: &State, mut frame: Pane<'_>) {
    let theme = frame.theme;
    if let Some(failure) = &state.failing {
        frame.put(0, &format!("lock failing: {failure}"), theme.bad());
    }
    let mut pane = frame.below(state.failing.is_some().into());
    if let Some(lines) = question(state, pane.area.width) {
        for (line, text) in (0..).zip(lines) {
            pane.put(line, &text, theme.selected());
        }
        return;
    }
    let (text, style) = match (&state.input, &state.message) {
        (Some((Input::Filter, text)), _) => (format!("filter: {text}_"), theme.title()),
        (Some((Input::Search, text)), _) => (format!("/{text}_"), theme.title()),
        (_, Some(message)) => (message.clone(), theme.title()),
        _ => (keys(state).to_owned(), Style::new()),
    };
    pane.put(0, &text, style);
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

/// The width of the column of keys.
const WIDTH: u16 = 18;

pub fn draw_help(mut pane: Pane<'_>) {
    let theme = pane.theme;
    pane.put(0, "KEYS", theme.heading());
    for (line, (keys, meaning)) in (1..).zip(KEYS) {
        pane.put(line, keys, theme.title());
        pane.right_of(WIDTH).put(line, meaning, Style::new());
    }
    let line = u16::try_from(KEYS.len()).unwrap_or_default() + 2;
    let more = "The bar of DEADLINE shows what is left of the lease until the next renewal.";
    pane.put(line, more, Style::new());
}
