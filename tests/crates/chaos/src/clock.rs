//! The nats-server whose wall clock can be stepped: `tests/programs/nats-with-clock/build.sh`
//! builds it.

use std::path::PathBuf;

use incumbent_test_support::checkout;

/// Where `make chaos` puts it.
const BUILT: &str = ".tools/clocknats-2.15.1/nats-server";

/// The program.
///
/// # Errors
///
/// Why there is none.
pub fn find() -> Result<PathBuf, String> {
    let program = checkout().join(BUILT);
    if program.is_file() {
        return Ok(program);
    }
    Err("no nats-server whose clock can be stepped (`make chaos` builds it where there is `go`)"
        .to_owned())
}
