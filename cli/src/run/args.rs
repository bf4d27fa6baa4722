//! The flags and the manual of `incumbent run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rustix::process::Signal;

use super::hooks::prepare_children;
use super::signals::Signals;
use super::term::TermArgs;
use super::wait_limit::WaitArgs;
use crate::candidate::{CandidateArgs, MoveArgs};
use crate::error::CliError;
use crate::lock::LockArgs;
use crate::output::time_format::parse_up_to_a_year;
use crate::process::lookup;

/// The program that a leader runs.
#[derive(Debug, Args)]
pub struct Program {
    /// The command and its arguments, after `--`. It must be on PATH, which is checked before
    /// campaigning.
    #[arg(index = 2, last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
    /// The signal that stops COMMAND: a name as in TERM or SIGINT, or a number.
    #[arg(long, default_value = "TERM", value_parser = parse_signal)]
    pub signal: Signal,
}

/// How the command of a term is stopped, and what it inherits.
#[derive(Debug, Args)]
pub struct StopArgs {
    /// How long COMMAND may take to stop before it is killed [default: an eighth of the lease].
    ///
    /// A leader that cannot renew stops COMMAND this long before its lease ends, plus a margin for
    /// killing it. So it must fit into the lease beside the renewals, which are a third of the
    /// lease apart.
    #[arg(long, value_parser = humantime::parse_duration)]
    pub grace: Option<Duration>,
    /// When a signal ends this process, or its term moves, let COMMAND end its work for so long.
    ///
    /// COMMAND gets its signal at once. The term continues, with its renewals, until COMMAND has
    /// ended, but at most for this time: COMMAND then has the grace before it is killed. A second
    /// signal ends the drain. Without this flag COMMAND has the grace only.
    #[arg(long, value_parser = humantime::parse_duration, value_name = "DURATION")]
    pub drain: Option<Duration>,
    /// If this process is killed, leave what it leads to the lease.
    ///
    /// By default the guard of COMMAND then kills it and releases the lock, over a connection of
    /// its own, so that another process leads within milliseconds.
    #[arg(long)]
    pub no_sentinel: bool,
    /// Let COMMAND inherit this variable, although it has credentials of the lock. Repeat it for
    /// several variables.
    #[arg(long, value_name = "VARIABLE")]
    pub pass_env: Vec<String>,
}

/// Run COMMAND while this process leads the election NAME.
///
/// COMMAND is started when this process becomes leader, and stopped when the term ends; the process
/// then campaigns again. Of all processes that run this with one NAME, on any number of hosts, at
/// most one has COMMAND running. While the server is unreachable it retries, unless `--timeout` is
/// given.
#[derive(Debug, Args)]
#[command(after_long_help = MANUAL)]
pub struct Run {
    #[command(flatten)]
    pub program: Program,
    #[command(flatten)]
    pub stop: StopArgs,
    /// Run COMMAND once in this period, on whichever host: for commands that cron starts on every
    /// host.
    ///
    /// A process that becomes leader when COMMAND has begun in the period in which the process was
    /// started exits with 0. A period is a tenth shorter than given, as the clocks of hosts differ.
    /// A run that fails or is cut short is not repeated.
    #[arg(long, value_name = "DURATION", value_parser = parse_period, conflicts_with_all = ["checkpoint", "seats"])]
    pub once_per: Option<Duration>,
    /// Number of leaders: each holds one of N seats, numbered from 0.
    ///
    /// COMMAND then sees the number of its seat in INCUMBENT_SEAT, and N in INCUMBENT_SEATS. Seat K
    /// is the election NAME.K. Each candidate must have the same N, and an identity of its own; the
    /// default is the host's name and a random number. --http serves what `incumbent set run` does.
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub seats: Option<u32>,
    /// What to do when COMMAND ends by itself.
    #[arg(long, value_enum, default_value_t = OnExit::Resign, value_name = "WHAT")]
    pub on_exit: OnExit,
    /// Give COMMAND the checkpoint of the election as this file: up to 4 KiB that the last leader
    /// left, stored in the lock.
    ///
    /// The file is written at the start of a term and saved when COMMAND has ended, also if COMMAND
    /// was stopped or failed, and when this process gets SIGUSR2, which COMMAND does not get then.
    /// If this process is killed, the file is not saved. Give each host a file of its own, and this
    /// flag on each. NATS needs nats-server 2.11 or later.
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,
    /// Have this watchdog reset the machine before the lease ends, if COMMAND may not have been
    /// stopped by then: /dev/watchdog or /dev/watchdogN.
    ///
    /// The guard of COMMAND arms it before COMMAND starts, feeds it at each renewal, and disarms it
    /// once nothing of COMMAND is left. The machine is reset if the guard or the kernel hangs, if a
    /// process of COMMAND cannot be killed, and if incumbent and the guard are killed together. Its
    /// timeout is whole seconds, and ends an eighth of the lease before the lease does: COMMAND is
    /// stopped so much earlier when the lock cannot be reached. Refused if the timeout cannot be
    /// set so short, or nowayout forbids to disarm it. See docs/operations.md.
    #[arg(long, value_name = "DEVICE", conflicts_with = "seats")]
    pub watchdog: Option<PathBuf>,
    #[command(flatten)]
    pub term: TermArgs,
    #[command(flatten)]
    pub waiting: WaitArgs,
    #[command(flatten)]
    pub candidate: CandidateArgs,
    #[command(flatten)]
    pub moves: MoveArgs,
    #[command(flatten)]
    pub lock: LockArgs,
}

impl Run {
    /// The variables that COMMAND does not inherit.
    pub fn withheld(&self) -> Vec<String> {
        self.lock.secrets(&self.stop.pass_env)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnExit {
    /// Release the lock, so that another candidate takes over at once, and exit with COMMAND's
    /// code.
    Resign,
    /// Restart COMMAND in the same term: after 1s, then 2s and so on up to 30s, and after 1s again
    /// once it ran for longer than 30s.
    Restart,
    /// Exit with COMMAND's code without releasing the lock: no other candidate takes over before
    /// the lease ends. This slows down a command that fails on every host.
    Stop,
}

const MANUAL: &str = "\
What is stopped:
  COMMAND and all its descendants, in any process group or session: they get the signal (and \
  SIGCONT), and after the grace SIGKILL, so that all of them end before the right to lead does. \
  Processes that COMMAND leaves behind when it ends are stopped too. A second process does this \
  (`run-guard` in a process list), also when incumbent itself is killed, hangs, or is suspended; \
  if the guard is killed, COMMAND is killed with it. COMMAND runs in a control group (version 2) \
  if one can be created. Processes started by another service (docker run, systemd-run, ssh) are \
  not descendants, and continue. Descendants that /proc hides, as with hidepid or ProtectProc=, \
  get SIGKILL only. A process of another user (sudo) cannot be signalled unless \
  incumbent is root or COMMAND has a control group. If a process is left at the end of a term, \
  incumbent names it, exits with 1 and does not release the lock.

Signals:
  With --checkpoint SIGUSR2 saves the checkpoint. \
  SIGUSR1, SIGUSR2 and SIGHUP are forwarded to COMMAND once it has a handler for them; without \
  COMMAND they have no effect. SIGHUP ends incumbent if its terminal was closed.

What COMMAND sees:
  INCUMBENT_ELECTION
      NAME.
  INCUMBENT_IDENTITY
      The identity, shown as the holder.
  INCUMBENT_TOKEN
      The fencing token of the term, greater than that of every earlier term. Send it with each \
      write, and refuse smaller ones at the destination.
  INCUMBENT_DEADLINE_FILE
      A file with one line of three words: the deadline in seconds of CLOCK_BOOTTIME (compare \
      with clock_gettime, as in Python's time.clock_gettime(time.CLOCK_BOOTTIME); the first word \
      of /proc/uptime is the same, except in a container with lxcfs, which is reported at the \
      start); the deadline in UTC by the wall clock; the token. It is replaced at each renewal; \
      a term whose file cannot be written ends. All users may read it. `0.000000000 \
      1970-01-01T00:00:00.000Z 0`, or no file: this process does not lead.
  INCUMBENT_CHECKPOINT, INCUMBENT_PID
      With --checkpoint: the absolute path of the file, and the process to send SIGUSR2 to. Replace \
      the file (write another one, then rename it): what is saved is then never half of it.
  Variables of options (INCUMBENT_LEASE and the like) are not inherited, but for those that \
  select the lock. Variables with credentials of the lock (NATS_USER, NATS_PASSWORD, NATS_CREDS, NATS_NKEY, \
  NATS_CERT, NATS_KEY, and those that the NATS context refers to by env://; PGPASSWORD, \
  AWS_SECRET_ACCESS_KEY and the like with those locks; a URL with a password) are not inherited, \
  unless --pass-env names them. Nor can COMMAND read them in the memory of incumbent; but the \
  environment of its guard is readable for a moment at its start, also for COMMAND of another \
  shard, and what started incumbent, such as a shell, has them too: start it with `exec`, and \
  give credentials by files that COMMAND's user cannot read.
  Standard input, output and error are passed through. On a terminal COMMAND is in the \
  foreground: Ctrl-C reaches it, and if it ends by Ctrl-C, incumbent ends, whatever --on-exit \
  says. Ctrl-Z suspends both, and the lease is not renewed meanwhile: a command that is \
  suspended for longer is killed.

Under systemd:
  A service of Type=notify is ready once it campaigns, and its status shows the leader. COMMAND \
  cannot notify systemd: it has no NOTIFY_SOCKET. With --drain such a service extends its stop \
  timeout by itself; for another type set TimeoutStopSec to more than the drain and the lease. \
  KillMode=mixed has COMMAND get its signal once.

Exit codes:
  COMMAND's own, or 128 and the number of the signal that killed it. 128 and the number of a \
  signal (SIGTERM, SIGINT, SIGQUIT, or SIGHUP of a terminal) that ended incumbent, after it \
  stopped COMMAND and released the lock. 127: no such command, 126: not executable; both before \
  campaigning. Else 1 failed, 2 usage, 3 no such bucket or namespace, 4 no server reachable at \
  the start, 5 permission denied.

Examples:
  incumbent run nightly-report -- ./report --all
  incumbent run scheduler --lease 10s --on-exit restart -- cron -f
  incumbent run nightly-report --try --conflict-exit-code 0 -- ./report --all
  incumbent run db-primary --signal INT --grace 20s -- postgres -D /srv/db
  incumbent run my-app --lock kubernetes --namespace prod -- my-daemon";

fn parse_period(text: &str) -> Result<Duration, String> {
    match parse_up_to_a_year(text)? {
        Duration::ZERO => Err("it must be longer".to_owned()),
        period => Ok(period),
    }
}

const NAMED: [(&str, Signal); 9] = [
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("ABRT", Signal::ABORT),
    ("KILL", Signal::KILL),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("TERM", Signal::TERM),
    ("WINCH", Signal::WINCH),
];

pub fn parse_signal(word: &str) -> Result<Signal, String> {
    let upper = word.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = NAMED.into_iter().find(|(known, _)| *known == name).map(|(_, signal)| signal);
    let numbered = || word.parse().ok().and_then(Signal::from_named_raw);
    named.or_else(numbered).ok_or_else(|| {
        let names: Vec<_> = NAMED.iter().map(|(name, _)| *name).collect();
        format!("no such signal: use a number, or one of {}", names.join(", "))
    })
}

impl Program {
    /// Checks the command, and whether it could be stopped, and sets up signals. Returns the exit
    /// code of a missing command.
    pub fn prepare(&self) -> Result<Result<Signals, ExitCode>, CliError> {
        if let Some(code) = self.command.first().and_then(|program| lookup::refuse(program)) {
            return Ok(Err(code));
        }
        let signals = Signals::listen()?;
        prepare_children("COMMAND")?;
        Ok(Ok(signals))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_parsed_by_name_and_number() {
        for word in ["TERM", "SIGTERM", "sigterm", "15"] {
            assert_eq!(parse_signal(word), Ok(Signal::TERM));
        }
        for word in ["", "SIG", "0", "99", "-1", "TREM"] {
            assert!(parse_signal(word).is_err(), "{word}");
        }
    }
}
