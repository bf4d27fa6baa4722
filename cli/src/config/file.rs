//! The file with options.

use std::ffi::OsString;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::names::{COMMANDS, find, is_daemon, options};
use super::source::{Source, is_secret};
use crate::error::{CliError, Code, one_line};
use crate::output::read_text;

/// The largest file.
const MAX_SIZE: u64 = 1 << 20;

/// The options of a file, which are known and of the right type.
pub struct OptionsFile {
    path: PathBuf,
    entries: Vec<Entry>,
}

/// An option of the file.
struct Entry {
    /// The command of its table; none above all tables.
    command: Vec<String>,
    key: String,
    values: Vec<OsString>,
    line: usize,
}

impl OptionsFile {
    /// Reads the file. `root`: the command line, which is built.
    pub fn read(path: &Path, root: &Command) -> Result<Self, CliError> {
        let failed =
            |why: String| CliError::new(Code::Usage, format!("--config {}: {why}", path.display()));
        let cannot = |error: std::io::Error| failed(one_line(&error));
        let file = File::open(path).map_err(cannot)?;
        let is_public = is_public(&file).map_err(cannot)?;
        let text = read_text(file, MAX_SIZE).map_err(cannot)?;
        let entries = entries(path, &text, root)?;
        let is_secret = |entry: &&Entry| {
            entry.values.iter().any(|value| is_secret(&entry.key, &value.to_string_lossy()))
        };
        match entries.iter().find(is_secret).filter(|_| is_public) {
            Some(Entry { key, line, .. }) => Err(CliError::new(
                Code::Usage,
                format!(
                    "{}:{line}: {key} is secret, and all users may access the file: `chmod o= FILE`",
                    path.display()
                ),
            )),
            None => Ok(Self { path: path.to_owned(), entries }),
        }
    }

    /// The values of an option of the command, and their source.
    pub fn get(&self, command: &[&str], option: &str) -> Option<(&[OsString], Source)> {
        let of = |command: &[&str]| {
            let is_it = |entry: &&Entry| entry.key == option && entry.command == command;
            self.entries.iter().find(is_it)
        };
        let entry = of(command).or_else(|| of(&[]))?;
        let (path, line) = (self.path.clone(), entry.line);
        Some((&entry.values, Source::File { path, line, in_table: !entry.command.is_empty() }))
    }
}

/// The options in the text of the file.
fn entries(path: &Path, text: &str, root: &Command) -> Result<Vec<Entry>, CliError> {
    let mut parsed = Parsed { path, text, root, entries: Vec::new() };
    let table = DeTable::parse(text).map_err(|error| parsed.malformed(&error))?;
    parsed.table(&[], table.get_ref())?;
    Ok(parsed.entries)
}

#[cfg(unix)]
fn is_public(file: &File) -> std::io::Result<bool> {
    use std::os::unix::fs::PermissionsExt;
    Ok(file.metadata()?.permissions().mode() & 0o007 != 0)
}

#[cfg(not(unix))]
fn is_public(_: &File) -> std::io::Result<bool> {
    Ok(false)
}

/// What was read so far.
struct Parsed<'a> {
    path: &'a Path,
    text: &'a str,
    root: &'a Command,
    entries: Vec<Entry>,
}

impl Parsed<'_> {
    fn line(&self, span: Range<usize>) -> usize {
        1 + self.text.bytes().take(span.start).filter(|byte| *byte == b'\n').count()
    }

    fn error(&self, span: Range<usize>, why: &str) -> CliError {
        let message = format!("{}:{}: {why}", self.path.display(), self.line(span));
        CliError::new(Code::Usage, message)
    }

    fn malformed(&self, error: &toml::de::Error) -> CliError {
        let lines: Vec<&str> = error.message().lines().collect();
        self.error(error.span().unwrap_or(0..0), &lines.join(": "))
    }

    fn table(&mut self, command: &[&str], table: &DeTable<'_>) -> Result<(), CliError> {
        for (key, value) in table {
            let (name, span) = (key.get_ref().as_ref(), key.span());
            if let DeValue::Table(inner) = value.get_ref() {
                let path = [command, &[name]].concat();
                if !COMMANDS.iter().any(|known| known.starts_with(&path)) {
                    let why =
                        format!("no command with options in this file is {:?}", path.join(" "));
                    return Err(self.error(span, &why));
                }
                self.table(&path, inner)?;
                continue;
            }
            let arg = self.option(command, name).map_err(|why| self.error(span.clone(), &why))?;
            let values = values(arg, value)
                .map_err(|why| self.error(value.span(), &format!("{name} is to be {why}")))?;
            let command = command.iter().map(|&word| word.to_owned()).collect();
            let line = self.line(span);
            self.entries.push(Entry { command, key: name.to_owned(), values, line });
        }
        Ok(())
    }

    /// The option of this key.
    fn option(&self, command: &[&str], key: &str) -> Result<&Arg, String> {
        let of = |path: &[&str]| {
            let is_it = |arg: &&Arg| arg.get_long() == Some(key);
            options(self.root, path).into_iter().find(is_it)
        };
        let anywhere = COMMANDS.iter().find_map(|path| Some((of(path)?, path)));
        match (command, anywhere) {
            ([], Some((arg, _))) => Ok(arg),
            (path, other) if is_daemon(path) && find(self.root, path).is_some() => of(path)
                .ok_or_else(|| match other {
                    Some((_, other)) => format!(
                        "`{}` has no option {key:?}; `{}` has",
                        path.join(" "),
                        other.join(" ")
                    ),
                    None => unknown(key),
                }),
            ([], None) => Err(unknown(key)),
            (path, _) => Err(format!("`{}` has no options in this file", path.join(" "))),
        }
    }
}

fn unknown(key: &str) -> String {
    match key.contains('_') {
        true => format!("no option is {key:?}: write {:?}", key.replace('_', "-")),
        false => format!("no option is {key:?}: write the long name of one"),
    }
}

/// The values as words of a command line. Fails with what the value is to be.
fn values(arg: &Arg, value: &Spanned<DeValue<'_>>) -> Result<Vec<OsString>, &'static str> {
    let value = value.get_ref();
    match (arg.get_action(), value) {
        (ArgAction::SetTrue, DeValue::Boolean(on)) => Ok(vec![on.to_string().into()]),
        (ArgAction::SetTrue, _) => Err("true or false"),
        (ArgAction::Count, DeValue::Integer(_)) => Ok(vec![word(value).ok_or("a number")?]),
        (ArgAction::Count, _) => Err("a number"),
        (ArgAction::Append, DeValue::Array(array)) => {
            let words = array.iter().map(|value| word(value.get_ref()));
            words.collect::<Option<_>>().ok_or("a list of texts or numbers")
        }
        (ArgAction::Append, _) => Ok(vec![word(value).ok_or("a list of texts or numbers")?]),
        _ => Ok(vec![word(value).ok_or("a text or a number")?]),
    }
}

fn word(value: &DeValue<'_>) -> Option<OsString> {
    match value {
        DeValue::String(text) => Some(text.as_ref().into()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use super::*;

    /// Words of a file: names of options and tables, values, and what is neither.
    const WORDS: [&str; 20] = [
        "lease",
        "shards",
        "prefer",
        "metadata",
        "verbose",
        "=",
        "[run]",
        "[set.run]",
        "[set]",
        "[",
        "]",
        "'10s'",
        "10",
        "-1",
        "0x10",
        "1.5",
        "true",
        "\n",
        "\u{0}",
        "{a=1}",
    ];

    #[test]
    fn any_file_is_read_or_refused_in_one_line() {
        let mut root = AssertUnwindSafe(crate::command());
        root.build();
        let files = bolero::produce::<Vec<(u8, Option<String>)>>().with().len(0_usize..12);
        bolero::check!().with_generator(files).for_each(|words| {
            let words = words.iter().map(|(number, other)| match other {
                Some(other) if number % 8 == 0 => other.as_str(),
                _ => WORDS[usize::from(*number) % WORDS.len()],
            });
            let text = words.collect::<Vec<_>>().join(" ");
            if let Err(error) = entries(Path::new("options.toml"), &text, &root) {
                let line = error.to_string();
                assert!(line.starts_with("options.toml:"), "{line}");
                assert_eq!(error.code(), Some(Code::Usage));
            }
        });
    }
}
