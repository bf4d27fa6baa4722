//! Frames: what the state looks like on a screen of some size.

mod cell;
mod details;
mod foot;
mod help;
mod list;
mod tail;
#[cfg(test)]
mod tests;
mod theme;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::state::{Screen, State};
use crate::view::Moment;

pub use self::cell::fit;
pub use self::theme::Theme;

/// The lines above the rows: lock, counts, headings.
const HEAD: u16 = 3;

/// Draws the state.
pub fn draw(state: &State, now: Moment, theme: Theme, buffer: &mut Buffer) {
    let area = buffer.area;
    let foot = foot::height(state, area);
    let body = Rect { height: area.height.saturating_sub(foot), ..area };
    match &state.screen {
        Screen::List => {
            let tail = tail_height(area.height);
            let rows = Rect { height: body.height.saturating_sub(tail), ..body };
            list::draw(state, now, theme, rows, buffer);
            let tail = Rect { y: rows.bottom(), height: body.height - rows.height, ..body };
            tail::draw(state.model.transitions(), "TRANSITIONS (UTC)", theme, tail, buffer);
        }
        Screen::Details { election, candidate } => {
            details::draw(state, election, *candidate, now, theme, body, buffer);
        }
        Screen::Help => help::draw(theme, body, buffer),
    }
    let foot = Rect { y: body.bottom(), height: area.height - body.height, ..area };
    foot::draw(state, theme, foot, buffer);
}

/// All elections as lines of text.
pub fn lines(state: &State, now: Moment, width: u16) -> Vec<String> {
    list::lines(state, now, width)
}

/// How many rows of the list a screen of this size has.
pub fn page(_width: u16, height: u16) -> usize {
    usize::from(height.saturating_sub(HEAD + 1 + tail_height(height)))
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

/// Writes text into one line of an area, cut to its width.
fn put(buffer: &mut Buffer, area: Rect, line: u16, text: &str, style: Style) {
    if line < area.height {
        let text = fit(text, area.width.into());
        buffer.set_stringn(area.x, area.y + line, text, area.width.into(), style);
    }
}

/// The area without its first lines.
fn below(area: Rect, lines: u16) -> Rect {
    let lines = lines.min(area.height);
    Rect { y: area.y + lines, height: area.height - lines, ..area }
}

/// The area without its first columns.
fn right_of(area: Rect, columns: u16) -> Rect {
    let columns = columns.min(area.width);
    Rect { x: area.x + columns, width: area.width - columns, ..area }
}

/// A line of a buffer as text.
fn text(buffer: &Buffer, line: u16) -> String {
    let mut text = String::new();
    let mut columns = buffer.area.left()..buffer.area.right();
    while let Some(column) = columns.next() {
        let symbol = buffer[(column, line)].symbol();
        text += symbol;
        // A wide character covers the next columns.
        let covered = ratatui::text::Span::raw(symbol).width().saturating_sub(1);
        for _ in 0..covered {
            columns.next();
        }
    }
    text.truncate(text.trim_end().len());
    text
}
