//! How long a command waits for its term: `--try` and `--wait`.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::{Election, State, Status};

use crate::candidate::Reach;
use crate::error::{CliError, Code, ExitKind};
use crate::output::time_format::parse_up_to_a_year;
use crate::process::sleep_until;

/// The flags of how long to wait.
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// Do not wait: if this process does not lead at once, exit without running COMMAND.
    ///
    /// If another one holds the entry, or is faster, the exit code is that of --conflict-exit-code.
    /// A cool-down is waited for, as nobody else can lead meanwhile. The lock is connected to once,
    /// and has the time of --timeout to answer. If the term is lost while COMMAND runs, incumbent
    /// stops COMMAND and exits with 1.
    #[arg(long = "try", group = "bounded")]
    attempt: bool,
    /// Wait at most this long: if this process does not lead then, exit without running COMMAND.
    ///
    /// Within this time, counted from the start, an unreachable server is tried again, also with
    /// --timeout, and a cool-down has to end. Else as --try, which a time of zero is, too.
    #[arg(long, value_name = "DURATION", value_parser = parse_up_to_a_year)]
    #[arg(group = "bounded")]
    wait: Option<Duration>,
    /// The exit code if COMMAND was not run, as this process did not lead in time.
    #[arg(long, value_name = "CODE", default_value_t = 1, requires = "bounded")]
    conflict_exit_code: u8,
}

/// How long to wait for a term.
pub struct WaitLimit {
    reach: Reach,
    /// How long to wait in all; with `Reach::Once`, for an answer of the lock.
    limit: Duration,
    until: Instant,
    conflict_exit_code: u8,
}

impl WaitArgs {
    /// The given flag, if there is one.
    pub fn given(&self) -> Option<&'static str> {
        match (self.attempt, self.wait) {
            (true, _) => Some("--try"),
            (false, Some(_)) => Some("--wait"),
            (false, None) => None,
        }
    }

    /// The wait begins now. `answer`: how long a single request may take.
    pub fn begin(&self, answer: Duration) -> WaitLimit {
        let now = BootClock.now();
        let limit = self.wait.filter(|wait| !wait.is_zero()).unwrap_or(answer);
        let until = now + limit;
        let reach = match self.wait {
            None if !self.attempt => Reach::Always,
            None | Some(Duration::ZERO) => Reach::Once,
            Some(limit) => Reach::Until { limit, until },
        };
        WaitLimit { reach, limit, until, conflict_exit_code: self.conflict_exit_code }
    }
}

impl WaitLimit {
    /// Whether only one term is waited for.
    pub fn is_limited(&self) -> bool {
        !matches!(self.reach, Reach::Always)
    }

    /// The exit code if this process did not lead in time.
    pub fn conflict_exit_code(&self) -> u8 {
        self.conflict_exit_code
    }

    /// How long to try to reach the lock.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// The lock is open: from now on it has to answer.
    pub fn opened(&mut self) {
        if matches!(self.reach, Reach::Once) {
            self.until = BootClock.now() + self.limit;
        }
    }

    /// Waits until there is no more reason to wait, and returns why this process does not lead; an
    /// error: the lock does not answer. Cancel safe.
    pub async fn ended(&self, election: &Election) -> Result<String, CliError> {
        if !self.is_limited() {
            return pending().await;
        }
        let (mut late, mut timer) = (false, pin!(sleep_until(self.until)));
        let mut watch = election.watch();
        loop {
            let status = tokio::select! {
                status = watch.next() => match status {
                    Some(status) => status,
                    None => pending().await, // who waits for the term learns of the stop
                },
                () = &mut timer, if !late => {
                    late = true;
                    watch.current()
                }
            };
            match self.judge(&status, late) {
                None => {}
                Some(Ok(why)) => {
                    return Ok(format!("{}: {why}: COMMAND was not run", election.name()));
                }
                Some(Err((code, why))) => {
                    let hint = "COMMAND was not run; check the lock with `incumbent doctor`";
                    let message = format!("{}: {why}: {hint}", election.name());
                    return Err(CliError::new(code, message));
                }
            }
        }
    }

    /// Why not to wait any longer, if so: who leads, or how the lock fails.
    fn judge(&self, status: &Status, late: bool) -> Option<Result<String, (Code, String)>> {
        let tries = matches!(self.reach, Reach::Once);
        let waited = humantime::format_duration(self.limit);
        match &status.leader {
            _ if status.state == State::Leader => None,
            Some(leader) if leader.is_me && tries => None, // it cools down
            Some(leader) if tries => Some(Ok(format!("{} leads", leader.identity))),
            _ if !late => None,
            _ if let Some(failure) = &status.lock_failure => {
                Some(Err((failure.kind.exit_code(), failure.message.to_string())))
            }
            _ if status.state == State::Unknown => {
                Some(Err((Code::Unreachable, format!("no response of the lock in {waited}"))))
            }
            Some(leader) if leader.is_me => {
                Some(Ok(format!("elected, but still cooling down after {waited}")))
            }
            Some(leader) => Some(Ok(format!("{} still leads after {waited}", leader.identity))),
            None => Some(Ok(format!("not elected within {waited}"))),
        }
    }
}
