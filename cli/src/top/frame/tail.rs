//! The last transitions.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::canvas::{put, right_of};
use super::theme::Theme;
use crate::time_format;
use crate::view::{Moment, Transition, lost};

/// The width of the time of day.
const TIME: u16 = 9;
/// The width of a time of another day.
const DATE: u16 = 12;

/// Draws transitions under a heading, the latest one first.
pub fn draw<'a>(
    transitions: impl DoubleEndedIterator<Item = &'a Transition>,
    heading: &str,
    now: Moment,
    theme: Theme,
    area: Rect,
    buffer: &mut Buffer,
) {
    put(buffer, area, 0, heading, theme.heading());
    let shown: Vec<_> = (1..area.height).zip(transitions.rev()).collect();
    let today = time_format::date(now.wall);
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
        put(buffer, area, line, time.trim_end_matches(" UTC"), style);
        put(buffer, right_of(area, width), line, &text(transition), Style::new());
    }
}

/// A transition in words.
fn text(transition: &Transition) -> String {
    let Transition { election, before, leaderless, .. } = transition;
    let before = before.as_ref().map(|before| before.leader.as_str());
    match (transition.outcome(), before) {
        (Ok(now), before) => {
            let token = now.token.map(|token| format!(", token {token}")).unwrap_or_default();
            let after = match (leaderless, before) {
                (Some(gap), _) => format!(" after {} ms without a leader", gap.as_millis()),
                (None, Some(before)) if before != now.leader => format!(", succeeding {before}"),
                (None, _) => String::new(),
            };
            // A token may be cut off, but not the time without a leader.
            format!("{election}: {} leads{after}{token}", now.leader)
        }
        (Err(cause), Some(before)) => {
            let span = transition.unrenewed.map(time_format::span);
            let since = span.map(|span| format!(", {span} after its last renewal"));
            format!("{election}: {before} {}{}", lost(cause), since.unwrap_or_default())
        }
        (Err(cause), None) => format!("{election}: no leader: {cause}"),
    }
}
