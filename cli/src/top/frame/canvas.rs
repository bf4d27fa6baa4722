//! Text in the lines of a buffer.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::top::cell::fit;

/// Writes text into one line of an area, cut to its width.
pub fn put(buffer: &mut Buffer, area: Rect, line: u16, text: &str, style: Style) {
    if line < area.height {
        let text = fit(text, area.width.into());
        buffer.set_stringn(area.x, area.y + line, text, area.width.into(), style);
    }
}

/// The area without its first lines.
pub fn below(area: Rect, lines: u16) -> Rect {
    let lines = lines.min(area.height);
    Rect { y: area.y + lines, height: area.height - lines, ..area }
}

/// The area without its first columns.
pub fn right_of(area: Rect, columns: u16) -> Rect {
    let columns = columns.min(area.width);
    Rect { x: area.x + columns, width: area.width - columns, ..area }
}

/// A line of a buffer as text.
pub fn text(buffer: &Buffer, line: u16) -> String {
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
