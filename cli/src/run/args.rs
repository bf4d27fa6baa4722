//! What `incumbent run` is told, and how it explains itself.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rustix::process::Signal;

use crate::candidate::CandidateArgs;
use crate::lock_args::LockArgs;

/// The program that a leader runs.
#[derive(Debug, Args)]
pub struct Program {
    /// The command, and its arguments, after `--`. It is looked for on PATH before standing for office.
    #[arg(index = 2, last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
    /// The signal that asks COMMAND to stop: a name as in TERM or SIGINT, or a number.
    #[arg(long, default_value = "TERM", value_parser = parse_signal)]
    pub signal: Signal,
}

/// Run COMMAND while this process leads the election NAME.
///
/// COMMAND is started when this process is elected, and stopped when its term ends; then it stands again. Of all that
/// run this with one NAME, on however many hosts, one has COMMAND running, and never two. A server that is out of reach
/// is waited for, unless `--timeout` says for how long.
///
/// With --kind for-life it is `incumbent life`, whose manual says what is different: there is no lease, and COMMAND is run once.
#[derive(Debug, Args)]
#[command(after_long_help = MANUAL)]
pub struct Run {
    #[command(flatten)]
    pub program: Program,
    /// How long COMMAND may take to stop before it is killed [default: an eighth of the lease].
    ///
    /// A leader that cannot renew stops COMMAND so long before its lease ends, and a little more for the killing, so it
    /// must fit into the lease beside the renewals, which are a third of it apart.
    #[arg(long, value_parser = humantime::parse_duration)]
    pub grace: Option<Duration>,
    /// What to do when COMMAND ends by itself.
    #[arg(long, value_enum, default_value_t = OnExit::Resign, value_name = "WHAT")]
    pub on_exit: OnExit,
    /// Run COMMAND always, and only tell it: SIGUSR1 when this process is elected, SIGUSR2 when its term ends.
    ///
    /// A signal is held back until COMMAND has a handler for it. After SIGUSR2 it has the grace to stop what only a
    /// leader may do. Nothing kills it then: it must obey, and read the deadline file while it leads.
    #[arg(long)]
    pub keep_running: bool,
    /// Let COMMAND inherit this variable, though it proves to the lock who this process is. May be given several times.
    #[arg(long, value_name = "VARIABLE")]
    pub pass_env: Vec<String>,
    #[command(flatten)]
    pub candidate: CandidateArgs,
    #[command(flatten)]
    pub lock: LockArgs,
}

impl Run {
    /// What COMMAND does not inherit.
    pub fn withheld(&self) -> Vec<&'static str> {
        let mut secrets = self.lock.secrets();
        secrets.retain(|name| self.pass_env.iter().all(|passed| passed != name));
        secrets
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnExit {
    /// Release the office, so that another takes over at once, and exit with COMMAND's code.
    Resign,
    /// Start it again in the same term: after 1s, then 2s and so on up to 30s.
    Restart,
    /// Exit with COMMAND's code without releasing the office: nobody takes over before the lease has run out. It slows
    /// down a command that fails on every host.
    Stop,
}

const MANUAL: &str = "\
What is stopped:
  COMMAND and every process that came from it, whatever process group, session or parent it has by now: all of them get
  the signal (and SIGCONT), and what is left after the grace gets SIGKILL, so that all are gone before the right to
  lead ends. What COMMAND leaves behind when it ends by itself is stopped, too. This is done by a second process
  (`run-guard` in a process list), so it happens as well when incumbent itself is killed, hangs, or is suspended; and if
  the guard is killed, COMMAND dies with it. Where a control group (version 2) may be made, COMMAND is put into one.
  What is started by another service (docker run, systemd-run, ssh) is not below COMMAND, and goes on. A process that
  becomes another user (sudo) may not be signalled unless incumbent is root: that is told, and the term ends when it
  lasts. Where something is left all the same, incumbent says what, exits with 1 and does not release the office.

Signals:
  SIGUSR1, SIGUSR2 and SIGHUP are passed on to COMMAND, once it has a handler for them; while none runs they do nothing.
  With --keep-running SIGUSR1 and SIGUSR2 are not: they would tell it of wins and losses. SIGHUP ends incumbent when its terminal
  is gone.

What COMMAND sees:
  INCUMBENT_ELECTION       NAME.
  INCUMBENT_IDENTITY       The name shown as holder.
  INCUMBENT_TOKEN          The fencing token of the term, greater than that of every earlier term. Pass it along with
                           what you write, and refuse a smaller one there. Not with --keep-running: read it from the file.
  INCUMBENT_DEADLINE_FILE  A file with one line of three words: until when the right to lead lasts, in seconds of
                           CLOCK_BOOTTIME (compare with clock_gettime, as in Python's time.clock_gettime(
                           time.CLOCK_BOOTTIME); the first word of /proc/uptime is the same, but not in a container
                           with lxcfs, which is told at the start); the same in UTC by the wall clock; the token. It is
                           replaced at each renewal; a term whose file cannot be written ends. All may read it.
                           `0.000000000 1970-01-01T00:00:00.000Z 0`: this process does not lead.
  The variables that prove to the lock who incumbent is (NATS_USER, NATS_PASSWORD, NATS_CREDS, NATS_NKEY, NATS_CERT, NATS_KEY;
  PGPASSWORD, AWS_SECRET_ACCESS_KEY and the like where the lock is one of those; a URL with a password) are not
  inherited, unless --pass-env names them.
  Standard input, output and error are its own. On a terminal it is in the foreground: Ctrl-C reaches it, and when it
  ends of that incumbent ends, whatever --on-exit says. Ctrl-Z suspends both, and no lease is renewed meanwhile: a
  command suspended for longer than that is killed.

Under systemd:
  A service of Type=notify is ready once it campaigns, and its status says who leads. COMMAND cannot speak for it: it
  has no NOTIFY_SOCKET.

Exit codes:
  COMMAND's own, or 128 and the number of the signal that killed it. 128 and the number of a signal (SIGTERM, SIGINT,
  SIGQUIT, or SIGHUP of a terminal) that ended incumbent: COMMAND is stopped and the office released first. 127: there is no such
  command, 126: it is not executable; both before standing for office. Else 1 failed, 2 usage, 3 no such bucket or
  namespace, 4 no server in reach at the start, 5 denied.

Examples:
  incumbent run nightly-report -- ./event --all
  incumbent run scheduler --lease 10s --on-exit restart -- cron -f
  incumbent run db-primary --signal INT --grace 20s -- postgres -D /srv/db
  incumbent run my_app --keep-running -- my-daemon
  incumbent run my-app --lock kubernetes --namespace prod -- my-daemon";

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

/// How long a command may take at the most: so that no sum of times is out of bounds.
const LONGEST_GRACE: Duration = Duration::from_secs(365 * 24 * 3600);

/// A grace that no lease bounds.
pub fn parse_grace(word: &str) -> Result<Duration, String> {
    let grace = humantime::parse_duration(word).map_err(|error| error.to_string())?;
    if grace > LONGEST_GRACE {
        return Err("it is more than a year".to_owned());
    }
    Ok(grace)
}

fn parse_signal(word: &str) -> Result<Signal, String> {
    let upper = word.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = NAMED.into_iter().find(|(known, _)| *known == name).map(|(_, signal)| signal);
    let numbered = || word.parse().ok().and_then(Signal::from_named_raw);
    named.or_else(numbered).ok_or_else(|| {
        let names: Vec<_> = NAMED.iter().map(|(name, _)| *name).collect();
        format!("no such signal: use a number, or one of {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for word in ["TERM", "SIGTERM", "sigterm", "15"] {
            assert_eq!(parse_signal(word), Ok(Signal::TERM));
        }
        for word in ["", "SIG", "0", "99", "-1", "TREM"] {
            assert!(parse_signal(word).is_err(), "{word}");
        }
    }
}
