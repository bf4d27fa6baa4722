//! `incumbent config`: the options in force, and where each comes from.

use std::ffi::OsString;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, Command};
use serde::Serialize;

use super::line::CommandLine;
use super::names::{COMMANDS, PREFIX, find, is_other, options, variable};
use super::source::{Source, shown};
use crate::error::{CliError, EXIT_CODES};
use crate::output::{self, Format, Printing};

/// Show the options in force, and where each comes from.
///
/// Each long option of run, campaign, set run, life, cron, sentinel, observe, proxy, ui and record
/// has a variable and a key: --check-interval has INCUMBENT_CHECK_INTERVAL, and `check-interval` in
/// the file of --config. Options that select the lock have them with every command. An option on
/// the command line overrides its variable, which overrides the file.
///
/// With COMMAND and its arguments it shows the options that this command has, with their defaults:
/// incumbent config run my-app --lease 5s. Else those that variables and the file set for any
/// command. Passwords are hidden. Variables INCUMBENT_… that are none of an option are reported.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub struct Config {
    #[command(flatten)]
    printing: Printing,
    /// A command and its arguments, as after `incumbent`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    words: Vec<OsString>,
}

/// An option in force.
#[derive(PartialEq, Serialize)]
struct InForce {
    /// With its command if it stands in the table of one.
    option: String,
    values: Vec<String>,
    from: String,
}

/// What is shown.
#[derive(Default, Serialize)]
struct Report {
    options: Vec<InForce>,
    /// Variables and keys without effect, with what excludes each.
    excluded: Vec<(String, String)>,
    unknown_variables: Vec<String>,
}

impl Config {
    /// `definition`: the command line, which is not built. `file`: that of `--config`.
    pub fn run(&self, definition: &Command, file: Option<&Path>) -> Result<(), CliError> {
        let mut report =
            Report { unknown_variables: unknown_variables(definition), ..Report::default() };
        let known = COMMANDS.iter().filter(|path| find(definition, path).is_some());
        let daemons = known.map(|path| path.iter().map(OsString::from).collect());
        let lines: Vec<Vec<OsString>> = match self.words.is_empty() {
            true => daemons.collect(),
            false => vec![self.words.clone()],
        };
        for words in lines {
            let file = file.map(|file| {
                let mut word = OsString::from("--config=");
                word.push(file);
                word
            });
            let start = [OsString::from("incumbent")].into_iter().chain(file);
            let line = CommandLine::complete(definition.clone(), start.chain(words).collect())?;
            report.add(line, definition, !self.words.is_empty())?;
        }
        self.print(&report)
    }

    fn print(&self, report: &Report) -> Result<(), CliError> {
        if self.printing.output == Format::Json {
            return output::json(report);
        }
        let row = |one: &InForce| [one.option.clone(), one.values.join(","), one.from.clone()];
        output::table(["option", "value", "from"], report.options.iter().map(row))?;
        for (source, by) in &report.excluded {
            output::note(format!("{source} has no effect: {by} excludes it"));
        }
        for name in &report.unknown_variables {
            output::note(format!("{name} has no effect: it is no variable of an option"));
        }
        Ok(())
    }
}

impl Report {
    /// `is_whole`: with the defaults and with what the command line has.
    fn add(
        &mut self,
        mut line: CommandLine,
        definition: &Command,
        is_whole: bool,
    ) -> Result<(), CliError> {
        let excluded = line.excluded.iter().map(|one| (one.source.to_string(), one.by.clone()));
        self.excluded.extend(excluded);
        let path: Vec<String> = line.path.clone();
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let Some(matches) = line.matches(definition, is_whole)? else { return Ok(()) };
        let mut given = &matches;
        while let Some((_, below)) = given.subcommand() {
            given = below;
        }
        for arg in options(&line.command, &path) {
            let id = arg.get_id().as_str();
            let added = line.added.iter().find(|added| added.id == id);
            let source = match (added, given.value_source(id)) {
                (Some(added), _) => added.source.clone(),
                (None, Some(ValueSource::CommandLine)) => Source::CommandLine,
                (None, Some(_)) => Source::Default,
                (None, None) => continue,
            };
            let values = values(given, id, arg.get_action());
            let is_off = source == Source::Default && values.iter().all(|one| one == "false");
            if is_off || (added.is_none() && !is_whole) {
                continue;
            }
            let command = match &source {
                Source::File { in_table: true, .. } if !is_whole => format!("{} ", path.join(" ")),
                _ => String::new(),
            };
            let option = format!("{command}--{}", arg.get_long().unwrap_or_default());
            let row = InForce { option, values, from: source.to_string() };
            if !self.options.contains(&row) {
                self.options.push(row);
            }
        }
        Ok(())
    }
}

/// The values of an option, without secrets.
fn values(given: &ArgMatches, id: &str, action: &ArgAction) -> Vec<String> {
    match action {
        ArgAction::SetTrue => vec![given.get_flag(id).to_string()],
        ArgAction::Count => match given.get_count(id) {
            0 => vec!["false".to_owned()],
            count => vec![count.to_string()],
        },
        _ => {
            let raw = given.get_raw(id).into_iter().flatten();
            raw.map(|value| shown(id, &value.to_string_lossy())).collect()
        }
    }
}

/// The variables with the prefix that are none of this program.
fn unknown_variables(definition: &Command) -> Vec<String> {
    let mut root = definition.clone();
    root.build();
    let all = COMMANDS.iter().flat_map(|path| options(&root, path));
    let known: Vec<String> = all.filter_map(|arg| arg.get_long()).map(variable).collect();
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let is_unknown =
        |name: &String| name.starts_with(PREFIX) && !known.contains(name) && !is_other(name);
    let mut names: Vec<String> = names.filter(is_unknown).collect();
    names.sort_unstable();
    names
}
