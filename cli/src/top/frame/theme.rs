//! The look: the sixteen colors of the terminal, on its own background.

use std::time::Duration;

use ratatui::style::{Color, Modifier, Style};

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
