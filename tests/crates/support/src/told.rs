//! What whoever runs the tests must see though they pass.

use std::io::{self, Write};

/// Says on standard error that something was not tested here, and why. The test harness keeps what is printed by a test that passes to
/// itself; it does not keep this.
pub fn not_run(what: &str, why: &str) {
    let _ = writeln!(io::stderr(), "NOT RUN: {what}: {why}");
}
