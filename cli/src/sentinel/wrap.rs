//! A program under a sentinel: signals are forwarded, orphans are reaped, and what it leaves behind
//! is killed before its entries are released.

use std::env;
use std::ffi::OsString;
use std::io::{IsTerminal, stdin};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use incumbent::clock::{BootClock, Clock};
use incumbent::sentinel::ENVIRONMENT;
use rustix::process::{Pid, Signal, kill_process};

use super::connection::Shared;
use super::registry::{RELEASE_TIMEOUT, Registry};
use super::server::Server;
use crate::error::{CliError, Code};
use crate::http::unix_socket;
use crate::lock::withheld;
use crate::process::lookup;
use crate::process::reaper::OURSELVES;
use crate::process::signals::SignalStreams;
use crate::process::tree::{self, Tree};

/// How long to try to kill what the program left behind.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the program, and returns its exit code.
pub async fn run(command: &[OsString], registry: Arc<Registry>) -> Result<ExitCode, CliError> {
    let Some((program, args)) = command.split_first() else { return Ok(ExitCode::FAILURE) };
    if let Some(code) = lookup::refuse(program) {
        return Ok(code);
    }
    let mut signals = Forwarded::listen()?;
    let mut tree = Tree::adopt()?;
    if !tree.children().is_empty() {
        // Another program started them before it became this one, and they live on: the program is
        // wrapped by a child, which has no other children.
        let mut wrapper = Command::new(OURSELVES);
        let wrapper = wrapper.arg0("incumbent").args(env::args_os().skip(1)).spawn()?;
        return Ok(ExitCode::from(signals.forward(Pid::from_child(&wrapper)).await));
    }
    let (listener, address, _directory) = unix_socket::bind_new()?;
    let shared = Shared { registry, wraps: true, limit: RELEASE_TIMEOUT };
    let mut server = Server::new(listener, shared)?;
    let mut program_below = Command::new(program);
    for variable in withheld() {
        program_below.env_remove(variable);
    }
    let child = match program_below.args(args).env(ENVIRONMENT, &address).spawn() {
        Ok(child) => Pid::from_child(&child),
        Err(error) => {
            let message = format!("cannot run {}: {error}", program.display());
            CliError::new(Code::Failed, message).report();
            return Ok(ExitCode::from(lookup::exit_code(&error)));
        }
    };
    let code = tokio::select! {
        code = signals.forward(child) => code,
        () = server.run() => 1, // it never returns
    };
    let killed = tree.kill_all(None, BootClock.now() + KILL_TIMEOUT).await;
    match killed.left() {
        None => server.finish().await,
        Some(left) => {
            let message = format!(
                "some processes of the program could not be stopped: {left}; the lock is not released"
            );
            CliError::new(Code::Failed, message).report();
        }
    }
    Ok(ExitCode::from(code))
}

/// Signals that the program gets.
struct Forwarded {
    signals: SignalStreams,
    forwarded: Vec<Signal>,
}

impl Forwarded {
    fn listen() -> std::io::Result<Self> {
        let mut forwarded = vec![Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2];
        let of_terminal = [Signal::INT, Signal::QUIT, Signal::WINCH];
        let signals = SignalStreams::listen(&[Signal::CHILD, Signal::TERM])?;
        let signals = signals.and_unless_ignored(&forwarded[1..])?;
        let signals = signals.and_unless_ignored(&of_terminal)?;
        // From a terminal the program gets these itself, as it is in the same process group.
        if !stdin().is_terminal() {
            forwarded.extend(of_terminal);
        }
        Ok(Self { signals, forwarded })
    }

    /// Forwards signals and reaps orphans until the program has ended. Returns its exit code.
    async fn forward(&mut self, program: Pid) -> u8 {
        loop {
            for (pid, status) in tree::reap().changed {
                if pid == program
                    && let Some(code) = tree::exit_code(status)
                {
                    return code;
                }
            }
            let signal = self.signals.next().await;
            if self.forwarded.contains(&signal) {
                let _ = kill_process(program, signal); // not reaped yet, so the id is its own
            }
        }
    }
}
