//! Which options have a variable and a key, and the names of the variables.

use std::sync::LazyLock;

use clap::{Arg, ArgAction, Command};

use crate::lock::LockArgs;

/// The commands that run until they are stopped: all their long options have a variable.
pub const COMMANDS: [&[&str]; 10] = [
    &["run"],
    &["campaign"],
    &["set", "run"],
    &["life"],
    &["cron"],
    &["sentinel"],
    &["observe"],
    &["proxy"],
    &["ui"],
    &["record"],
];

/// The options that select the lock, and the kind of lock that alone has each.
static LOCK: LazyLock<Vec<(String, Option<&str>)>> = LazyLock::new(LockArgs::options);

/// What programs that this one starts see, behind the prefix: an `incumbent` among them must not
/// take it for an option.
const SEEN: [&str; 18] = [
    "ADDRESS",
    "CAUSE",
    "CHECKPOINT",
    "DEADLINE_FILE",
    "ELECTION",
    "EVENT",
    "IDENTITY",
    "JOB",
    "PID",
    "RESUMED",
    "SEAT",
    "SEATS",
    "SENTINEL",
    "SET",
    "SHARD",
    "SHARDS",
    "SLOT",
    "TOKEN",
];

/// Other variables of this program, behind the prefix. OPTIONS is of the systemd service.
const OTHERS: [&str; 4] = ["CONFIG", "LOG", "OPTIONS", "PEER_KEY_FILE"];

pub const PREFIX: &str = "INCUMBENT_";

/// The variable of the file with options.
pub const CONFIG: &str = "INCUMBENT_CONFIG";

/// The variable of the systemd service with options, which may have secrets.
pub const SERVICE_OPTIONS: &str = "INCUMBENT_OPTIONS";

/// The variable of a long option.
pub fn variable(long: &str) -> String {
    let name = long.to_ascii_uppercase().replace('-', "_");
    let flag = if SEEN.contains(&&*name) { "FLAG_" } else { "" };
    format!("{PREFIX}{flag}{name}")
}

/// What a program that this one starts sees, and must not see of an outer `incumbent`, such as the
/// file of another checkpoint.
pub fn seen() -> impl Iterator<Item = String> {
    SEEN.iter().map(|name| format!("{PREFIX}{name}"))
}

/// Whether the variable is one of this program, and of no option.
pub fn is_other(variable: &str) -> bool {
    let name = variable.strip_prefix(PREFIX).unwrap_or(variable);
    // Kubernetes sets these for a Service whose name begins so.
    let of_kubernetes = variable.contains("_SERVICE_") || variable.contains("_PORT");
    SEEN.contains(&name) || OTHERS.contains(&name) || of_kubernetes
}

/// Whether the command has a table in the file.
pub fn is_daemon(path: &[&str]) -> bool {
    COMMANDS.contains(&path)
}

/// The command at this path.
pub fn find<'a>(root: &'a Command, path: &[&str]) -> Option<&'a Command> {
    path.iter().try_fold(root, |command, name| command.find_subcommand(name))
}

/// The options of the command at this path that have a variable. `root` is built.
pub fn options<'a>(root: &'a Command, path: &[&str]) -> Vec<&'a Arg> {
    let Some(command) = find(root, path) else { return Vec::new() };
    let is_global = |arg: &Arg| root.get_arguments().any(|one| one.get_id() == arg.get_id());
    let is_included = |arg: &&Arg| is_daemon(path) || is_global(arg) || is_of_lock(arg);
    command.get_arguments().filter(|arg| has_variable(arg)).filter(is_included).collect()
}

/// Whether the option selects the lock: it has a variable with every command.
pub fn is_of_lock(arg: &Arg) -> bool {
    LOCK.iter().any(|(id, _)| arg.get_id() == id)
}

/// The kind of lock that alone has the option.
pub fn kind_of_lock(arg: &Arg) -> Option<&'static str> {
    LOCK.iter().find(|(id, _)| arg.get_id() == id)?.1
}

fn has_variable(arg: &Arg) -> bool {
    let acts = matches!(
        arg.get_action(),
        ArgAction::Set | ArgAction::Append | ArgAction::SetTrue | ArgAction::Count
    );
    acts && arg.get_long().is_some() && !arg.is_hide_set() && arg.get_id() != "config"
}

/// The command line with the variable of each option in its long help.
pub fn with_variables(root: Command) -> Command {
    let root = root.mut_args(|arg| if has_variable(&arg) { with_variable(arg) } else { arg });
    below(root, &[])
}

fn below(command: Command, path: &[&str]) -> Command {
    let mut command = command;
    let names: Vec<String> =
        command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    for name in names {
        command = command.mut_subcommand(&name, |verb| {
            let path = [path, &[&name]].concat();
            let verb = verb.mut_args(|arg| {
                let is_one = has_variable(&arg) && (is_daemon(&path) || is_of_lock(&arg));
                if is_one { with_variable(arg) } else { arg }
            });
            below(verb, &path)
        });
    }
    command
}

fn with_variable(arg: Arg) -> Arg {
    let Some(long) = arg.get_long() else { return arg };
    let variable = format!("[env: {}]", variable(long));
    match arg.get_long_help().or(arg.get_help()).map(ToString::to_string) {
        // A paragraph of its own below several.
        Some(help) if help.contains("\n\n") => arg.long_help(format!("{help}\n\n{variable}")),
        Some(help) => arg.long_help(format!("{help} {variable}")),
        None => arg.long_help(variable),
    }
}
