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

pub use self::canvas::Theme;

/// Draws the state.
pub fn draw(state: &State, now: Moment, theme: Theme, buffer: &mut Buffer) {
    let area = buffer.area;
    let foot = panes::foot_height(state, area);
    let body = Rect { height: area.height.saturating_sub(foot), ..area };
    match &state.screen {
        Screen::List => {
            let tail = tail_height(area.height);
            let rows = Rect { height: body.height.saturating_sub(tail), ..body };
            list::draw(state, now, theme, rows, buffer);
            let tail = Rect { y: rows.bottom(), height: body.height - rows.height, ..body };
            panes::draw_transitions(
                state.model.transitions(),
                "TRANSITIONS (UTC)",
                now,
                theme,
                tail,
                buffer,
            );
        }
        Screen::Details { election, candidate } => {
            details::draw(state, election, *candidate, now, theme, body, buffer);
        }
        Screen::Help => panes::draw_help(theme, body, buffer),
    }
    let foot = Rect { y: body.bottom(), height: area.height - body.height, ..area };
    panes::draw_foot(state, theme, foot, buffer);
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
