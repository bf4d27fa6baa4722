//! The harness, and the processes that it starts.

fn main() -> std::process::ExitCode {
    incumbent_attack::cli::run()
}
