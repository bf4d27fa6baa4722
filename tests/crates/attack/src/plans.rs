//! What is loaded, broken, recorded and judged together.

pub mod chaos;
pub mod env;
pub mod rivals;

pub mod sets;
pub mod soak;
pub mod takeover;

use std::process::ExitCode;
use std::time::Duration;

use crate::judge::Report;

/// How many broken promises are spelt out.
const SHOWN: usize = 20;

/// Says what was wrong. The program ends with 1 if a promise was broken, and with 2 if something
/// else failed.
fn verdict(report: &Report, failures: &[String]) -> ExitCode {
    for violation in report.violations.iter().take(SHOWN) {
        let at = Duration::from_nanos(violation.t).as_secs_f64();
        println!("VIOLATION at {at:.6}: {}", violation.text);
    }
    for failure in failures.iter().take(SHOWN) {
        println!("FAILURE: {failure}");
    }
    println!("{} broken promises, {} failures", report.violations.len(), failures.len());
    match (report.violations.is_empty(), failures.is_empty()) {
        (true, true) => ExitCode::SUCCESS,
        (false, _) => ExitCode::from(1),
        (true, false) => ExitCode::from(2),
    }
}
