//! What commands print: tables for people, JSON for programs, on standard output; the rest on standard error.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::ColorChoice;
use clap::ValueEnum;
use clap::builder::styling::{AnsiColor, Style};
use comfy_table::{Table, presets};
use serde::Serialize;

use crate::error::Failure;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// Tables and lines for people.
    #[default]
    Table,
    /// JSON for programs.
    Json,
}

/// When to print colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal.
    Auto,
    Always,
    Never,
}

/// Set once, from the flags, before anything is printed.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Takes in what the flags say of all output.
pub fn configure(color: Color, quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
    match color {
        Color::Auto => {}
        Color::Always => ColorChoice::Always.write_global(),
        Color::Never => ColorChoice::Never.write_global(),
    }
}

/// Whether colors may be printed there: as `--color` says, else where there is a terminal and NO_COLOR is not set.
pub fn has_colors(stream: &impl anstream::stream::RawStream) -> bool {
    anstream::AutoStream::choice(stream) != ColorChoice::Never
}

pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Prints a line of the result.
pub fn line(text: impl Display) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Prints bytes of the result as they are.
pub fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// Prints one JSON document: indented for people on a terminal or not, as programs do not mind.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    line(plain_json(serde_json::to_string_pretty(value).map_err(io::Error::from)?))
}

/// Prints one JSON object on a line of its own, of a result that has many.
pub fn json_line(value: &impl Serialize) -> Result<(), Failure> {
    line(plain_json(serde_json::to_string(value).map_err(io::Error::from)?))
}

/// Tells people what was done, on standard error, in one line; not with `--quiet`.
pub fn note(text: impl Display) {
    if !is_quiet() {
        // Nobody there to read it is no reason to fail.
        let _ = writeln!(anstream::stderr(), "{}", printable(&text.to_string()));
    }
}

/// Prints columns under their heads.
pub fn table<const N: usize>(
    heads: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Result<(), Failure> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(heads.map(str::to_uppercase));
    for row in rows {
        table.add_row(row.map(|cell| printable(&cell)));
    }
    for row in table.lines() {
        let row = row.trim_end();
        line(row.strip_prefix(' ').unwrap_or(row))?; // no margin
    }
    Ok(())
}

/// Whether the people who use us can be asked, and see how far we are.
pub fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Text that comes from somebody else, without what a terminal would take for an order: control characters, and those that
/// turn the direction of what follows, or cannot be seen.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_plain(c) { c } else { '\u{fffd}' }).collect()
}

/// Whether nothing of it would be replaced.
pub fn is_printable(text: &str) -> bool {
    text.chars().all(is_plain)
}

/// Whether a terminal shows it as itself.
fn is_plain(c: char) -> bool {
    match c {
        ' '..='~' => true,
        '\u{200b}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => false,
        c => !c.is_control(),
    }
}

/// JSON text in which no terminal finds an order either: JSON itself escapes the control characters of ASCII alone.
pub fn plain_json(json: String) -> String {
    if json.chars().all(|c| is_plain(c) || c == '\n') {
        return json;
    }
    let mut plain = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match c {
            c if is_plain(c) || c == '\n' => plain.push(c),
            c => plain.push_str(&format!("\\u{:04x}", u32::from(c))), // all of them are of the basic plane
        }
    }
    plain
}

pub fn bold(text: impl Display) -> String {
    styled(Style::new().bold(), text)
}

pub fn red(text: impl Display) -> String {
    styled(Style::new().bold().fg_color(Some(AnsiColor::Red.into())), text)
}

pub fn yellow(text: impl Display) -> String {
    styled(Style::new().fg_color(Some(AnsiColor::Yellow.into())), text)
}

fn styled(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        assert_eq!(printable("größer 日本 ~"), "größer 日本 ~");
        let orders = "\u{1b}[31m\u{7}\r\n\u{9b}2J\u{7f}\u{202e}\u{2066}\u{200f}\u{feff}";
        assert!(printable(orders).chars().all(|c| c == '\u{fffd}' || c.is_ascii_graphic()));
        let json = plain_json(serde_json::to_string(orders).unwrap());
        assert!(json.is_ascii(), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), orders);
    }
}
