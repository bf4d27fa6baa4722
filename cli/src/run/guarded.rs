//! A command behind its guard, from its start until no process of it is left: of a shard, or of a
//! job.

use std::ffi::OsString;

use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::{Election, Leadership};
use rustix::process::Signal;
use tokio::sync::broadcast;

use super::deadline::{Announced, DeadlineFile, sleep_until, variables};
use super::grace::Grace;
use super::guard::{
    CommandEvent, CommandFailure, GuardConfig, GuardHandle, GuardRequest, unguarded,
};
use super::term::give_up;
use super::terms::Terms;
use super::watchdog::Watchdog;
use crate::error::CliError;
use crate::process::{Cgroup, on_own_thread};

/// What all running commands are ordered.
#[derive(Debug, Clone, Copy)]
pub enum Order {
    PassOn(Signal),
    /// Suspend this process with the command.
    Suspend,
}

/// How many orders a slow command may lag behind.
const ORDERS: usize = 64;

/// Where the commands of a program get their orders.
pub fn new_orders() -> broadcast::Sender<Order> {
    broadcast::Sender::new(ORDERS)
}

/// A command that runs within a term.
pub struct GuardedCommand {
    pub command: Vec<OsString>,
    /// Beside the variables of the term.
    pub environment: Vec<(&'static str, OsString)>,
    /// The signal that stops it.
    pub signal: Signal,
    pub grace: Grace,
    /// The variables that it does not inherit.
    pub withheld: Vec<String>,
    /// What its guard releases if this process dies.
    pub terms: Option<Terms>,
    /// Whether it has the terminal and standard input to itself.
    pub is_alone: bool,
}

/// How a command ended. No process of it is left.
pub enum CommandEnd {
    ByItself {
        code: u8,
        interrupted: bool,
    },
    /// The terminal was closed.
    HungUp,
    /// It ended its work while the term drained.
    Drained {
        code: u8,
    },
    /// It was stopped, as the term is over, whatever its exit code.
    Stopped,
    /// It has not started: the term is over, or drains.
    NotStarted,
}

impl GuardedCommand {
    /// Runs the command once.
    pub async fn run(
        self,
        (leadership, election): (&Leadership, &Election),
        watchdog: &Watchdog,
        orders: &broadcast::Sender<Order>,
    ) -> Result<CommandEnd, CommandFailure> {
        let grace = self.grace;
        let created = on_own_thread(|| (DeadlineFile::create(), Cgroup::create()));
        let (file, cgroup) = tokio::select! {
            biased;
            _ = leadership.draining() => return Ok(CommandEnd::NotStarted),
            created = created => created.map_err(CliError::from)?,
            () = sleep_until(leadership.deadline() - grace.total()) => {
                give_up(leadership, election).await; // its disk hangs
                return Ok(CommandEnd::NotStarted);
            }
        };
        let mut file = file?;
        match file.announce(leadership, &grace).await? {
            Announced::Yes => {}
            Announced::Ends => return Ok(CommandEnd::NotStarted),
            Announced::Late => {
                give_up(leadership, election).await;
                return Ok(CommandEnd::NotStarted);
            }
        }
        let mut deadline = leadership.deadline();
        if grace.until(deadline).ask_at <= BootClock.now() {
            give_up(leadership, election).await; // suspended for too long
            return Ok(CommandEnd::NotStarted);
        }
        // Before the command starts, so that it misses none.
        let mut orders = orders.subscribe();
        let mut guard = self.start((leadership, election), &file, cgroup)?;
        let mut draining = false;
        loop {
            watchdog.feed(deadline);
            tokio::select! {
                biased;
                loss = leadership.ended() => {
                    stop(&mut guard, watchdog, grace.kill_at(loss.stop_by)).await?;
                    return Ok(CommandEnd::Stopped);
                }
                _ = leadership.draining(), if !draining => {
                    draining = true;
                    guard.request(GuardRequest::Drain);
                }
                Ok(later) = leadership.renewed(deadline) => {
                    deadline = later;
                    guard.request(GuardRequest::RunUntil(grace.until(deadline)));
                    file.renew(deadline, leadership.token());
                }
                _ = file.fell_behind(grace.total()) => {
                    stop(&mut guard, watchdog, grace.kill_at(deadline)).await?;
                    file.late().await?;
                    give_up(leadership, election).await;
                    return Ok(CommandEnd::Stopped);
                }
                order = orders.recv() => match order {
                    Ok(Order::PassOn(signal)) => guard.request(GuardRequest::PassOn(signal.as_raw())),
                    Ok(Order::Suspend) => guard.suspend(),
                    Err(_) => {} // it missed some
                },
                event = guard.event() => {
                    watchdog.pause();
                    check_left(&guard)?;
                    match event {
                        CommandEvent::Ended => {
                            let (code, interrupted) = (guard.code.unwrap_or(1), guard.was_interrupted());
                            return Ok(match draining {
                                true => CommandEnd::Drained { code },
                                false => CommandEnd::ByItself { code, interrupted },
                            });
                        }
                        CommandEvent::HungUp => {
                            stop(&mut guard, watchdog, grace.kill_at(deadline)).await?;
                            return Ok(CommandEnd::HungUp);
                        }
                        CommandEvent::Expired => {
                            give_up(leadership, election).await; // in case the last renewal was stored
                            return Ok(CommandEnd::Stopped);
                        }
                        CommandEvent::Unguarded => return Err(unguarded().into()),
                    }
                }
            }
        }
    }

    fn start(
        self,
        (leadership, election): (&Leadership, &Election),
        file: &DeadlineFile,
        cgroup: Option<Cgroup>,
    ) -> Result<GuardHandle, CommandFailure> {
        let mut environment = variables(election, leadership.token(), file.path()).to_vec();
        environment.extend(self.environment);
        let config = GuardConfig {
            grace: self.grace.stop,
            signal: self.signal,
            cgroup,
            directory: Some(file.directory().to_owned()),
            until: Some(self.grace.until(leadership.deadline())),
            withheld: self.withheld,
            drops_network_capabilities: false,
            watchdog: None,
        };
        GuardHandle::start(&self.command, &environment, self.terms, config, self.is_alone)
    }
}

async fn stop(
    guard: &mut GuardHandle,
    watchdog: &Watchdog,
    kill_at: Instant,
) -> Result<(), CommandFailure> {
    watchdog.pause();
    guard.stop(kill_at).await;
    check_left(guard)
}

fn check_left(guard: &GuardHandle) -> Result<(), CommandFailure> {
    match &guard.left {
        Some(left) => Err(CommandFailure::Left(left.clone())),
        None => Ok(()),
    }
}
