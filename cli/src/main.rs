//! The command line of incumbent.

mod campaign;
mod connection;
mod failure;
#[cfg(target_os = "linux")]
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Keeps exactly one leader in office.
#[derive(Parser)]
#[command(name = "incumbent", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Campaign(campaign::Campaign),
    #[cfg(target_os = "linux")]
    Run(run::Run),
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
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("INCUMBENT_LOG")
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("error")),
        )
        .with_writer(std::io::stderr)
        .init();
    let result = match cli.command {
        Command::Campaign(command) => command.run().await.map(|()| ExitCode::SUCCESS),
        #[cfg(target_os = "linux")]
        Command::Run(command) => command.run().await,
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("incumbent: {error}");
            error.exit_code()
        }
    }
}
