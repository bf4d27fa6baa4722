//! Campaigning with a command that always runs, and is told whether it leads.

use std::future::pending;
use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::{Leadership, Loss};
use rustix::process::Signal;

use super::LOOK_AGAIN;
use super::options::OnExit;
use super::signals::{Told, exit_code, stand_still};
use super::term::{Campaigner, unguarded};
use super::ward::{Event, Ward};
use super::words::Order;
use crate::failure::Failure;

const PAUSE: Duration = Duration::from_secs(1);

/// A term, from its win until the command had the grace to act on its end.
struct Office {
    leadership: Leadership,
    deadline: Instant,
    /// Until when it is still held after its end was told.
    leaving: Option<Instant>,
}

impl Campaigner {
    pub(super) async fn keep(&mut self) -> Result<u8, Failure> {
        let mut office: Option<Office> = None;
        loop {
            let mut ward = self.start(&[])?;
            if office.as_ref().is_some_and(|office| office.leaving.is_none()) {
                ward.order(Order::Signal(Signal::USR1.as_raw())).await;
            }
            if let Some(code) = self.tell(&mut ward, &mut office).await? {
                return Ok(code);
            }
            self.candidate.status.tell("the command ended, starting it again in 1s");
            tokio::select! {
                told = self.signals.next() => match told {
                    Told::End(signal) => return Ok(exit_code(signal)),
                    Told::Suspend => stand_still(),
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
    ) -> Result<Option<u8>, Failure> {
        loop {
            tokio::select! {
                biased;
                loss = ended(office.as_ref()) => {
                    ward.order(Order::Signal(Signal::USR2.as_raw())).await;
                    self.file.lapse();
                    if let Some(office) = office {
                        office.leaving = Some(loss.stop_by);
                    }
                }
                () = left(office.as_ref()) => *office = None,
                later = renewed(office.as_ref()) => if let Some(office) = office {
                    office.deadline = later;
                    self.file.renew(later, office.leadership.token());
                },
                won = self.candidate.election.won(), if office.is_none() => if let Ok(leadership) = won {
                    let deadline = leadership.deadline();
                    self.file.renew(deadline, leadership.token());
                    *office = Some(Office { leadership, deadline, leaving: None });
                    ward.order(Order::Signal(Signal::USR1.as_raw())).await;
                },
                told = self.signals.next() => match told {
                    Told::End(signal) => {
                        self.end(ward, office.as_ref()).await;
                        return Ok(Some(exit_code(signal)));
                    }
                    Told::Suspend => ward.suspend().await,
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
                            OnExit::Stop => self.leave(code),
                            _ => Ok(Some(code)),
                        };
                    }
                    Event::Unguarded => return Err(unguarded()),
                },
            }
        }
    }

    async fn end(&self, ward: &mut Ward, office: Option<&Office>) {
        let latest = BootClock.now() + self.grace.total();
        let deadline = office.map_or(latest, |office| office.deadline);
        ward.stop(self.grace.kill_at(deadline)).await;
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
            office.leadership.renewed(office.deadline).await
        }
        _ => pending().await,
    }
}

async fn left(office: Option<&Office>) {
    let Some(leaving) = office.and_then(|office| office.leaving) else { return pending().await };
    loop {
        let left = leaving.saturating_since(BootClock.now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LOOK_AGAIN)).await;
    }
}
