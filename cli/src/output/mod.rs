//! Output of commands: tables and JSON on standard output, notes on standard error, and files.

mod file;
pub mod reference;
pub mod text;
pub mod time_format;

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::ColorChoice;
use clap::builder::styling::{AnsiColor, Style};
use clap::{Args, ValueEnum};
use comfy_table::{Table, presets};
use serde::Serialize;

pub use self::file::{
    PRIVATE, READABLE, directory_of, read_text, replace_file, temporary_beside, unwritten,
};
use self::text::{plain_json, printable};
use crate::error::{CliError, Code};

/// The format of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// Tables and lines.
    #[default]
    Text,
    /// JSON.
    Json,
}

/// The flag for the format of results.
#[derive(Args)]
pub struct Printing {
    /// The format of results.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
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

/// Applies the global output flags.
pub fn configure(color: Color, quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
    match color {
        Color::Auto => {}
        Color::Always => ColorChoice::Always.write_global(),
        Color::Never => ColorChoice::Never.write_global(),
    }
}

/// Whether to print colors to `stream`: as `--color` says, else on a terminal without NO_COLOR.
pub fn has_colors(stream: &impl anstream::stream::RawStream) -> bool {
    anstream::AutoStream::choice(stream) != ColorChoice::Never
}

pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Prints a line of the result.
pub fn line(text: impl Display) -> Result<(), CliError> {
    let mut out = anstream::stdout();
    written(writeln!(out, "{text}").and_then(|()| out.flush()))
}

/// Prints bytes of the result unchanged.
pub fn bytes(bytes: &[u8]) -> Result<(), CliError> {
    let mut out = io::stdout();
    written(out.write_all(bytes).and_then(|()| out.flush()))
}

fn written(result: io::Result<()>) -> Result<(), CliError> {
    result.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => CliError::ClosedPipe,
        _ => error.into(),
    })
}

/// Prints one indented JSON document.
pub fn json(value: &impl Serialize) -> Result<(), CliError> {
    line(plain_json(serde_json::to_string_pretty(value).map_err(io::Error::from)?))
}

/// Prints one JSON object on a line of its own.
pub fn json_line(value: &impl Serialize) -> Result<(), CliError> {
    line(plain_json(serde_json::to_string(value).map_err(io::Error::from)?))
}

/// Prints a one-line note to standard error, unless `--quiet` is given.
pub fn note(text: impl Display) {
    if !is_quiet() {
        // A closed standard error is not a failure.
        let _ = writeln!(anstream::stderr(), "{}", printable(&text.to_string()));
    }
}

/// Prints columns under their headings.
pub fn table<const N: usize>(
    heads: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Result<(), CliError> {
    columns(&heads, rows.into_iter().map(Vec::from))
}

/// Prints as many columns as there are headings.
pub fn columns(
    heads: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> Result<(), CliError> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(heads.iter().map(|head| head.to_uppercase()));
    for row in rows {
        table.add_row(row.iter().map(|cell| printable(cell)));
    }
    for row in table.lines() {
        let row = row.trim_end();
        line(row.strip_prefix(' ').unwrap_or(row))?; // no margin
    }
    Ok(())
}

/// The cell of a table that may be empty.
pub fn or_dash(cell: Option<String>) -> String {
    cell.unwrap_or_else(|| "-".to_owned())
}

/// Whether standard input and standard error are terminals, for questions and progress bars.
pub fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks for confirmation on a terminal; fails elsewhere, and names `--force`.
///
/// Any answer but yes is an error.
pub fn confirm(question: &str, force: bool) -> Result<(), CliError> {
    if force {
        return Ok(());
    }
    if !is_interactive() {
        let question = anstream::adapter::strip_str(question);
        let message = format!("{question}: cannot ask without a terminal; use --force");
        return Err(CliError::new(Code::Failed, message));
    }
    let mut out = anstream::stderr();
    write!(out, "{question}? [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(CliError::new(Code::Failed, "aborted")),
    }
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

impl CliError {
    /// Prints the error to standard error, and returns the exit code.
    pub fn report(&self) -> ExitCode {
        match self {
            Self::Message { code, message } => {
                // The message may quote a server or another program.
                let message = printable(message);
                let _ = writeln!(anstream::stderr(), "incumbent: {message}");
                ExitCode::from(*code as u8)
            }
            Self::Silent(code) => ExitCode::from(*code as u8),
            Self::ClosedPipe => Self::new(Code::Failed, "standard output was closed").report(),
            Self::Signal(signal) => {
                // End by the signal itself, so that a shell reports 128 plus its number.
                let _ = signal_hook::low_level::emulate_default_handler(*signal);
                ExitCode::from(128_u8.saturating_add(u8::try_from(*signal).unwrap_or_default()))
            }
        }
    }
}
