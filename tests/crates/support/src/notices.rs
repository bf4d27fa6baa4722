//! Notices of tests that pass without having run.

use std::io::{self, Write};

/// Writes to standard error that something was not tested, and why. The test harness hides the
/// output of a test that passes, but not this.
pub fn not_run(what: &str, why: &str) {
    let _ = writeln!(io::stderr(), "NOT RUN: {what}: {why}");
}
