//! A command behind its guard, from its start until no process of it is left.

use std::ffi::OsString;
use std::future::pending;

use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::{Election, Leadership, Loss};
use rustix::process::Signal;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::deadline::{Announced, DeadlineFile, variables};
use super::grace::Grace;
use super::guard::{
    CommandEvent, CommandFailure, GuardConfig, GuardHandle, GuardRequest, unguarded,
};
use super::term::resign;
use super::terms::Terms;
use super::watchdog::Watchdog;
use crate::process::{Cgroup, on_own_thread};

/// What is to be done about a running command.
#[derive(Debug, Clone, Copy)]
pub enum Order {
    PassOn(Signal),
    /// Suspend this process with the command.
    Suspend,
    /// Stop it, as this process ends.
    Stop(Signal),
}

/// What goes with a command while it runs.
pub trait Surroundings {
    /// Waits for what is to be done. Cancel safe.
    async fn order(&mut self) -> Order;

    /// The term was renewed.
    fn extend(&mut self, _deadline: Instant) {}

    /// The command drains.
    fn drain(&mut self, _until: Instant) {}

    /// Ends what goes with the term, beside `stop`, which stops the command. `deadline`: of the
    /// term.
    async fn end(&mut self, deadline: Instant, stop: impl Future<Output = ()>);
}

/// The orders of all commands of a program.
impl Surroundings for broadcast::Receiver<Order> {
    async fn order(&mut self) -> Order {
        loop {
            match self.recv().await {
                Ok(order) => return order,
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => pending().await,
            }
        }
    }

    async fn end(&mut self, _deadline: Instant, stop: impl Future<Output = ()>) {
        stop.await;
    }
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
    /// Whether other commands run in the same term.
    pub shares_term: bool,
}

/// How a command ended. No process of it is left.
pub enum CommandEnd {
    ByItself {
        code: u8,
        interrupted: bool,
    },
    /// The terminal was closed.
    HungUp,
    /// It ended its work while the term drained, which continues.
    Drained {
        code: u8,
    },
    /// It was stopped, as the term is over, whatever its exit code.
    Lost(Loss),
    /// It was stopped although the term is not over, which is to be given up.
    GivenUp,
    /// It was stopped upon an order.
    Stopped(Signal),
}

/// A command that has been started, and what it runs by.
pub struct StartedCommand<'a> {
    pub guard: GuardHandle,
    pub leadership: &'a Leadership,
    pub file: &'a mut DeadlineFile,
    pub grace: Grace,
    pub watchdog: &'a Watchdog,
}

impl StartedCommand<'_> {
    /// Waits until no process of the command is left. `deadline`: of the term, at the start.
    pub async fn until_ended(
        mut self,
        mut deadline: Instant,
        surroundings: &mut impl Surroundings,
    ) -> Result<CommandEnd, CommandFailure> {
        let (leadership, grace) = (self.leadership, self.grace);
        let mut draining = false;
        // The term may have been renewed since the file was written.
        self.file.renew(deadline, leadership.token());
        loop {
            self.watchdog.feed(deadline);
            tokio::select! {
                biased;
                loss = leadership.ended() => {
                    self.stop(loss.stop_by, surroundings).await?;
                    return Ok(CommandEnd::Lost(loss));
                }
                notice = leadership.draining(), if !draining => {
                    draining = true;
                    self.guard.request(GuardRequest::Drain);
                    surroundings.drain(notice.until);
                }
                Ok(later) = leadership.renewed(deadline) => {
                    deadline = later;
                    self.guard.request(GuardRequest::RunUntil(grace.until(deadline)));
                    self.file.renew(deadline, leadership.token());
                    surroundings.extend(deadline);
                }
                _ = self.file.fell_behind(grace.total()) => {
                    self.stop(deadline, surroundings).await?;
                    self.file.late().await?;
                    return Ok(CommandEnd::GivenUp);
                }
                order = surroundings.order() => match order {
                    Order::PassOn(signal) => {
                        self.guard.request(GuardRequest::PassOn(signal.as_raw()));
                    }
                    Order::Suspend => self.guard.suspend(),
                    Order::Stop(signal) => {
                        self.stop(deadline, surroundings).await?;
                        return Ok(CommandEnd::Stopped(signal));
                    }
                },
                event = self.guard.event() => {
                    self.watchdog.pause();
                    self.check_left()?;
                    let code = self.guard.code.unwrap_or(1);
                    match event {
                        CommandEvent::Ended if draining => return Ok(CommandEnd::Drained { code }),
                        CommandEvent::Ended => {
                            let interrupted = self.guard.was_interrupted();
                            return Ok(CommandEnd::ByItself { code, interrupted });
                        }
                        CommandEvent::HungUp => {
                            self.stop(deadline, surroundings).await?;
                            return Ok(CommandEnd::HungUp);
                        }
                        // In case the last renewal was stored.
                        CommandEvent::Expired => return Ok(CommandEnd::GivenUp),
                        CommandEvent::Unguarded => return Err(unguarded().into()),
                    }
                }
            }
        }
    }

    /// Stops the command at the end of its term.
    async fn stop(
        &mut self,
        deadline: Instant,
        surroundings: &mut impl Surroundings,
    ) -> Result<(), CommandFailure> {
        self.watchdog.pause();
        let kill_at = self.grace.kill_at(deadline);
        surroundings.end(deadline, self.guard.stop(kill_at)).await;
        self.check_left()
    }

    fn check_left(&self) -> Result<(), CommandFailure> {
        match &self.guard.left {
            Some(left) => Err(CommandFailure::Left(left.clone())),
            None => Ok(()),
        }
    }
}

impl GuardedCommand {
    /// Runs the command once; not at all, if the term is over or drains before it starts. Resigns
    /// from a term that is to be given up, and does not wait for its end: that waits for this
    /// command too, where others drain.
    pub async fn run(
        self,
        (leadership, election): (&Leadership, &Election),
        watchdog: &Watchdog,
        orders: &broadcast::Sender<Order>,
    ) -> Result<Option<CommandEnd>, CommandFailure> {
        let cgroup = on_own_thread(Cgroup::create);
        let creation = on_own_thread(DeadlineFile::create);
        let created = DeadlineFile::created(creation, leadership, &self.grace).await?;
        let Some(mut file) = created else { return Ok(None) };
        let cgroup = cgroup.await.ok().flatten();
        let of_term = (leadership, election);
        let ended = self.run_in(of_term, (&mut file, cgroup), watchdog, orders).await;
        if !matches!(ended, Err(CommandFailure::Left(_))) {
            file.clear(true).await; // before the caller releases the lock
        }
        ended
    }

    async fn run_in(
        self,
        (leadership, election): (&Leadership, &Election),
        (file, cgroup): (&mut DeadlineFile, Option<Cgroup>),
        watchdog: &Watchdog,
        orders: &broadcast::Sender<Order>,
    ) -> Result<Option<CommandEnd>, CommandFailure> {
        let grace = self.grace;
        let undrained = (!self.shares_term).then_some(election);
        match file.announce(leadership, &grace).await? {
            Announced::Yes => {}
            Announced::Ends => return Ok(None),
            Announced::Late => {
                resign(leadership, undrained);
                return Ok(None);
            }
        }
        let deadline = leadership.deadline();
        if grace.until(deadline).ask_at <= BootClock.now() {
            resign(leadership, undrained); // suspended for too long
            return Ok(None);
        }
        // Before the command starts, so that it misses none.
        let mut orders = orders.subscribe();
        let guard = self.start((leadership, election), deadline, file, cgroup)?;
        let started = StartedCommand { guard, leadership, file, grace, watchdog };
        let end = started.until_ended(deadline, &mut orders).await?;
        if matches!(end, CommandEnd::GivenUp) {
            resign(leadership, undrained);
        }
        Ok(Some(end))
    }

    fn start(
        self,
        (leadership, election): (&Leadership, &Election),
        deadline: Instant,
        file: &DeadlineFile,
        cgroup: Option<Cgroup>,
    ) -> Result<GuardHandle, CommandFailure> {
        let mut environment = variables(election, leadership.token(), file.path()).to_vec();
        environment.extend(self.environment);
        let config = GuardConfig {
            cgroup,
            directory: Some(file.directory().to_owned()),
            until: Some(self.grace.until(deadline)),
            ..GuardConfig::new(self.signal, self.grace.stop, self.withheld)
        };
        GuardHandle::start(&self.command, &environment, self.terms, config, self.is_alone)
    }
}
