//! A candidate that keeps a command running, and signals it the begin and end of terms.

use std::future::pending;
use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::{Leadership, Loss};
use rustix::process::Signal;

use super::args::OnExit;
use super::candidate::CommandCandidate;
use super::deadline::{DeadlineFile, sleep_until};
use super::guard::GuardRequest;
use super::guard::unguarded;
use super::guard::{CommandEvent, GuardHandle};
use super::signals::{SignalAction, exit_code, suspend_self};
use crate::error::CliError;

/// How long the end of a term waits for the deadline file.
const LAPSE: Duration = Duration::from_millis(20);

/// A term, from its begin until the command had the grace to act on its end.
struct Term {
    leadership: Leadership,
    deadline: Instant,
    /// The first deadline.
    won_until: Instant,
    /// Whether the command was signalled: the deadline file has the term.
    signalled: bool,
    /// The end of the grace after the command was signalled the end of the term.
    held_until: Option<Instant>,
    /// The error to stop with.
    failure: Option<CliError>,
}

impl Term {
    fn new(leadership: Leadership) -> Self {
        let deadline = leadership.deadline();
        Self {
            leadership,
            deadline,
            won_until: deadline,
            signalled: false,
            held_until: None,
            failure: None,
        }
    }

    fn continues(&self) -> bool {
        self.held_until.is_none() && self.failure.is_none()
    }
}

impl CommandCandidate {
    pub async fn run_always(&mut self) -> Result<u8, CliError> {
        let mut term: Option<Term> = None;
        loop {
            let started = BootClock.now();
            let mut guard = self.start(&[], None)?;
            if term.as_ref().is_some_and(|term| term.continues() && term.signalled) {
                guard.request(GuardRequest::Signal(Signal::USR1.as_raw()));
            }
            let code = self.signal_terms(&mut guard, &mut term).await;
            self.watchdog.pause();
            self.exit_if_processes_remain(&guard);
            if let Some(code) = code? {
                return Ok(code);
            }
            if let Some(term) = &term {
                self.watchdog.feed(term.leadership.deadline());
            }
            let pause = self.restarts.pause_after(started);
            let spoken = humantime::format_duration(pause);
            self.candidate.status.print(&format!("the command exited, restarting it in {spoken}"));
            tokio::select! {
                action = self.signals.next() => match action {
                    SignalAction::End(signal) => return Ok(exit_code(signal)),
                    SignalAction::Suspend => suspend_self(),
                    SignalAction::PassOn(_) => {}
                },
                () = sleep_until(BootClock.now() + pause) => {}
            }
        }
    }

    /// Signals terms to one run of the command. Returns the exit code, or `None` to restart it.
    async fn signal_terms(
        &mut self,
        guard: &mut GuardHandle,
        term: &mut Option<Term>,
    ) -> Result<Option<u8>, CliError> {
        loop {
            match term.as_ref().filter(|term| term.held_until.is_none()) {
                Some(term) => self.watchdog.feed(term.deadline),
                None => self.watchdog.pause(),
            }
            tokio::select! {
                biased;
                loss = ended(term.as_ref()) => {
                    self.file.lapse();
                    // The command should read the new line, unless the disk hangs.
                    let _ = tokio::time::timeout(LAPSE, self.file.written()).await;
                    guard.request(GuardRequest::Signal(Signal::USR2.as_raw()));
                    if let Some(term) = term {
                        term.held_until = Some(loss.stop_by);
                    }
                }
                () = left(term.as_ref()) => {
                    let failure = term.take().and_then(|term| term.failure);
                    if !guard.has_acknowledged_all() {
                        guard.stop_without_guard().await; // the command was not signalled
                        return Err(failure.unwrap_or_else(unguarded));
                    }
                    if let Some(failure) = failure {
                        self.end(guard, None).await;
                        return Err(failure);
                    }
                }
                later = renewed(term.as_ref()) => if let Some(term) = term {
                    term.deadline = later;
                    self.file.renew(later, term.leadership.token());
                },
                won = self.candidate.election.won(), if term.is_none() => if let Ok(leadership) = won {
                    self.file.renew(leadership.deadline(), leadership.token());
                    *term = Some(Term::new(leadership));
                },
                failure = unwritten(&self.file, term.as_ref(), self.grace.total()) => if let Some(term) = term {
                    term.failure.get_or_insert(failure);
                    term.leadership.resign();
                },
                result = written(&self.file, term.as_ref()) => if let Some(term) = term {
                    match result {
                        Ok(()) => {
                            term.signalled = true;
                            guard.request(GuardRequest::Signal(Signal::USR1.as_raw()));
                        }
                        Err(why) => {
                            term.failure.get_or_insert(self.file.failure(Some(&why)));
                            term.leadership.resign();
                        }
                    }
                },
                action = self.signals.next() => match action {
                    SignalAction::End(signal) => {
                        self.end(guard, term.as_ref()).await;
                        return Ok(Some(exit_code(signal)));
                    }
                    SignalAction::Suspend => guard.suspend(),
                    // They would look like the begin or end of a term.
                    SignalAction::PassOn(Signal::USR1 | Signal::USR2) => {}
                    SignalAction::PassOn(signal) => guard.request(GuardRequest::PassOn(signal.as_raw())),
                },
                event = guard.event() => match event {
                    CommandEvent::HungUp => {
                        self.end(guard, term.as_ref()).await;
                        return Ok(Some(exit_code(Signal::HUP)));
                    }
                    CommandEvent::Ended | CommandEvent::Expired => {
                        let code = guard.code.unwrap_or(1);
                        let again = !guard.was_interrupted();
                        return match self.options.on_exit {
                            OnExit::Restart if again => Ok(None),
                            OnExit::Stop => {
                                self.exit_if_processes_remain(guard);
                                self.exit_without_release(code)
                            }
                            _ => Ok(Some(code)),
                        };
                    }
                    CommandEvent::Unguarded => return Err(unguarded()),
                },
            }
        }
    }

    async fn end(&mut self, guard: &mut GuardHandle, term: Option<&Term>) {
        let latest = BootClock.now() + self.grace.total();
        let deadline = term.map_or(latest, |term| term.deadline);
        self.stop(guard, deadline).await;
    }
}

/// Waits until the file has the term.
async fn written(file: &DeadlineFile, term: Option<&Term>) -> Result<(), String> {
    match term {
        Some(term) if term.continues() && !term.signalled => file.written().await,
        _ => pending().await,
    }
}

/// Waits until the file is behind the term.
async fn unwritten(file: &DeadlineFile, term: Option<&Term>, margin: Duration) -> CliError {
    match term {
        Some(term) if term.continues() && term.signalled => file.fell_behind(margin).await,
        Some(term) if term.continues() => {
            sleep_until(term.won_until - margin).await;
            file.failure(None)
        }
        _ => pending().await,
    }
}

async fn ended(term: Option<&Term>) -> Loss {
    match term {
        Some(term) if term.held_until.is_none() => term.leadership.ended().await,
        _ => pending().await,
    }
}

async fn renewed(term: Option<&Term>) -> Instant {
    match term {
        Some(term) if term.held_until.is_none() => {
            match term.leadership.renewed(term.deadline).await {
                Ok(deadline) => deadline,
                Err(_) => pending().await, // `ended` returns
            }
        }
        _ => pending().await,
    }
}

async fn left(term: Option<&Term>) {
    match term.and_then(|term| term.held_until) {
        Some(held_until) => sleep_until(held_until).await,
        None => pending().await,
    }
}
