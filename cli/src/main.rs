//! The command line of incumbent.

mod campaign;
mod connection;
mod failure;

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
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("INCUMBENT_LOG")
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("error")),
        )
        .with_writer(std::io::stderr)
        .init();
    let result = match cli.command {
        Command::Campaign(command) => command.run().await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("incumbent: {error}");
            error.exit_code()
        }
    }
}
