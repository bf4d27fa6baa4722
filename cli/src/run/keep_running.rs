//! Campaigning with a command that always runs, and is told whether it leads.

use std::future::pending;
use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::{Leadership, Loss};
use rustix::process::Signal;

use super::args::OnExit;
use super::candidate::Campaigner;
use super::deadline::DeadlineFile;
use super::guard::Order;
use super::guard::{Event, Ward};
use super::guard::{foreign, unguarded};
use super::signals::{SignalAction, exit_code, stand_still};
use super::timer::sleep_until;
use crate::error::CliError;

const PAUSE: Duration = Duration::from_secs(1);
/// How long the end of a term is held back for the deadline file.
const LAPSE: Duration = Duration::from_millis(20);

/// A term, from its win until the command had the grace to act on its end.
struct Office {
    leadership: Leadership,
    deadline: Instant,
    /// What it was at first.
    won_until: Instant,
    /// The command was told of it: the deadline file says so.
    told: bool,
    /// Until when it is still held after its end was told.
    leaving: Option<Instant>,
    /// Why nothing goes on after it.
    failure: Option<CliError>,
}

impl Office {
    fn new(leadership: Leadership) -> Self {
        let deadline = leadership.deadline();
        Self {
            leadership,
            deadline,
            won_until: deadline,
            told: false,
            leaving: None,
            failure: None,
        }
    }

    fn goes_on(&self) -> bool {
        self.leaving.is_none() && self.failure.is_none()
    }
}

impl Campaigner {
    pub async fn keep(&mut self) -> Result<u8, CliError> {
        let mut office: Option<Office> = None;
        loop {
            let mut ward = self.start(&[], None)?;
            if office.as_ref().is_some_and(|office| office.goes_on() && office.told) {
                ward.order(Order::Signal(Signal::USR1.as_raw()));
            }
            let code = self.tell(&mut ward, &mut office).await;
            self.pulse.rest();
            self.nothing_is_left(&ward);
            if let Some(code) = code? {
                return Ok(code);
            }
            if let Some(office) = &office {
                self.pulse.beat(office.leadership.deadline());
            }
            self.candidate.status.tell("the command ended, starting it again in 1s");
            tokio::select! {
                told = self.signals.next() => match told {
                    SignalAction::End(signal) => return Ok(exit_code(signal)),
                    SignalAction::Suspend => stand_still(),
                    SignalAction::PassOn(_) => {}
                },
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }

    /// Tells one run of the command of terms; answers the exit code, or nothing where it is to be started again.
    async fn tell(
        &mut self,
        ward: &mut Ward,
        office: &mut Option<Office>,
    ) -> Result<Option<u8>, CliError> {
        loop {
            match office.as_ref().filter(|office| office.leaving.is_none()) {
                Some(office) => self.pulse.beat(office.deadline),
                None => self.pulse.rest(),
            }
            tokio::select! {
                biased;
                loss = ended(office.as_ref()) => {
                    self.file.lapse();
                    // So that it finds what the file says now, unless its disk hangs.
                    let _ = tokio::time::timeout(LAPSE, self.file.written()).await;
                    ward.order(Order::Signal(Signal::USR2.as_raw()));
                    if let Some(office) = office {
                        office.leaving = Some(loss.stop_by);
                    }
                }
                () = left(office.as_ref()) => {
                    let failure = office.take().and_then(|office| office.failure);
                    if !ward.has_heard_all() {
                        ward.stop_without_guard().await; // the command was not told
                        return Err(failure.unwrap_or_else(unguarded));
                    }
                    if let Some(failure) = failure {
                        self.end(ward, None).await;
                        return Err(failure);
                    }
                }
                later = renewed(office.as_ref()) => if let Some(office) = office {
                    office.deadline = later;
                    self.file.renew(later, office.leadership.token());
                },
                won = self.candidate.election.won(), if office.is_none() => if let Ok(leadership) = won {
                    self.file.renew(leadership.deadline(), leadership.token());
                    *office = Some(Office::new(leadership));
                },
                failure = unwritten(&self.file, office.as_ref(), self.grace.total()) => if let Some(office) = office {
                    office.failure.get_or_insert(failure);
                    office.leadership.resign();
                },
                told = written(&self.file, office.as_ref()) => if let Some(office) = office {
                    match told {
                        Ok(()) => {
                            office.told = true;
                            ward.order(Order::Signal(Signal::USR1.as_raw()));
                        }
                        Err(why) => {
                            office.failure.get_or_insert(self.file.failure(Some(&why)));
                            office.leadership.resign();
                        }
                    }
                },
                told = self.signals.next() => match told {
                    SignalAction::End(signal) => {
                        self.end(ward, office.as_ref()).await;
                        return Ok(Some(exit_code(signal)));
                    }
                    SignalAction::Suspend => ward.suspend(),
                    // They would tell it of wins and losses that are none.
                    SignalAction::PassOn(Signal::USR1 | Signal::USR2) => {}
                    SignalAction::PassOn(signal) => ward.order(Order::PassOn(signal.as_raw())),
                },
                event = ward.event() => match event {
                    Event::HungUp => {
                        self.end(ward, office.as_ref()).await;
                        return Ok(Some(exit_code(Signal::HUP)));
                    }
                    Event::Ended | Event::Expired => {
                        let code = ward.code.unwrap_or(1);
                        let again = !ward.was_interrupted();
                        return match self.options.on_exit {
                            OnExit::Restart if again => Ok(None),
                            OnExit::Stop => {
                                self.nothing_is_left(ward);
                                self.leave(code)
                            }
                            _ => Ok(Some(code)),
                        };
                    }
                    Event::Unguarded => return Err(unguarded()),
                    Event::Foreign => {
                        self.end(ward, office.as_ref()).await;
                        return Err(foreign());
                    }
                },
            }
        }
    }

    async fn end(&mut self, ward: &mut Ward, office: Option<&Office>) {
        let latest = BootClock.now() + self.grace.total();
        let deadline = office.map_or(latest, |office| office.deadline);
        self.stop(ward, deadline).await;
    }
}

/// Waits until the file says that this term has begun.
async fn written(file: &DeadlineFile, office: Option<&Office>) -> Result<(), String> {
    match office {
        Some(office) if office.goes_on() && !office.told => file.written().await,
        _ => pending().await,
    }
}

/// Waits until the file says too little of this term.
async fn unwritten(file: &DeadlineFile, office: Option<&Office>, margin: Duration) -> CliError {
    match office {
        Some(office) if office.goes_on() && office.told => file.fell_behind(margin).await,
        Some(office) if office.goes_on() => {
            sleep_until(office.won_until - margin).await;
            file.failure(None)
        }
        _ => pending().await,
    }
}

async fn ended(office: Option<&Office>) -> Loss {
    match office {
        Some(office) if office.leaving.is_none() => office.leadership.ended().await,
        _ => pending().await,
    }
}

async fn renewed(office: Option<&Office>) -> Instant {
    match office {
        Some(office) if office.leaving.is_none() => {
            match office.leadership.renewed(office.deadline).await {
                Ok(deadline) => deadline,
                Err(_) => pending().await, // who waits for the end is told
            }
        }
        _ => pending().await,
    }
}

async fn left(office: Option<&Office>) {
    match office.and_then(|office| office.leaving) {
        Some(leaving) => sleep_until(leaving).await,
        None => pending().await,
    }
}
