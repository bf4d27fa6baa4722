//! The command line, completed by variables and by the file with options.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

use super::file::OptionsFile;
use super::names::{
    COMMANDS, CONFIG, SERVICE_OPTIONS, find, is_of_lock, kind_of_lock, options, variable,
};
use super::source::{Source, is_secret};
use crate::error::{CliError, Code};

/// The most repetitions of a flag that counts.
const MAX_COUNT: usize = 9;

/// The options with credentials of NATS.
const CREDENTIALS: [&str; 6] = ["creds", "nkey", "user", "password", "tlscert", "tlskey"];

/// An option that a variable or the file sets.
struct Setting<'a> {
    arg: &'a Arg,
    values: Vec<OsString>,
    source: Source,
}

/// An option of a weaker source that another one excludes.
pub struct Excluded {
    pub source: Source,
    pub by: String,
}

/// A command line with what variables and the file add.
pub struct CommandLine {
    /// The whole command line, built.
    pub command: Command,
    /// The path of the command.
    pub path: Vec<String>,
    pub added: Vec<Added>,
    pub excluded: Vec<Excluded>,
    pub arguments: Vec<OsString>,
}

/// An option that was added to the command line.
pub struct Added {
    pub id: String,
    pub long: String,
    pub source: Source,
    words: Vec<OsString>,
}

impl CommandLine {
    /// Completes the arguments. `definition`: the command line, which is not built.
    pub fn complete(definition: Command, arguments: Vec<OsString>) -> Result<Self, CliError> {
        let lenient = definition.clone().ignore_errors(true).try_get_matches_from(&arguments);
        let mut command = definition;
        command.build();
        let (path, added, excluded) = (Vec::new(), Vec::new(), Vec::new());
        let mut line = Self { command, path, added, excluded, arguments };
        // None: help, which needs no options.
        let Ok(matches) = lenient else { return Ok(line) };
        let mut given = &matches;
        while let Some((name, below)) = given.subcommand() {
            line.path.push(name.to_owned());
            given = below;
        }
        let path: Vec<&str> = line.path.iter().map(String::as_str).collect();
        if path.is_empty() || path == ["config"] {
            return Ok(line); // `config` completes the command line that it shows
        }
        let file = match given.try_get_one::<PathBuf>("config").ok().flatten() {
            Some(file) => Some(file.clone()),
            None => text_of(CONFIG).map(PathBuf::from),
        };
        let file = file.map(|file| OptionsFile::read(&file, &line.command)).transpose()?;
        let settings = missing(&line.command, &path, given, file.as_ref())?;
        let (settings, excluded) = without_excluded(&line.command, &path, given, settings)?;
        let words: Vec<OsString> = settings.iter().flat_map(Setting::words).collect();
        let added = settings.iter().filter(|setting| !setting.words().is_empty());
        let added = added.map(|setting| Added {
            id: setting.arg.get_id().to_string(),
            long: long(setting.arg),
            source: setting.source.clone(),
            words: setting.words(),
        });
        line.added = added.collect();
        line.excluded = excluded;
        let end = line.arguments.iter().position(|word| word == "--");
        let end = end.unwrap_or(line.arguments.len());
        line.arguments.splice(end..end, words);
        Ok(line)
    }

    /// Parses the completed arguments. Fails with one line; prints help and exits.
    pub fn parse<C: FromArgMatches>(&mut self) -> Result<C, CliError> {
        let parsed = self.command.try_get_matches_from_mut(&self.arguments);
        let parsed = parsed.and_then(|matches| C::from_arg_matches(&matches));
        parsed.map_err(|error| self.refusal(error))
    }

    /// What is parsed, also if the name or the command is missing, and unless `is_whole` also if
    /// something else that is required is; `None` for help.
    pub fn matches(
        &mut self,
        definition: &Command,
        is_whole: bool,
    ) -> Result<Option<ArgMatches>, CliError> {
        match self.command.try_get_matches_from_mut(&self.arguments) {
            Ok(matches) => Ok(Some(matches)),
            Err(error) if !error.use_stderr() => Ok(None),
            Err(error) if is_incomplete(&error) => match self.explain(&error) {
                Some(refused) if is_whole => Err(refused),
                _ => {
                    let lenient = definition.clone().ignore_errors(true);
                    Ok(lenient.try_get_matches_from(&self.arguments).ok())
                }
            },
            Err(error) => Err(self.refusal(error)),
        }
    }

    /// The line that says what is wrong with the arguments. Prints help, and exits.
    fn refusal(&mut self, error: clap::Error) -> CliError {
        let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
        if is_help || !error.use_stderr() {
            error.exit();
        }
        if let Some(refused) = self.explain(&error) {
            return refused;
        }
        let program = [self.command.get_name()];
        let words = program.into_iter().chain(self.path.iter().map(String::as_str));
        let command = words.collect::<Vec<_>>().join(" ");
        let reason = reason(&error.to_string());
        CliError::new(Code::Usage, format!("{reason}; see `{command} --help`"))
    }

    /// The error of options that were added; `None` for any other error.
    fn explain(&mut self, error: &clap::Error) -> Option<CliError> {
        let causes = match error.kind() {
            _ if !error.use_stderr() => return None,
            ErrorKind::MissingRequiredArgument => self.that_require(error),
            ErrorKind::InvalidUtf8 => {
                let is_text =
                    |added: &&Added| added.words.iter().all(|word| word.to_str().is_some());
                self.added.iter().filter(|added| !is_text(added)).collect()
            }
            _ => self.named(error),
        };
        if causes.is_empty() {
            return None;
        }
        let sources: Vec<String> = causes.iter().map(|added| added.source.to_string()).collect();
        let mut text = error.to_string();
        // Before the text is cut and its blanks change: the value may have any.
        if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue)
            && causes.iter().any(|added| is_secret(&added.id, value))
        {
            text = text.replace(value, "***");
        }
        let reason = reason(&text);
        Some(CliError::new(Code::Usage, format!("{}: {reason}", sources.join(", "))))
    }

    /// The options that the error names.
    fn named(&self, error: &clap::Error) -> Vec<&Added> {
        let mut named: Vec<&str> = Vec::new();
        for kind in [ContextKind::InvalidArg, ContextKind::PriorArg] {
            match error.get(kind) {
                Some(ContextValue::String(one)) => named.push(one),
                Some(ContextValue::Strings(many)) => {
                    named.extend(many.iter().map(String::as_str));
                }
                _ => {}
            }
        }
        let is_named = |added: &&Added| {
            named.iter().any(|name| name.split([' ', '=']).next() == Some(&added.long))
        };
        self.added.iter().filter(is_named).collect()
    }

    /// The options without which less is missing.
    fn that_require(&mut self, error: &clap::Error) -> Vec<&Added> {
        let missing = |error: &clap::Error| match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::Strings(missing)) => missing.len(),
            _ => 0,
        };
        let Self { command, added, arguments, .. } = self;
        let requires = |one: &&Added| {
            let rest = arguments.iter().filter(|word| !one.words.contains(word));
            match command.try_get_matches_from_mut(rest) {
                Ok(_) => true,
                Err(other) => missing(&other) < missing(error),
            }
        };
        added.iter().filter(requires).collect()
    }
}

/// What an error says, and its tip, without the usage.
fn reason(text: &str) -> String {
    let mut parts = text.split("\n\n").map(str::trim);
    let reason = parts.next().unwrap_or_default();
    let reason = reason.strip_prefix("error: ").unwrap_or(reason);
    let tips = parts.flat_map(str::lines).filter_map(|line| line.trim().strip_prefix("tip: "));
    let said = [reason]
        .into_iter()
        .chain(tips)
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    said.collect::<Vec<_>>().join("; ")
}

/// Whether something that the command requires is missing.
fn is_incomplete(error: &clap::Error) -> bool {
    use ErrorKind::{
        DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument, MissingSubcommand,
    };
    let kinds =
        [DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument, MissingSubcommand];
    kinds.contains(&error.kind())
}

/// The variables of options that a program which is started does not inherit. Those that select the
/// lock remain, so that an `incumbent` in it finds the same one.
pub fn withheld(definition: &Command) -> Vec<String> {
    let mut command = definition.clone();
    command.build();
    let mut names = vec![CONFIG.to_owned(), SERVICE_OPTIONS.to_owned()];
    for path in COMMANDS {
        for arg in options(&command, path) {
            let is_kept = is_of_lock(arg) && !CREDENTIALS.contains(&arg.get_id().as_str());
            let name = variable(arg.get_long().unwrap_or_default());
            let has_secret = text_of(&name)
                .is_some_and(|value| is_secret(arg.get_id().as_str(), &value.to_string_lossy()));
            names.extend((!is_kept || has_secret).then_some(name));
        }
    }
    names.sort_unstable();
    names.dedup();
    names.retain(|name| std::env::var_os(name).is_some());
    names
}

/// The value of a variable, unless it is empty.
fn text_of(variable: &str) -> Option<OsString> {
    std::env::var_os(variable).filter(|value| !value.is_empty())
}

fn long(arg: &Arg) -> String {
    format!("--{}", arg.get_long().unwrap_or_default())
}

/// What the command line does not give, and a variable or the file does, the strongest first.
fn missing<'a>(
    root: &'a Command,
    path: &[&str],
    given: &ArgMatches,
    file: Option<&OptionsFile>,
) -> Result<Vec<Setting<'a>>, CliError> {
    let mut settings = Vec::new();
    for arg in options(root, path) {
        let Some(long) = arg.get_long().filter(|_| !is_given(given, arg)) else { continue };
        let name = variable(long);
        let (values, source) = match (text_of(&name), file.and_then(|file| file.get(path, long))) {
            (Some(value), _) => {
                let malformed = |why| {
                    CliError::new(Code::Usage, format!("{name} {value:?}: it is to be {why}"))
                };
                (values(arg, &value).map_err(malformed)?, Source::Variable(name))
            }
            (None, Some((values, source))) => (values.to_vec(), source),
            (None, None) => continue,
        };
        settings.push(Setting { arg, values, source });
    }
    settings.sort_by_key(|setting| std::cmp::Reverse(setting.source.rank()));
    Ok(settings)
}

/// Whether the command line has it.
fn is_given(given: &ArgMatches, arg: &Arg) -> bool {
    let known = given.try_contains_id(arg.get_id().as_str()).is_ok();
    known && given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
}

/// The values in a variable. Fails with what they are to be.
fn values(arg: &Arg, value: &OsStr) -> Result<Vec<OsString>, &'static str> {
    let text = value.to_str();
    match arg.get_action() {
        ArgAction::SetTrue => match text.map(str::to_ascii_lowercase).as_deref() {
            Some("true" | "1" | "yes" | "on") => Ok(vec!["true".into()]),
            Some("false" | "0" | "no" | "off") => Ok(vec!["false".into()]),
            _ => Err("true or false"),
        },
        ArgAction::Append => {
            let words = text.ok_or("text in UTF-8")?.split(',').map(str::trim);
            Ok(words.filter(|word| !word.is_empty()).map(OsString::from).collect())
        }
        ArgAction::Count => match text.map(str::parse::<usize>) {
            Some(Ok(0..=MAX_COUNT)) => Ok(vec![value.to_owned()]),
            _ => Err("a number of 0 to 9"),
        },
        _ => Ok(vec![value.to_owned()]),
    }
}

/// Leaves out what an option of a stronger source excludes. Of one source, the parser refuses them.
fn without_excluded<'a>(
    root: &'a Command,
    path: &[&str],
    given: &ArgMatches,
    settings: Vec<Setting<'a>>,
) -> Result<(Vec<Setting<'a>>, Vec<Excluded>), CliError> {
    let Some(command) = find(root, path) else { return Ok((settings, Vec::new())) };
    let mut present: Vec<(&Arg, u8)> = command
        .get_arguments()
        .filter(|arg| is_given(given, arg))
        .map(|arg| (arg, Source::CommandLine.rank()))
        .collect();
    let lock = command.get_arguments().find(|arg| is_given(given, arg) && arg.get_id() == "lock");
    let lock = lock.and_then(|_| given.get_raw("lock")?.next());
    let mut lock = (lock.map(OsStr::to_owned), Source::CommandLine.rank());
    let (mut kept, mut excluded) = (Vec::new(), Vec::new());
    for setting in settings {
        let (arg, rank) = (setting.arg, setting.source.rank());
        if arg.get_id() == "lock" {
            lock = (setting.values.first().cloned(), rank);
        }
        let other = present.iter().find(|(other, others)| {
            *others > rank && (conflicts(command, arg, other) || conflicts(command, other, arg))
        });
        let by = match other {
            Some((other, _)) => Some(other.to_string()),
            None => {
                let of_other = kind_of_lock(arg).is_some_and(|kind| {
                    lock.0.as_ref().is_some_and(|lock| lock != kind) && lock.1 > rank
                });
                let url = lock.0.as_ref().and_then(|lock| lock.to_str()).unwrap_or_default();
                let is_of_nats = url.starts_with("nats:") || url.starts_with("tls:");
                if of_other && is_of_nats && CREDENTIALS.contains(&arg.get_id().as_str()) {
                    return Err(credentials_left_out(&setting));
                }
                of_other.then(|| "--lock".to_owned())
            }
        };
        match by.filter(|_| !setting.words().is_empty()) {
            Some(by) => excluded.push(Excluded { source: setting.source, by }),
            None => {
                if !setting.words().is_empty() {
                    present.push((arg, rank));
                }
                kept.push(setting);
            }
        }
    }
    Ok((kept, excluded))
}

/// The lock would be connected to without them.
fn credentials_left_out(setting: &Setting<'_>) -> CliError {
    let Setting { arg, source, .. } = setting;
    let why = "has no effect on the URL of --lock, which would connect without it: write the \
               credentials into the URL, such as ?creds=FILE";
    CliError::new(Code::Usage, format!("{source}: {} {why}", long(arg)))
}

fn conflicts(command: &Command, arg: &Arg, other: &Arg) -> bool {
    let is_one_of_a_group = command.get_groups().any(|group| {
        let has = |arg: &Arg| group.get_args().any(|id| id == arg.get_id());
        has(arg) && has(other) && !group.clone().is_multiple()
    });
    let named = command.get_arg_conflicts_with(arg);
    is_one_of_a_group || named.iter().any(|one| one.get_id() == other.get_id())
}

impl Setting<'_> {
    /// The words of the command line.
    fn words(&self) -> Vec<OsString> {
        let long = long(self.arg);
        let count = |value: &OsString| value.to_str().and_then(|text| text.parse().ok());
        match (self.arg.get_action(), self.values.first()) {
            (ArgAction::SetTrue, Some(on)) => {
                if on == "true" {
                    vec![long.into()]
                } else {
                    Vec::new()
                }
            }
            (ArgAction::Count, Some(value)) => {
                vec![long.into(); count(value).unwrap_or(0).min(MAX_COUNT)]
            }
            _ => {
                let word = |value: &OsString| {
                    let mut word = OsString::from(format!("{long}="));
                    word.push(value);
                    word
                };
                self.values.iter().map(word).collect()
            }
        }
    }
}
