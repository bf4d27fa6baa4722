//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::faults::namespaces;
use crate::load::{candidate, choria_like, many};
use crate::plans::{chaos, sets, soak, takeover};
use crate::record::history::{self, Difference, Replayed};

/// Attacks elections and sets on real servers, and checks that at most one candidate leads at any
/// instant. Ends with 1 if a promise was broken, with 2 if something else failed.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// One fault after the other strikes an election on a cluster.
    Chaos(chaos::Options),
    /// Lists the faults of `chaos`.
    List,
    /// Replays histories of a run that was kept. Ends with 1 if one differs.
    Replay {
        /// The files: `history-…`.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Thousands of candidates run on a cluster whose servers are restarted.
    Soak(soak::Options),
    /// The members of a set are killed, stopped, paused, partitioned and added.
    Sets(sets::Options),
    /// The leader's host is cut off or frozen, at each of several leases, and its replacement is
    /// measured.
    Takeover(takeover::Options),
    /// Campaigns in an election of `chaos`.
    #[command(hide = true)]
    Candidate(candidate::Options),
    /// Campaigns there as Choria's candidates do.
    #[command(hide = true)]
    ChoriaLike(candidate::Options),
    /// Campaigns in all elections of `soak`.
    #[command(hide = true)]
    Worker(many::Options),
    /// Takes part in the set of `sets`.
    #[command(hide = true)]
    Member(many::Options),
}

/// Runs the command that was typed.
pub fn run() -> ExitCode {
    let command = Cli::parse().command;
    let has_hosts = match &command {
        Command::Chaos(options) => !options.loopback,
        Command::Takeover(_) => true,
        _ => false,
    };
    if has_hosts {
        namespaces::enter(); // before there are other threads
    }
    Runtime::new().expect("a runtime").block_on(execute(command))
}

async fn execute(command: Command) -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let done = match command {
        Command::List => {
            chaos::list();
            return ExitCode::SUCCESS;
        }
        Command::Replay { files } => return replay(&files),
        Command::Candidate(options) => {
            candidate::run(options).await;
            return ExitCode::SUCCESS;
        }
        Command::ChoriaLike(options) => {
            choria_like::run(options).await;
            return ExitCode::SUCCESS;
        }
        Command::Worker(options) => many::work(options).await.map(|()| ExitCode::SUCCESS),
        Command::Member(options) => many::be_member(options).await.map(|()| ExitCode::SUCCESS),
        plan => attack(&plan).await.map_err(Into::into),
    };
    done.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::from(2)
    })
}

async fn attack(plan: &Command) -> std::io::Result<ExitCode> {
    let program = std::env::current_exe()?;
    let attack = async {
        match plan {
            Command::Chaos(options) => chaos::run(options, &program).await,
            Command::Soak(options) => soak::run(options, &program).await,
            Command::Sets(options) => sets::run(options, &program).await,
            Command::Takeover(options) => takeover::run(options, &program).await,
            _ => Ok(ExitCode::SUCCESS),
        }
    };
    let mut terminate = signal(SignalKind::terminate())?;
    // Dropped in the middle it ends every process.
    tokio::select! {
        code = attack => return code,
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    eprintln!("interrupted");
    Ok(ExitCode::from(130))
}

fn replay(files: &[PathBuf]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for file in files {
        let what = match history::replay_file(file) {
            Ok(Ok(Replayed { events, actions, end, .. })) => {
                println!("{}: {events} events, {actions} actions, {end:?}", file.display());
                continue;
            }
            Ok(Err(Difference { line, error, .. })) => format!("line {line}: {error}"),
            Err(error) => error.to_string(),
        };
        eprintln!("{}: {what}", file.display());
        code = ExitCode::FAILURE;
    }
    code
}
