//! Campaigning with a command that runs while in office.

use std::ffi::OsString;
use std::time::Duration;

use incumbent::{Leadership, Loss};
use rustix::process::Signal;

use super::cgroup::Cgroup;
use super::deadline::{DEADLINE_FILE, DeadlineFile};
use super::grace::Grace;
use super::guard::Duties;
use super::options::{OnExit, Run};
use super::signals::{Signals, Told, exit_code, stand_still};
use super::ward::{Event, Ward};
use crate::candidate::{Candidate, describe};
use crate::failure::{Code, Failure};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

pub struct Campaigner {
    pub candidate: Candidate,
    pub signals: Signals,
    pub file: DeadlineFile,
    pub grace: Grace,
    pub options: Run,
}

/// How a run of the command ended. Nothing of it is left.
enum Ended {
    ByItself { code: u8, interrupted: bool },
    Lost(Loss),
    Told(Signal),
}

/// What to do after a term.
enum Next {
    StandAgain,
    Exit(u8),
    /// Without releasing the office.
    Leave(u8),
}

impl Campaigner {
    /// Until the command, or a signal, ends it: answers the exit code.
    pub async fn run(mut self) -> Result<u8, Failure> {
        let code = match self.options.keep {
            true => self.keep().await,
            false => self.campaign().await,
        };
        self.candidate.leave().await;
        code
    }

    async fn campaign(&mut self) -> Result<u8, Failure> {
        loop {
            let leadership = match self.elected().await? {
                Ok(leadership) => leadership,
                Err(signal) => return Ok(exit_code(signal)),
            };
            match self.serve(&leadership).await? {
                Next::StandAgain => {}
                Next::Exit(code) => return Ok(code),
                Next::Leave(code) => self.leave(code),
            }
        }
    }

    /// Waits for a term, or for the signal that ends the waiting.
    async fn elected(&mut self) -> Result<Result<Leadership, Signal>, Failure> {
        loop {
            tokio::select! {
                won = self.candidate.election.won() => {
                    self.candidate.status.clear();
                    return match won {
                        Ok(leadership) => Ok(Ok(leadership)),
                        Err(stopped) => Err(Failure::new(Code::Failed, stopped.to_string())),
                    };
                }
                told = self.signals.next() => {
                    self.candidate.status.clear();
                    match told {
                        Told::End(signal) => return Ok(Err(signal)),
                        Told::Suspend => stand_still(),
                    }
                }
                () = self.candidate.status.look() => {
                    self.candidate.status.show(&describe(&self.candidate.election));
                }
            }
        }
    }

    /// One term.
    async fn serve(&mut self, leadership: &Leadership) -> Result<Next, Failure> {
        let mut pause = FIRST_PAUSE;
        loop {
            let (code, interrupted) = match self.work(leadership).await? {
                Ended::ByItself { code, interrupted } => (code, interrupted),
                Ended::Lost(loss) => return Ok(self.lost(&loss)),
                Ended::Told(signal) => return Ok(Next::Exit(exit_code(signal))),
            };
            match self.options.on_exit {
                OnExit::Restart if !interrupted => {
                    self.candidate.status.tell(&format!(
                        "the command ended with code {code}, starting it again in {}",
                        humantime::format_duration(pause)
                    ));
                }
                OnExit::Stop => return Ok(Next::Leave(code)),
                _ => return Ok(Next::Exit(code)),
            }
            tokio::select! {
                biased;
                loss = leadership.ended() => return Ok(self.lost(&loss)),
                told = self.signals.next() => match told {
                    Told::End(signal) => return Ok(Next::Exit(exit_code(signal))),
                    Told::Suspend => stand_still(),
                },
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// One run of the command.
    async fn work(&mut self, leadership: &Leadership) -> Result<Ended, Failure> {
        let mut deadline = leadership.deadline();
        self.file.write(deadline, leadership.token())?;
        let token = leadership.token().to_string();
        let mut ward = self.start(&[("INCUMBENT_TOKEN", token.into())])?;
        ward.order(self.grace.until(deadline)).await;
        loop {
            tokio::select! {
                biased;
                loss = leadership.ended() => {
                    ward.stop(self.grace.kill_at(loss.stop_by)).await;
                    return Ok(Ended::Lost(loss));
                }
                later = leadership.renewed(deadline) => {
                    deadline = later;
                    ward.order(self.grace.until(deadline)).await;
                    self.file.renew(deadline, leadership.token());
                }
                told = self.signals.next() => match told {
                    Told::End(signal) => {
                        ward.stop(self.grace.kill_at(deadline)).await;
                        return Ok(Ended::Told(signal));
                    }
                    Told::Suspend => ward.suspend().await,
                },
                event = ward.event() => match event {
                    Event::Ended => {
                        let interrupted = ward.was_interrupted();
                        return Ok(Ended::ByItself { code: ward.code.unwrap_or(1), interrupted });
                    }
                    Event::HungUp => {
                        ward.stop(self.grace.kill_at(deadline)).await;
                        return Ok(Ended::Told(Signal::HUP));
                    }
                    Event::Expired => {
                        leadership.resign(); // should the last renewal have arrived after all
                        return Ok(Ended::Lost(leadership.ended().await));
                    }
                    Event::Unguarded => return Err(unguarded()),
                },
            }
        }
    }

    pub(super) fn start(&self, more: &[(&str, OsString)]) -> Result<Ward, Failure> {
        let mut environment: Vec<(&str, OsString)> = vec![
            ("INCUMBENT_ELECTION", self.candidate.election.name().into()),
            ("INCUMBENT_IDENTITY", self.candidate.election.identity().into()),
            (DEADLINE_FILE, self.file.path().into()),
        ];
        environment.extend_from_slice(more);
        let duties = Duties {
            grace: self.grace.asked,
            signal: self.options.program.signal,
            cgroup: Cgroup::make(),
            directory: Some(self.file.directory().to_owned()),
        };
        Ok(Ward::start(&self.options.program.command, &environment, duties)?)
    }

    fn lost(&mut self, loss: &Loss) -> Next {
        self.candidate
            .status
            .tell(&format!("lost {}: {}; standing again", loss.election, loss.cause));
        Next::StandAgain
    }

    /// Exits as it is: the entry stays until its lease has run out.
    pub(super) fn leave(&self, code: u8) -> ! {
        let _ = std::fs::remove_dir_all(self.file.directory());
        std::process::exit(code.into())
    }
}

pub(super) fn unguarded() -> Failure {
    Failure::new(
        Code::Failed,
        "the process that guards the command (run-guard) was killed, and the command with it",
    )
}
