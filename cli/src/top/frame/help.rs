//! The keys.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::canvas::{put, right_of};
use super::theme::Theme;
use crate::top::state::KEYS;

/// The width of the column of keys.
const WIDTH: u16 = 18;

pub fn draw(theme: Theme, area: Rect, buffer: &mut Buffer) {
    put(buffer, area, 0, "KEYS", theme.heading());
    for (line, (keys, meaning)) in (1..).zip(KEYS) {
        put(buffer, area, line, keys, theme.title());
        put(buffer, right_of(area, WIDTH), line, meaning, Style::new());
    }
    let line = u16::try_from(KEYS.len()).unwrap_or_default() + 2;
    let more = "The bar of DEADLINE shows what is left of the lease until the next renewal.";
    put(buffer, area, line, more, Style::new());
}
