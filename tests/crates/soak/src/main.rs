//! `incumbent-soak run` and `incumbent-soak sets`, and the processes that they start.

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use incumbent_soak::sets::{Member, SetPlan, be_member, soak_set};
use incumbent_soak::{Plan, Work, soak, work};

/// Soaks elections on a cluster whose servers are restarted, and sets whose members are attacked.
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
    /// Attack the members of a set, and check what they work on.
    Sets(SetPlan),
    /// Be a member of the set.
    Member(Member),
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
        Command::Member(member) => be_member(member).await.map(|()| true),
        Command::Sets(plan) => {
            let report = soak_set(&std::env::current_exe()?, &plan).await?;
            println!("{report}");
            Ok(report.is_clean())
        }
        Command::Run(plan) => {
            let report = soak(&std::env::current_exe()?, &plan).await?;
            println!("{report}");
            Ok(report.faults.is_empty())
        }
    }
}
