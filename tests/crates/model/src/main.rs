//! Explores larger elections than the tests do, each until it has seen all or its time is up.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use incumbent_model::{Bounds, checkpoints, explore, large, small};

const USAGE: &str = "incumbent-model [--candidates N] [--depth D] [--minutes M] [--small]
Explores elections of N (2) candidates to depth D (no bound), for M (5) minutes in all; with --small those that the tests explore.";

/// The number that follows the option `name`.
fn number(args: &[String], name: &str) -> Result<Option<usize>, String> {
    let Some(at) = args.iter().position(|arg| arg == name) else { return Ok(None) };
    let value = args.get(at + 1).and_then(|value| value.parse().ok());
    value.map(Some).ok_or_else(|| format!("{name} wants a number\n{USAGE}"))
}

fn run() -> Result<bool, String> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let few = args.iter().position(|arg| arg == "--small").map(|at| args.remove(at)).is_some();
    let known = ["--candidates", "--depth", "--minutes"];
    if let Some(other) = args.iter().step_by(2).find(|arg| !known.contains(&arg.as_str())) {
        return Err(format!("{other} is unknown\n{USAGE}"));
    }
    let candidates = number(&args, "--candidates")?.unwrap_or(2);
    if !(2..=4).contains(&candidates) {
        return Err("candidates: 2 to 4".to_owned());
    }
    let depth = number(&args, "--depth")?.and_then(NonZeroUsize::new);
    let minutes = number(&args, "--minutes")?.unwrap_or(5);
    let ends = Instant::now() + Duration::from_secs(60 * minutes as u64);
    let elections: Vec<_> = if few {
        small().into_iter().chain(checkpoints()).collect()
    } else {
        large(candidates).into_iter().map(|config| (config, None)).collect()
    };
    for (at, (config, least)) in elections.iter().enumerate() {
        let depth = depth.or(least.and_then(NonZeroUsize::new));
        // On one thread a bound on the depth is exact.
        let threads = if depth.is_some() { 1 } else { 2 };
        // An equal share each of what is left: those that end early leave more to the larger ones
        // after them.
        let share = u32::try_from(elections.len() - at).unwrap_or(u32::MAX);
        let time = Some(ends.saturating_duration_since(Instant::now()) / share);
        let outcome = explore(config.clone(), Bounds { depth, time, threads });
        println!("{outcome}");
        if let Some(broken) = outcome.broken {
            println!("{broken}");
            return Ok(false);
        }
    }
    Ok(true)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}
