//! A check by a shell command.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::output::Tail;
use super::processes::{CheckProcesses, RunningCheck};
use crate::candidate::systemd;
use crate::config::seen;
use crate::process::reaper;

/// A shell command that is run again and again.
pub struct CheckCommand {
    text: String,
    withheld: Vec<String>,
    processes: CheckProcesses,
}

impl CheckCommand {
    pub fn new(text: &str, withheld: Vec<String>, processes: CheckProcesses) -> Self {
        Self { text: text.to_owned(), withheld, processes }
    }

    /// Runs it once. Dropping the future kills it.
    pub async fn run(&self) -> Result<(), String> {
        let cannot = |error: io::Error| format!("cannot run the check: {error}");
        let Some((mut running, output)) = self.start().map_err(cannot)? else {
            return Err("an earlier check was killed, and has not ended".to_owned());
        };
        let mut tail = Tail::default();
        match watch(&mut running, output, &mut tail).await.map_err(cannot)? {
            status if status.success() => Ok(()),
            status => Err(tail.last_line().unwrap_or_else(|| describe(status))),
        }
    }

    fn start(&self) -> io::Result<Option<(RunningCheck, pipe::Receiver)>> {
        let (output, writer) = io::pipe()?;
        let output = pipe::Receiver::from_owned_fd(OwnedFd::from(output))?;
        let mut command = reaper::command(false, None);
        command.args(["/bin/sh", "-c", &self.text]);
        for variable in &self.withheld {
            command.env_remove(variable);
        }
        for variable in seen() {
            command.env_remove(variable); // of an outer incumbent
        }
        command
            .env_remove(systemd::SOCKET) // it would speak for this service
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer);
        // Dropping the command closes its side of the pipe.
        Ok(self.processes.start(command.into())?.map(|running| (running, output)))
    }
}

/// Waits for the end of the shell, and of what it leaves behind, which is killed.
async fn watch(
    running: &mut RunningCheck,
    mut output: pipe::Receiver,
    tail: &mut Tail,
) -> io::Result<ExitStatus> {
    let mut buffer = [0; 1024];
    let mut open = true;
    let status = loop {
        tokio::select! {
            biased;
            read = output.read(&mut buffer), if open => match read {
                Ok(length) if length > 0 => tail.push(&buffer[..length]),
                _ => open = false,
            },
            status = running.wait() => break status,
        }
    };
    // What was written before the end, but no more than a pipe holds.
    for _ in 0..64 {
        match output.try_read(&mut buffer) {
            Ok(length) if length > 0 => tail.push(&buffer[..length]),
            _ => break,
        }
    }
    status
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended abnormally".to_owned(),
    }
}
