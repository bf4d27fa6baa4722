//! Frames: what the state looks like on a screen of some size.

mod canvas;
mod details;
mod list;
mod panes;
#[cfg(test)]
mod tests;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::state::{Screen, State};
use crate::console::model::Moment;

use self::canvas::Pane;
pub use self::canvas::Theme;

/// Draws the state.
pub fn draw(state: &State, now: Moment, theme: Theme, buffer: &mut Buffer) {
    let area = buffer.area;
    let foot = area.height - panes::foot_height(state, area);
    let mut frame = Pane { buffer, area, now, theme };
    let mut body = frame.part(Rect { height: foot, ..area });
    match &state.screen {
        Screen::List => {
            let rows = foot.saturating_sub(tail_height(area.height));
            list::draw(state, body.part(Rect { height: rows, ..area }));
            panes::draw_transitions(state.model.transitions(), body.below(rows));
        }
        Screen::Details { election, candidate } => {
            details::draw(state, election, *candidate, body);
        }
        Screen::Help => panes::draw_help(body),
    }
    panes::draw_foot(state, frame.below(foot));
}

/// All elections as lines of text.
pub fn lines(state: &State, now: Moment, width: u16) -> Vec<String> {
    list::lines(state, now, width)
}

/// Fits the list into a screen of this size.
pub fn fit(state: &mut State, width: u16, height: u16) {
    let foot = panes::foot_height(state, Rect::new(0, 0, width, height));
    let rows = height.saturating_sub(list::HEAD + foot + tail_height(height));
    state.set_page(rows.into());
}

/// The height of the transitions below the list, with their heading.
fn tail_height(height: u16) -> u16 {
    match height {
        0..12 => 0,
        12..20 => 3,
        20..30 => 6,
        _ => 10,
    }
}
