//! Explores larger elections than the tests do, until it has seen all or the time is up.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use incumbent_model::{Bounds, Config, explore};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (mut campaigners, mut ticks, mut faults, mut hints, mut mixed) = (2, 4, 2, false, false);
    let mut markers = true;
    let mut late = 0;
    let mut bounds = Bounds { threads: 2, ..Bounds::default() };
    while let Some(arg) = args.next() {
        let mut value = || args.next().and_then(|v| v.parse::<usize>().ok()).expect("a number");
        match arg.as_str() {
            "--campaigners" => campaigners = value(),
            "--ticks" => ticks = value() as u32,
            "--faults" => faults = value() as u8,
            "--late" => late = value() as u8,
            "--hints" => hints = true,
            "--mixed" => mixed = true,
            "--no-markers" => markers = false,
            "--depth" => bounds.depth = NonZeroUsize::new(value()),
            "--minutes" => bounds.time = Some(Duration::from_secs(60 * value() as u64)),
            _ => panic!("{arg}?"),
        }
    }
    let mut config = if mixed {
        Config::mixed("mixed", campaigners, ticks, faults)
    } else {
        Config::equal("equal", campaigners, ticks, faults)
    };
    (config.hints, config.markers, config.late) = (hints, markers, late);
    let outcome = explore(config, bounds);
    println!("{outcome}");
    if let Some(broken) = outcome.broken {
        println!("{broken}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
