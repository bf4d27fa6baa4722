//! The harness, and the processes that it starts.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    incumbent_attack::cli::run().await
}
