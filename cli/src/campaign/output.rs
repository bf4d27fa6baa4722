//! How transitions are printed.

use std::io::{self, Write};

use clap::ValueEnum;

use crate::text::{plain_json, printable};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Lines for people.
    Text,
    /// JSON objects, one a line.
    Json,
}

impl Output {
    /// Prints a transition that is of this form.
    pub fn print(self, line: String) -> io::Result<()> {
        let line = match self {
            Self::Json => plain_json(line),
            Self::Text => printable(&line),
        };
        writeln!(io::stdout(), "{line}")
    }
}
