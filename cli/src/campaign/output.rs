//! Formats of transitions.

use clap::ValueEnum;

use crate::error::CliError;
use crate::output;
use crate::text::{plain_json, printable};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Lines of text.
    Text,
    /// One JSON object per line.
    Json,
}

impl Output {
    /// Prints a line, which must have this format.
    pub fn print(self, line: String) -> Result<(), CliError> {
        output::line(match self {
            Self::Json => plain_json(line),
            Self::Text => printable(&line),
        })
    }
}
