//! Text in the lines of a buffer, and its look: the sixteen colors of the terminal.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use crate::console::model::Moment;
use crate::console::top::cell::fit;

/// An area of a frame at one moment.
pub struct Pane<'b> {
    pub buffer: &'b mut Buffer,
    pub area: Rect,
    pub now: Moment,
    pub theme: Theme,
}

impl Pane<'_> {
    /// Writes text into one line, cut to the width.
    pub fn put(&mut self, line: u16, text: &str, style: Style) {
        let area = self.area;
        if line < area.height {
            let text = fit(text, area.width.into());
            self.buffer.set_stringn(area.x, area.y + line, text, area.width.into(), style);
        }
    }

    /// A part of it.
    pub fn part(&mut self, area: Rect) -> Pane<'_> {
        let area = area.intersection(self.area);
        Pane { buffer: self.buffer, area, ..*self }
    }

    /// One line of it.
    pub fn line(&mut self, line: u16) -> Pane<'_> {
        self.part(Rect { y: self.area.y.saturating_add(line), height: 1, ..self.area })
    }

    /// What is left without its first lines.
    pub fn below(&mut self, lines: u16) -> Pane<'_> {
        let lines = lines.min(self.area.height);
        let (y, height) = (self.area.y + lines, self.area.height - lines);
        self.part(Rect { y, height, ..self.area })
    }

    /// What is left without its first columns.
    pub fn right_of(&mut self, columns: u16) -> Pane<'_> {
        let columns = columns.min(self.area.width);
        let (x, width) = (self.area.x + columns, self.area.width - columns);
        self.part(Rect { x, width, ..self.area })
    }
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
