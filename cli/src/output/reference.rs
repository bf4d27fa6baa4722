//! `incumbent completions`, `man` and `reference`, generated from the command-line definition.

use std::io;
use std::path::PathBuf;

use clap::{Arg, Args, Command, Id};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::error::{CliError, Code};
use crate::output;

/// Options that few fleets need: `-h` leaves them out, and `--help` and the manual have them under
/// "Advanced".
const ADVANCED: [&str; 36] = [
    "check_failures",
    "check_interval",
    "conflict_exit_code",
    "http_token_file",
    "http_ui",
    "inbox_prefix",
    "js_api_prefix",
    "js_domain",
    "leader_label",
    "life_kind",
    "metadata",
    "moves_at_once",
    "nkey",
    "no_create",
    "no_sentinel",
    "object",
    "once_per",
    "pass_env",
    "pod",
    "pod_deletion_cost",
    "prefer",
    "prefer_after",
    "queue_groups",
    "ready_when_leading",
    "resizing",
    "seats",
    "service",
    "settle",
    "site",
    "stand_aside",
    "tlsca",
    "tlscert",
    "tlskey",
    "virtual_ip",
    "watchdog",
    "with_choria",
];

/// Arranges the options of a command and of its subcommands.
pub fn with_advanced_options(command: Command) -> Command {
    let arranged = command.mut_args(|arg| match ADVANCED.contains(&arg.get_id().as_str()) {
        true => arg.help_heading("Advanced").hide_short_help(true),
        false => arg,
    });
    arranged.mut_subcommands(with_advanced_options)
}

/// Print the completions for a shell.
///
/// For bash: incumbent completions bash > ~/.local/share/bash-completion/completions/incumbent
#[derive(Args)]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Print the manual page, or write that of every command into a directory.
#[derive(Args)]
pub struct Manual {
    /// The directory, such as /usr/local/share/man/man1.
    directory: Option<PathBuf>,
}

/// Print the reference of all commands as Markdown.
#[derive(Args)]
pub struct Reference {}

impl Completions {
    /// `command`: the whole command line.
    pub fn run(&self, mut command: Command) -> Result<(), CliError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "incumbent", &mut script);
        output::bytes(&script)
    }
}

impl Manual {
    pub fn run(&self, command: Command) -> Result<(), CliError> {
        let Some(directory) = &self.directory else {
            let mut page = Vec::new();
            Man::new(command).render(&mut page)?;
            return output::bytes(&page);
        };
        let unwritten = |error: io::Error| {
            let message = format!("cannot write manual pages in {}: {error}", directory.display());
            CliError::new(Code::Failed, message)
        };
        std::fs::create_dir_all(directory).map_err(unwritten)?;
        clap_mangen::generate_to(command, directory).map_err(unwritten)?;
        output::note(format!("wrote the manual pages into {}", directory.display()));
        Ok(())
    }
}

impl Reference {
    pub fn run(&self, command: Command) -> Result<(), CliError> {
        let mut command = command.disable_help_subcommand(true).term_width(100);
        command.build();
        let mut text = String::from(
            "# The command line\n\nAfter this page you know every command, flag and exit code of `incumbent`.\n\n\
             It is the output of `incumbent --help` and of each command's help, which `make cli-doc` \
             writes.\nOptions that a group of commands shares are listed with the group, those that \
             [select the lock](#the-lock)\nonce. \
             Options have [variables, and keys of a file](configuration.md), too.\n",
        );
        let lock = lock_options(&command);
        describe(&command, "incumbent", &[], &lock, &mut text);
        output::bytes(text.as_bytes())
    }
}

/// The options that select a lock, of the first command that has them: by their headings, and those
/// under "Advanced" by the groups that clap makes of the structs with them.
fn lock_options(command: &Command) -> Vec<Arg> {
    const GROUPS: [&str; 3] = ["KubernetesArgs", "BucketArgs", "ConnectionArgs"];
    let options = |command: &Command| -> Vec<Arg> {
        let groups = command.get_groups().filter(|group| GROUPS.contains(&group.get_id().as_str()));
        let ids: Vec<Id> = groups.flat_map(|group| group.get_args().cloned()).collect();
        let selects = |arg: &&Arg| {
            let heading = matches!(arg.get_help_heading(), Some("Lock" | "Connection"));
            heading || ids.contains(arg.get_id()) || arg.get_id() == "life_kind"
        };
        command.get_arguments().filter(selects).cloned().collect()
    };
    command.get_subcommands().map(options).find(|options| !options.is_empty()).unwrap_or_default()
}

/// Appends the help of a command and its subcommands, without the arguments in `described`, and
/// without those of `lock`, which have a section of their own before the first subcommand.
fn describe(command: &Command, name: &str, described: &[Id], lock: &[Arg], text: &mut String) {
    let same = |one: &Arg, other: &Arg| {
        one.get_id() == other.get_id() && one.get_long_help() == other.get_long_help()
    };
    let takes_lock = lock.iter().all(|arg| command.get_arguments().any(|own| same(arg, own)));
    let is_of_lock = |arg: &Arg| takes_lock && lock.iter().any(|other| same(arg, other));
    let hide = |arg: Arg| {
        let hidden = arg.is_hide_set() || described.contains(arg.get_id()) || is_of_lock(&arg);
        arg.hide(hidden)
    };
    section(name, &command.clone().mut_args(hide), text);
    if takes_lock {
        text.push_str("\nIt also takes the options of [the lock](#the-lock).\n");
    }
    if name == "incumbent" {
        let options = Command::new("lock").help_template("{all-args}").disable_help_flag(true);
        section("The lock", &options.term_width(100).args(lock), text);
    }
    let described: Vec<Id> = (command.get_arguments().filter(|arg| arg.is_global_set()))
        .map(|arg| arg.get_id().clone())
        .chain([Id::from("help")])
        .collect();
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        describe(verb, &format!("{name} {}", verb.get_name()), &described, lock, text);
    }
}

/// Appends a section with the help of a command.
fn section(title: &str, command: &Command, text: &mut String) {
    let help = command.clone().render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    text.push_str(&format!("\n## {title}\n\n```text\n{}\n```\n", help.join("\n").trim_end()));
}
