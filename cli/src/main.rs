//! The command line of incumbent.
// An optimised build computes the layout of futures that are nested more than 128 deep.
#![recursion_limit = "256"]
// Much is used by the commands for Linux alone.
#![cfg_attr(not(target_os = "linux"), allow(dead_code, unused_imports))]

mod campaign;
mod candidate;
mod config;
mod console;
#[cfg(target_os = "linux")]
mod cron;
mod doctor;
mod election;
mod error;
mod http;
mod kv;
mod lock;
mod output;
mod process;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod sentinel;
mod set;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::error::{CliError, Code};

/// Leader election from the command line.
#[derive(Parser)]
#[command(name = "incumbent", version, max_term_width = 100, after_help = error::EXIT_CODES)]
#[command(mut_subcommands(output::reference::with_advanced_options))]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print results and errors only.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Log to standard error; repeat for more detail. INCUMBENT_LOG sets levels by module, as in
    /// incumbent=debug.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    /// When to print colors. `auto` follows NO_COLOR.
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN")]
    color: output::Color,
    /// A TOML file with options, as in lease = "10s"; see `incumbent config` [env:
    /// INCUMBENT_CONFIG].
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    Campaign(Box<campaign::Campaign>),
    #[cfg(target_os = "linux")]
    Run(Box<run::Run>),
    #[cfg(target_os = "linux")]
    Life(run::Life),
    #[cfg(target_os = "linux")]
    Sentinel(sentinel::Sentinel),
    #[cfg(target_os = "linux")]
    Cron(Box<cron::Cron>),
    #[cfg(not(target_os = "linux"))]
    Cron(campaign::linux_only::LinuxOnly),
    #[cfg(not(target_os = "linux"))]
    Run(campaign::linux_only::LinuxOnly),
    #[cfg(not(target_os = "linux"))]
    Life(campaign::linux_only::LinuxOnly),
    #[cfg(not(target_os = "linux"))]
    Sentinel(campaign::linux_only::LinuxOnly),
    Set(set::Set),
    Election(election::Election),
    Top(console::top::Top),
    Ui(console::ui::Ui),
    Record(console::record::Record),
    Observe(console::observe::Observe),
    Proxy(console::proxy::Proxy),
    Leader(election::leader::Leader),
    Kv(kv::Kv),
    Doctor(doctor::Doctor),
    Config(config::Config),
    Completions(output::reference::Completions),
    Man(output::reference::Manual),
    #[command(hide = true)]
    Reference(output::reference::Reference),
}

impl Command {
    /// Whether it only lists: nothing is left undone if its output is not read to the end.
    fn lists(&self) -> bool {
        match self {
            Self::Election(command) => command.lists(),
            Self::Kv(command) => command.lists(),
            Self::Set(command) => command.lists(),
            Self::Config(_) | Self::Completions(_) | Self::Man(_) | Self::Reference(_) => true,
            _ => false,
        }
    }
}

fn main() -> ExitCode {
    // Before anything starts that a command would inherit.
    #[cfg(target_os = "linux")]
    if let Some(code) = run::inner(std::env::args_os(), parse_sentinel, parse_traffic) {
        return code;
    }
    start()
}

/// The lock of a sentinel, from the arguments of `incumbent run` or `incumbent set run`.
#[cfg(target_os = "linux")]
fn parse_sentinel(args: Vec<String>) -> Option<run::SentinelArgs> {
    match Cli::try_parse_from(args).ok()?.command {
        Command::Run(run) => Some(run.sentinel_args()),
        Command::Cron(cron) => Some(cron.sentinel_args()),
        Command::Set(set) => set.sentinel_args(),
        _ => None,
    }
}

/// What directs requests to the leader, from the arguments of `incumbent run` or `campaign`.
#[cfg(target_os = "linux")]
fn parse_traffic(args: Vec<String>) -> Option<(run::traffic::TrafficArgs, lock::LockArgs)> {
    match Cli::try_parse_from(args).ok()?.command {
        Command::Run(run) => Some((run.term.traffic, run.lock)),
        Command::Campaign(campaign) => Some(campaign.into_traffic()),
        _ => None,
    }
}

/// The command line, with the variables of options in its help.
fn command() -> clap::Command {
    config::with_variables(Cli::command())
}

/// Parses the command line, completed by variables and by the file with options.
fn parse(arguments: Vec<OsString>) -> Result<Cli, CliError> {
    let mut line = config::CommandLine::complete(command(), arguments)?;
    let cli = line.parse::<Cli>()?;
    #[cfg(target_os = "linux")]
    process::set_own_arguments(line.arguments);
    lock::withhold(|| config::withheld(&Cli::command()));
    Ok(cli)
}

fn start() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return CliError::from(error).report(),
    };
    let code = runtime.block_on(run_command());
    // The lookup of a name cannot be given up, and may last for a minute.
    runtime.shutdown_timeout(Duration::from_secs(1));
    code
}

async fn run_command() -> ExitCode {
    let cli = match parse(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err(failure) => return failure.report(),
    };
    output::configure(cli.color, cli.quiet);
    if let Err(failure) = log(cli.verbose) {
        return failure.report();
    }
    let lists = cli.command.lists();
    let result = match cli.command {
        Command::Campaign(command) => command.run().await.map(|()| ExitCode::SUCCESS),
        Command::Set(command) => command.run().await,
        Command::Election(command) => command.run().await.map(|()| ExitCode::SUCCESS),
        Command::Top(command) => command.run().await.map(|()| ExitCode::SUCCESS),
        Command::Ui(command) => command.run().await.map(|()| ExitCode::SUCCESS),
        Command::Record(command) => command.run().await.map(|()| ExitCode::SUCCESS),
        Command::Observe(command) => command.run().await.map(|()| ExitCode::SUCCESS),
        Command::Proxy(command) => command.run().await.map(|()| ExitCode::SUCCESS),
        Command::Leader(command) => command.run().await.map(|()| ExitCode::SUCCESS),
        Command::Kv(command) => command.run().await.map(|()| ExitCode::SUCCESS),
        Command::Doctor(command) => command.run().await,
        Command::Config(show) => {
            show.run(&command(), cli.config.as_deref()).map(|()| ExitCode::SUCCESS)
        }
        Command::Completions(completions) => completions.run(command()).map(|()| ExitCode::SUCCESS),
        Command::Man(manual) => manual.run(command()).map(|()| ExitCode::SUCCESS),
        Command::Reference(command) => command.run(Cli::command()).map(|()| ExitCode::SUCCESS),
        #[cfg(target_os = "linux")]
        Command::Run(command) => match command.seats {
            Some(seats) => set::run_seats(*command, seats).await,
            None => command.run().await,
        },
        #[cfg(target_os = "linux")]
        Command::Cron(command) => command.run().await,
        #[cfg(not(target_os = "linux"))]
        Command::Cron(_) => Err(campaign::linux_only::LinuxOnly::refuse("cron")),
        #[cfg(target_os = "linux")]
        Command::Life(command) => command.run().await,
        #[cfg(target_os = "linux")]
        Command::Sentinel(command) => command.run().await,
        #[cfg(not(target_os = "linux"))]
        Command::Run(_) => Err(campaign::linux_only::LinuxOnly::refuse("run")),
        #[cfg(not(target_os = "linux"))]
        Command::Life(_) => Err(campaign::linux_only::LinuxOnly::refuse("life")),
        #[cfg(not(target_os = "linux"))]
        Command::Sentinel(_) => Err(campaign::linux_only::LinuxOnly::refuse("sentinel")),
    };
    match result {
        Ok(code) => code,
        // Its reader has seen enough, as `head`.
        Err(CliError::ClosedPipe) if lists => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Starts logging. Fails if INCUMBENT_LOG is malformed, before the command does anything.
fn log(verbose: u8) -> Result<(), CliError> {
    let level = match verbose {
        // Client failures at the default level are in the error that ends the program.
        0 => "incumbent=error",
        1 => "incumbent=info",
        2 => "incumbent=debug,async_nats=info",
        _ => "incumbent=trace,async_nats=debug,kube=debug",
    };
    let levels = std::env::var_os("INCUMBENT_LOG").filter(|levels| !levels.is_empty());
    let filter = match &levels {
        None => EnvFilter::new(level),
        Some(levels) => {
            levels.to_str().and_then(|levels| levels.parse().ok()).ok_or_else(|| {
                let hint = "list levels by module, as in incumbent=debug,async_nats=info";
                CliError::new(Code::Usage, format!("INCUMBENT_LOG {levels:?} is malformed: {hint}"))
            })?
        }
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(console::top::log_writer)
        .with_ansi(output::has_colors(&std::io::stderr()))
        .init();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::output::time_format;

    /// All words of the command line, and some unknown ones.
    fn vocabulary() -> Vec<String> {
        fn of(command: &clap::Command, words: &mut Vec<String>) {
            words.push(command.get_name().to_owned());
            let flags = command.get_arguments().filter_map(clap::Arg::get_long);
            words.extend(flags.map(|flag| format!("--{flag}")));
            command.get_subcommands().for_each(|command| of(command, words));
        }
        let mut words = Vec::new();
        of(&Cli::command(), &mut words);
        let spans =
            ["0s", "18446744073709551615s", "500000000000y", "1ns", "-1s", "99999999999999999999y"];
        let others = ["", "--", "-", "\u{0}", "a=b", "KEY", "sqlite:a", "\u{1b}[31m", "é"];
        words.extend(spans.into_iter().chain(others).map(str::to_owned));
        words
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn sentinel_parses_the_arguments_of_each_command_it_serves() {
        for line in ["run a", "set run a --shards 2", "cron a --schedule @daily", "cron a --file b"]
        {
            let words = line.split(' ').chain(process::NO_COMMAND);
            let words = std::iter::once("incumbent").chain(words).map(str::to_owned).collect();
            assert!(parse_sentinel(words).is_some(), "{line}");
        }
    }

    #[test]
    fn any_command_line_parses_or_is_refused() {
        let words = vocabulary();
        assert!(words.len() > 100, "{words:?}");
        let lines = bolero::produce::<Vec<(u16, Option<String>)>>().with().len(0_usize..12);
        bolero::check!().with_generator(lines).for_each(|line| {
            let words = line.iter().map(|(number, other)| match other {
                Some(other) => other.as_str(),
                None => words[usize::from(*number) % words.len()].as_str(),
            });
            let _ = Cli::try_parse_from(["incumbent"].into_iter().chain(words));
        });
    }

    #[test]
    fn durations_never_overflow() {
        type Spans = (u64, u32, u64, u32);
        bolero::check!().with_type::<Spans>().for_each(|(seconds, nanos, others, other_nanos)| {
            let below_a_second = |nanos: &u32| *nanos % 1_000_000_000;
            let first = Duration::new(*seconds, below_a_second(nanos));
            let second = Duration::new(*others, below_a_second(other_nanos));
            let _ = time_format::after(Instant::now(), first);
            let _ = (time_format::span(first), time_format::whole_seconds(second));
            #[cfg(target_os = "linux")]
            run::check_grace_bounds(first, second);
        });
    }
}
