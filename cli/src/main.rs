//! The command line of incumbent.

mod campaign;
mod candidate;
mod connection;
mod doctor;
mod election;
mod failure;
mod kv;
mod manual;
mod output;
mod place;
mod prompt;
#[cfg(target_os = "linux")]
mod run;
mod when;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{ArgAction, Parser, Subcommand};

/// Keeps exactly one leader in office.
#[derive(Parser)]
#[command(name = "incumbent", version, max_term_width = 100, after_help = failure::EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print results and errors only.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Log what is done, on standard error; twice for more. INCUMBENT_LOG chooses by module.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    /// When to print colors.
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN")]
    color: output::Color,
}

#[derive(Subcommand)]
enum Command {
    Campaign(campaign::Campaign),
    #[cfg(target_os = "linux")]
    Run(run::Run),
    #[cfg(target_os = "linux")]
    Life(run::Life),
    Election(election::Election),
    Kv(kv::Kv),
    Doctor(doctor::Doctor),
    Completions(manual::Completions),
    Man(manual::Manual),
    #[command(hide = true)]
    Reference(manual::Reference),
}

fn main() -> ExitCode {
    // Before anything is started that a command would inherit.
    #[cfg(target_os = "linux")]
    if let Some(code) = run::inner(std::env::args_os()) {
        return code;
    }
    start()
}

#[tokio::main]
async fn start() -> ExitCode {
    let cli = Cli::parse();
    output::configure(cli.color, cli.quiet);
    log(cli.verbose);
    let result = match cli.command {
        Command::Campaign(command) => command.run().await.map(|()| ExitCode::SUCCESS),
        Command::Election(command) => command.run().await.map(|()| ExitCode::SUCCESS),
        Command::Kv(command) => command.run().await.map(|()| ExitCode::SUCCESS),
        Command::Doctor(command) => command.run().await,
        Command::Completions(command) => command.run().map(|()| ExitCode::SUCCESS),
        Command::Man(command) => command.run().map(|()| ExitCode::SUCCESS),
        Command::Reference(command) => command.run().map(|()| ExitCode::SUCCESS),
        #[cfg(target_os = "linux")]
        Command::Run(command) => command.run().await,
        #[cfg(target_os = "linux")]
        Command::Life(command) => command.run().await,
    };
    match result {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn log(verbose: u8) {
    let level = match verbose {
        // What the client logs of a failure is in the error that ends the program.
        0 => "incumbent=error",
        1 => "incumbent=info",
        2 => "incumbent=debug,async_nats=info",
        _ => "incumbent=trace,async_nats=debug,kube=debug",
    };
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("INCUMBENT_LOG")
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level)),
        )
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}
