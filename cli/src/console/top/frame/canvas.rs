//! Text in the lines of a buffer, and its look: the sixteen colors of the terminal.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use crate::console::top::cell::fit;

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

/// Whether there are colors. Nothing is shown by its color alone.
#[derive(Debug, Clone, Copy)]
pub struct Theme {
    pub has_colors: bool,
}

impl Theme {
    fn color(self, color: Color) -> Style {
        if self.has_colors { Style::new().fg(color) } else { Style::new() }
    }

    pub fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
    }

    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub fn good(self) -> Style {
        self.color(Color::Green)
    }

    pub fn warning(self) -> Style {
        self.color(Color::Yellow)
    }

    pub fn bad(self) -> Style {
        self.color(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// The style of a bar, by what is left of the lease.
    pub fn bar(self, left: Duration, lease: Duration) -> Style {
        match left {
            Duration::ZERO => self.bad(),
            left if left < lease / 3 => self.warning(),
            _ => self.good(),
        }
    }
}
