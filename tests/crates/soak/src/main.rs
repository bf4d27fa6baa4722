//! `incumbent-soak run`, and the workers that it starts.

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use incumbent_soak::{Plan, Work, soak, work};

/// Soaks elections on a cluster whose servers are restarted one after the other.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start three servers and a fleet, and watch them.
    Run(Plan),
    /// Be a process of the fleet.
    Work(Work),
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse().command).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<bool, Box<dyn Error>> {
    match command {
        Command::Work(as_told) => work(as_told).await.map(|()| true),
        Command::Run(plan) => {
            let report = soak(&std::env::current_exe()?, &plan).await?;
            println!("{report}");
            Ok(report.faults.is_empty())
        }
    }
}
