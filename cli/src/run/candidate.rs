//! Campaigning with a command that runs while in office.

use std::ffi::OsString;
use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::{Leadership, Loss};
use rustix::process::Signal;

use super::args::{OnExit, Run};
use super::deadline::{DEADLINE_FILE, DeadlineFile};
use super::grace::Grace;
use super::guard::Cgroup;
use super::guard::{CommandEvent, GuardHandle};
use super::guard::{GuardConfig, foreign, unguarded};
use super::guard::{GuardRequest, StopTimes};
use super::signals::{SignalAction, Signals, exit_code, suspend_self};
use super::timer::sleep_until;
use super::watchdog::Watchdog;
use crate::candidate::{RunningCandidate, describe};
use crate::error::{CliError, Code};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

pub struct CommandCandidate {
    pub candidate: RunningCandidate,
    pub signals: Signals,
    pub file: DeadlineFile,
    pub grace: Grace,
    pub watchdog: Watchdog,
    pub options: Run,
}

/// How a run of the command ended. Nothing of it is left.
enum Ended {
    ByItself { code: u8, interrupted: bool },
    Lost(Loss),
    Signal(Signal),
}

/// What to do after a term.
enum Next {
    CampaignAgain,
    Exit(u8),
    /// Without releasing the office.
    ExitWithoutRelease(u8),
}

impl CommandCandidate {
    /// StopTimes the command, or a signal, ends it: answers the exit code.
    pub async fn campaign(&mut self) -> Result<u8, CliError> {
        loop {
            let leadership = match self.elected().await? {
                Ok(leadership) => leadership,
                Err(signal) => return Ok(exit_code(signal)),
            };
            match self.serve(&leadership).await? {
                Next::CampaignAgain => {}
                Next::Exit(code) => return Ok(code),
                Next::ExitWithoutRelease(code) => self.exit_without_release(code),
            }
        }
    }

    /// Waits for a term, or for the signal that ends the waiting.
    async fn elected(&mut self) -> Result<Result<Leadership, Signal>, CliError> {
        loop {
            tokio::select! {
                won = self.candidate.election.won() => {
                    self.candidate.status.clear();
                    return match won {
                        Ok(leadership) => Ok(Ok(leadership)),
                        Err(stopped) => Err(CliError::new(Code::Failed, stopped.to_string())),
                    };
                }
                told = self.signals.next() => {
                    self.candidate.status.clear();
                    match told {
                        SignalAction::End(signal) => return Ok(Err(signal)),
                        SignalAction::Suspend => suspend_self(),
                        SignalAction::PassOn(_) => {}
                    }
                }
                () = self.candidate.status.next_update() => {
                    self.candidate.status.show(&describe(&self.candidate.election));
                }
            }
        }
    }

    /// One term.
    async fn serve(&mut self, leadership: &Leadership) -> Result<Next, CliError> {
        let mut pause = FIRST_PAUSE;
        loop {
            let ended = self.work(leadership).await;
            self.watchdog.pause();
            let (code, interrupted) = match ended? {
                Ended::ByItself { code, interrupted } => (code, interrupted),
                Ended::Lost(loss) => return Ok(self.lost(&loss)),
                Ended::Signal(signal) => return Ok(Next::Exit(exit_code(signal))),
            };
            match self.options.on_exit {
                OnExit::Restart if !interrupted => {
                    self.watchdog.feed(leadership.deadline());
                    self.candidate.status.print(&format!(
                        "the command ended with code {code}, starting it again in {}",
                        humantime::format_duration(pause)
                    ));
                }
                OnExit::Stop => return Ok(Next::ExitWithoutRelease(code)),
                _ => return Ok(Next::Exit(code)),
            }
            if let Some(next) = self.pause(leadership, BootClock.now() + pause).await {
                return Ok(next);
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits before the command is started again, unless there is something else to do by then.
    async fn pause(&mut self, leadership: &Leadership, until: Instant) -> Option<Next> {
        let mut deadline = leadership.deadline();
        loop {
            self.watchdog.feed(deadline);
            tokio::select! {
                biased;
                loss = leadership.ended() => {
                    self.watchdog.pause();
                    return Some(self.lost(&loss));
                }
                Ok(later) = leadership.renewed(deadline) => deadline = later,
                told = self.signals.next() => match told {
                    SignalAction::End(signal) => return Some(Next::Exit(exit_code(signal))),
                    SignalAction::Suspend => suspend_self(),
                    SignalAction::PassOn(_) => {}
                },
                () = sleep_until(until) => return None,
            }
        }
    }

    /// One run of the command.
    async fn work(&mut self, leadership: &Leadership) -> Result<Ended, CliError> {
        if let Some(ended) = self.announce(leadership).await? {
            return Ok(ended);
        }
        let mut deadline = leadership.deadline();
        let until = self.grace.until(deadline);
        if until.ask_at <= BootClock.now() {
            leadership.resign(); // it stood still for too long
            return Ok(Ended::Lost(leadership.ended().await));
        }
        let token = leadership.token().to_string();
        let mut guard = self.start(&[("INCUMBENT_TOKEN", token.into())], Some(until))?;
        loop {
            self.watchdog.feed(deadline);
            tokio::select! {
                biased;
                loss = leadership.ended() => {
                    self.stop(&mut guard, loss.stop_by).await;
                    return Ok(Ended::Lost(loss));
                }
                Ok(later) = leadership.renewed(deadline) => {
                    deadline = later;
                    guard.request(GuardRequest::RunUntil(self.grace.until(deadline)));
                    self.file.renew(deadline, leadership.token());
                }
                failure = self.file.fell_behind(self.grace.total()) => {
                    self.stop(&mut guard, deadline).await;
                    return Err(failure);
                }
                told = self.signals.next() => match told {
                    SignalAction::End(signal) => {
                        self.stop(&mut guard, deadline).await;
                        return Ok(Ended::Signal(signal));
                    }
                    SignalAction::Suspend => guard.suspend(),
                    SignalAction::PassOn(signal) => guard.request(GuardRequest::PassOn(signal.as_raw())),
                },
                event = guard.event() => {
                    self.watchdog.pause();
                    self.exit_if_processes_remain(&guard);
                    match event {
                        CommandEvent::Ended => {
                            let interrupted = guard.was_interrupted();
                            return Ok(Ended::ByItself { code: guard.code.unwrap_or(1), interrupted });
                        }
                        CommandEvent::HungUp => {
                            self.stop(&mut guard, deadline).await;
                            return Ok(Ended::Signal(Signal::HUP));
                        }
                        CommandEvent::Expired => {
                            leadership.resign(); // should the last renewal have arrived after all
                            return Ok(Ended::Lost(leadership.ended().await));
                        }
                        CommandEvent::Unguarded => return Err(unguarded()),
                        CommandEvent::Foreign => {
                            self.stop(&mut guard, deadline).await;
                            return Err(foreign());
                        }
                    }
                }
            }
        }
    }

    /// Has the file say until when the term lasts, before the command reads it. Answers how the term ended, if it did.
    async fn announce(&mut self, leadership: &Leadership) -> Result<Option<Ended>, CliError> {
        let deadline = leadership.deadline();
        self.file.renew(deadline, leadership.token());
        loop {
            tokio::select! {
                biased;
                loss = leadership.ended() => return Ok(Some(Ended::Lost(loss))),
                written = self.file.written() => {
                    return written.map(|()| None).map_err(|why| self.file.failure(Some(&why)));
                }
                told = self.signals.next() => match told {
                    SignalAction::End(signal) => return Ok(Some(Ended::Signal(signal))),
                    SignalAction::Suspend => suspend_self(),
                    SignalAction::PassOn(_) => {}
                },
                () = sleep_until(deadline - self.grace.total()) => return Err(self.file.failure(None)),
            }
        }
    }

    /// Stops the command, as its term ends.
    pub(super) async fn stop(&mut self, guard: &mut GuardHandle, deadline: Instant) {
        self.watchdog.pause();
        guard.stop(self.grace.kill_at(deadline)).await;
        self.exit_if_processes_remain(guard);
    }

    pub(super) fn start(
        &self,
        more: &[(&str, OsString)],
        until: Option<StopTimes>,
    ) -> Result<GuardHandle, CliError> {
        let mut environment: Vec<(&str, OsString)> = vec![
            ("INCUMBENT_ELECTION", self.candidate.election.name().into()),
            ("INCUMBENT_IDENTITY", self.candidate.election.identity().into()),
            (DEADLINE_FILE, self.file.path().into()),
        ];
        environment.extend_from_slice(more);
        let config = GuardConfig {
            grace: self.grace.asked,
            signal: self.options.program.signal,
            cgroup: Cgroup::make(),
            directory: Some(self.file.directory().to_owned()),
            until,
        };
        let withheld = self.options.withheld();
        Ok(GuardHandle::start(&self.options.program.command, &environment, &withheld, config)?)
    }

    /// Exits where something could not be stopped: others wait until the lease is over, and no command is started beside it.
    pub(super) fn exit_if_processes_remain(&mut self, guard: &GuardHandle) {
        if let Some(left) = &guard.left {
            let message = format!(
                "COMMAND could not be stopped: {left}; the office is not released, and another may lead when its lease is \
                 over: see to it now"
            );
            CliError::new(Code::Failed, message).report();
            self.exit_without_release(Code::Failed as u8)
        }
    }

    fn lost(&mut self, loss: &Loss) -> Next {
        self.candidate
            .status
            .print(&format!("lost {}: {}; standing again", loss.election, loss.cause));
        Next::CampaignAgain
    }

    /// Exits as it is: the entry stays until its lease has run out.
    pub(super) fn exit_without_release(&mut self, code: u8) -> ! {
        self.file.remove();
        std::process::exit(code.into())
    }
}
