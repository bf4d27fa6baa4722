//! The program of the chaos harness: the harness itself, and the candidates that it starts.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use incumbent_chaos::fault::{Entry, TABLE, named};
use incumbent_chaos::{candidate, choria_like, history, run, table};
use tokio::signal::unix::{SignalKind, signal};

/// Attacks elections on a real cluster, and checks that at most one candidate leads at any instant.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Attacks, and prints a table. Ends with 1 if a promise was broken, with 2 if the harness
    /// itself failed.
    Run(Run),
    /// Lists the faults.
    List,
    /// Replays histories of a run that was kept. Ends with 1 if one differs.
    Replay {
        /// The files: `history-…`.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Says by its exit code whether a host answers, be it with a refusal.
    #[command(hide = true)]
    Reach {
        /// Its address and a port.
        host: std::net::SocketAddr,
    },
    /// Campaigns in an election for the harness.
    #[command(hide = true)]
    Candidate(candidate::Options),
    /// The same as Choria's candidates do it.
    #[command(hide = true)]
    ChoriaLike(candidate::Options),
}

#[derive(clap::Args)]
struct Run {
    /// For how long.
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// Decides the order of faults, whom they strike, and all durations. Random unless given.
    #[arg(long)]
    seed: Option<u64>,
    /// This fault, once, instead of all; may be given several times. See `list`.
    #[arg(long = "fault", value_parser = fault)]
    faults: Vec<&'static Entry>,
    /// How often the faults that were named come.
    #[arg(long, default_value_t = 1)]
    times: usize,
    /// The lease and the bucket's TTL in milliseconds.
    #[arg(long, default_value_t = 3000)]
    lease: u64,
    /// On the loopback interface, even where network namespaces can be had.
    #[arg(long)]
    loopback: bool,
    /// Go on after a broken promise.
    #[arg(long)]
    keep_going: bool,
    /// Keep the log and the histories, and print where.
    #[arg(long)]
    keep: bool,
}

fn fault(name: &str) -> Result<&'static Entry, String> {
    named(name).ok_or_else(|| format!("no fault is called {name:?}; `list` lists them"))
}

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    match Cli::parse().command {
        Command::Candidate(options) => candidate::run(options).await,
        Command::ChoriaLike(options) => choria_like::run(options).await,
        Command::List => {
            for entry in TABLE {
                let fleets: Vec<_> = entry.fleets.iter().map(|kind| kind.name()).collect();
                println!("{:<34} {}", entry.name, fleets.join(", "));
            }
        }
        Command::Reach { host } => return reach(host),
        Command::Replay { files } => return replay(&files),
        Command::Run(options) => return attack(options).await,
    }
    ExitCode::SUCCESS
}

fn reach(host: std::net::SocketAddr) -> ExitCode {
    match std::net::TcpStream::connect_timeout(&host, Duration::from_secs(2)) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionRefused => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

fn replay(files: &[PathBuf]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for file in files {
        let said = match history::replay_file(file) {
            Ok(Ok(history::Replayed { events, actions, end, .. })) => {
                println!("{}: {events} events, {actions} actions, {end:?}", file.display());
                continue;
            }
            Ok(Err(history::Difference { line, error, .. })) => format!("line {line}: {error}"),
            Err(error) => error.to_string(),
        };
        eprintln!("{}: {said}", file.display());
        code = ExitCode::FAILURE;
    }
    code
}

async fn attack(given: Run) -> ExitCode {
    let options = run::Options {
        seed: given.seed.unwrap_or_else(|| fastrand::u64(..1_000_000_000)),
        time: Duration::from_secs_f64((given.minutes * 60.0).clamp(0.0, 1e7)),
        faults: given.faults.repeat(given.times),
        lease: Duration::from_millis(given.lease),
        loopback: given.loopback,
        program: match std::env::current_exe() {
            Ok(program) => program,
            Err(error) => {
                eprintln!("cannot find this program itself: {error}");
                return ExitCode::from(2);
            }
        },
        keep_going: given.keep_going,
        keep: given.keep,
    };
    let mut say = |line: &str| println!("{line}");
    // Dropped in the middle it ends every process and removes every namespace.
    let outcome = tokio::select! {
        outcome = run::run(&options, &mut say) => outcome,
        () = interrupted() => {
            eprintln!("interrupted");
            return ExitCode::from(130);
        }
    };
    match outcome {
        Ok(outcome) => {
            table::print(&outcome, &mut say);
            match (outcome.report.violations.is_empty(), outcome.failures.is_empty()) {
                (true, true) => ExitCode::SUCCESS,
                (false, _) => ExitCode::from(1),
                (true, false) => ExitCode::from(2),
            }
        }
        Err(error) => {
            eprintln!("the harness could not begin: {error}");
            ExitCode::from(2)
        }
    }
}

async fn interrupted() {
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
