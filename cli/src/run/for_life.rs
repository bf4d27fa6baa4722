//! `incumbent life`: a command that runs once this pod leads, until the pod is gone.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use incumbent::clock::{BootClock, Clock};
use incumbent::kubernetes::{
    Cluster, LifeError, LifeErrorKind, LifeLeadership, LifeState, leader_for_life,
};
use incumbent::lock::LockAdmin;
use rustix::process::Signal;

use super::args::Program;
use super::guard::{
    CommandEvent, CommandFailure, GuardConfig, GuardHandle, GuardRequest, unguarded,
};
use super::signals::{SignalAction, Signals, exit_code, suspend_self};
use crate::candidate::StatusLine;
use crate::error::{CliError, Code};
use crate::lock::nats::DEFAULT_TIMEOUT;
use crate::lock::{LifeKind, NamespaceArgs, check_life_name, withheld};
use crate::output::time_format::parse_up_to_a_year;
use crate::process::Cgroup;

/// Run COMMAND once this pod is leader for life of the election NAME.
///
/// The lock is an object in the pod's namespace that the leader's pod owns, as operator-sdk creates
/// it: no other pod leads before that pod is deleted, has ended, or is lost with its node. There is
/// no lease, so an outage of the API server does not stop COMMAND. This waits until the pod owns
/// the lock, without a limit, and then runs COMMAND once.
#[derive(Debug, Args)]
#[command(after_long_help = MANUAL)]
pub struct Life {
    /// The election: the name of the lock object.
    #[arg(index = 1)]
    name: String,
    #[command(flatten)]
    program: Program,
    /// How long COMMAND may take to stop before it is killed. Keep it below the pod's
    /// terminationGracePeriodSeconds.
    #[arg(long, default_value = "10s", value_parser = parse_up_to_a_year)]
    grace: Duration,
    /// The pod of this process [env: POD_NAME] [default: the host's name].
    #[arg(long)]
    pod: Option<String>,
    /// The kind of the lock object. All candidates of an election must use the same kind.
    #[arg(long, value_enum, default_value_t, value_name = "KIND")]
    life_kind: LifeKind,
    /// The poll interval, beside the watches.
    #[arg(long, default_value = "15s", value_name = "DURATION", value_parser = humantime::parse_duration)]
    poll: Duration,
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// A context of the kubeconfig [default: its current one].
    #[arg(long, value_name = "NAME", help_heading = "Lock")]
    context: Option<String>,
}

const MANUAL: &str = "\
What ends it:
  COMMAND ends by itself: incumbent exits with its code. The kubelet restarts the container, \
  which finds its pod's lock and runs COMMAND at once. To move the leadership, delete the \
  leader's pod.
  A signal (SIGTERM, SIGINT, SIGQUIT, or SIGHUP of a terminal): COMMAND and its descendants get \
  the signal, and after the grace SIGKILL. The lock stays with the pod: no other pod leads \
  before this one is gone.
  The lock is lost, because it was deleted (`election evict --kind for-life`) or its owner was \
  replaced: COMMAND is stopped in the same way. Another pod may lead by then, without waiting: \
  refuse smaller tokens at the destination of writes. While the API server is unreachable a lost \
  lock is not noticed.

What COMMAND sees:
  INCUMBENT_ELECTION
      NAME.
  INCUMBENT_IDENTITY
      The pod.
  INCUMBENT_TOKEN
      The fencing token, greater than that of every earlier leader.
  INCUMBENT_RESUMED
      1 if an earlier container of this pod led, and may have left unfinished work. Else 0.
  There is no INCUMBENT_DEADLINE_FILE, as there is no deadline. Descendants, the terminal and \
  the guard process (`run-guard`) are as with `incumbent run`.

Rights:
  See docs/leader-for-life.md for the required Role. Without the permission to watch it polls at \
  the interval --poll.

Exit codes:
  COMMAND's own, or 128 and the number of the signal that killed it. 128 and the number of a \
  signal that ended incumbent. 127: no such command, 126: not executable. 3: the lock is lost, \
  this pod is being deleted or has ended, or there is no such namespace. 2: usage, no such pod, \
  or an object of that name is not a lock. 5: permission denied for 5s. Else 1 failed. It \
  retries while the server is unreachable.

Examples:
  incumbent life my-operator -- my-operator --verbose
  incumbent life my-app --namespace prod --life-kind lease -- my-daemon";

/// The error of processes that could not be stopped.
fn unstopped(left: &str) -> CliError {
    let message = format!(
        "COMMAND could not be stopped: {left}; another pod may lead once this one is gone: stop it now"
    );
    CliError::new(Code::Failed, message)
}

impl Life {
    pub async fn run(self) -> Result<ExitCode, CliError> {
        let mut signals = match self.program.prepare()? {
            Ok(signals) => signals,
            Err(code) => return Ok(code),
        };
        let cluster = self.namespace.open(self.context.as_deref()).await?;
        check_life_name(&cluster, self.life_kind, &self.name)?;
        let leadership = match self.elected(&cluster, &mut signals).await? {
            Ok(Ok(leadership)) => leadership,
            Ok(Err(error)) => {
                if error.kind() == LifeErrorKind::Misconfigured {
                    let locks = cluster.life_locks(&self.life_kind.life_resource());
                    locks.check_exists(DEFAULT_TIMEOUT).await?;
                }
                return Err(error.into());
            }
            Err(signal) => return Ok(ExitCode::from(exit_code(signal))),
        };
        self.work(&leadership, &mut signals).await.map(ExitCode::from)
    }

    /// Waits until this pod owns the lock, or for a signal to end.
    async fn elected(
        &self,
        cluster: &Cluster,
        signals: &mut Signals,
    ) -> Result<Result<Result<LifeLeadership, LifeError>, Signal>, CliError> {
        let candidate = leader_for_life(&self.name, cluster);
        let mut candidate = candidate.resource(self.life_kind.life_resource()).poll(self.poll);
        if let Some(pod) = &self.pod {
            candidate = candidate.pod(pod);
        }
        let mut status = StatusLine::new();
        status.show(&format!("{}: looking for the leader", self.name));
        let (mut states, mut last) = (candidate.status(), None);
        let mut leadership = candidate.into_future();
        let outcome = loop {
            tokio::select! {
                biased;
                leadership = &mut leadership => break Ok(leadership),
                next = signals.next() => match next {
                    SignalAction::End(signal) => break Err(signal),
                    SignalAction::Suspend => {
                        status.clear();
                        suspend_self();
                    }
                    SignalAction::PassOn(_) => {}
                },
                Some(LifeState::Waiting { reason }) = states.changed() => {
                    let line = format!("{}: waiting: {reason}", self.name);
                    if !reason.is_empty() && last.as_ref() != Some(&line) {
                        status.show_or_note(&line);
                        last = Some(line);
                    }
                }
            }
        };
        status.clear();
        Ok(outcome)
    }

    /// Runs the command. Returns the exit code.
    async fn work(
        &self,
        leadership: &LifeLeadership,
        signals: &mut Signals,
    ) -> Result<u8, CliError> {
        let environment: [(&str, OsString); 4] = [
            ("INCUMBENT_ELECTION", leadership.name().into()),
            ("INCUMBENT_IDENTITY", leadership.pod().into()),
            ("INCUMBENT_TOKEN", leadership.token().to_string().into()),
            ("INCUMBENT_RESUMED", u8::from(leadership.resumed()).to_string().into()),
        ];
        let config = GuardConfig {
            cgroup: Cgroup::create(),
            ..GuardConfig::new(self.program.signal, self.grace, withheld())
        };
        let command = &self.program.command;
        let mut guard =
            GuardHandle::start(command, &environment, None, config, true).map_err(|failure| {
                match failure {
                    CommandFailure::Failed(failure) => failure,
                    CommandFailure::Left(left) => unstopped(&left),
                }
            })?;
        let ended = self.until_ended(&mut guard, leadership, signals).await;
        match &guard.left {
            Some(left) => Err(unstopped(left)),
            None => ended,
        }
    }

    /// Waits for the end of the command, or stops it. Returns the exit code.
    async fn until_ended(
        &self,
        guard: &mut GuardHandle,
        leadership: &LifeLeadership,
        signals: &mut Signals,
    ) -> Result<u8, CliError> {
        let kill_at = || BootClock.now() + self.grace;
        let lost = leadership.lost();
        tokio::pin!(lost);
        loop {
            tokio::select! {
                biased;
                () = &mut lost => {
                    guard.stop(kill_at()).await;
                    let (name, pod) = (&self.name, leadership.pod());
                    let message = format!("{name}: the lock was taken from pod {pod}, the command was stopped");
                    return Err(CliError::new(Code::NotFound, message));
                }
                action = signals.next() => match action {
                    SignalAction::End(signal) => {
                        guard.stop(kill_at()).await;
                        return Ok(exit_code(signal));
                    }
                    SignalAction::Suspend => guard.suspend(),
                    SignalAction::PassOn(signal) => guard.request(GuardRequest::PassOn(signal.as_raw())),
                },
                event = guard.event() => match event {
                    CommandEvent::Ended | CommandEvent::Expired => return Ok(guard.code.unwrap_or(1)),
                    CommandEvent::HungUp => {
                        guard.stop(kill_at()).await;
                        return Ok(exit_code(Signal::HUP));
                    }
                    CommandEvent::Unguarded => return Err(unguarded()),
                },
            }
        }
    }
}
