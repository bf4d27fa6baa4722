//! One command per shard that this member leads.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::{Election, Leadership, Set};
use parking_lot::Mutex;
use tokio::sync::{SetOnce, broadcast, mpsc};

use super::work::{MemberEvent, Naming, OnShardExit, Order};
use crate::error::CliError;
use crate::output;
use crate::process::Cgroup;
use crate::run::{
    CommandEvent, DeadlineFile, Grace, GuardConfig, GuardHandle, GuardRequest, Program, Restarts,
    Terms, Watchdog, sleep_until, unguarded, variables,
};

/// What the commands of all shards share.
pub struct Commands {
    pub program: Program,
    pub shards: u32,
    pub naming: Naming,
    pub on_exit: OnShardExit,
    pub grace: Grace,
    pub withheld: Vec<String>,
    /// By shard, what its guard releases if this process dies; none without a sentinel.
    pub terms: Vec<Terms>,
    /// Whether there is one command at a time.
    pub is_alone: bool,
    pub set: Arc<SetOnce<Set>>,
    pub orders: broadcast::Sender<Order>,
    pub events: mpsc::UnboundedSender<MemberEvent>,
    /// By shard: a command that fails in each term starts no more often than one in one term.
    pub restarts: Mutex<HashMap<u32, Restarts>>,
}

/// How a run of a command ended. No process of it is left.
enum Ended {
    ByItself {
        code: u8,
        interrupted: bool,
    },
    /// The shard is given up.
    Over,
}

/// A term of a shard.
struct Term<'a> {
    shard: u32,
    leadership: &'a Leadership,
    election: &'a Election,
    watchdog: Watchdog,
}

impl Commands {
    /// The work on a shard, for one term. Returns once no process of it is left.
    pub async fn serve(&self, shard: u32, leadership: Leadership) {
        let Some(election) = self.set.wait().await.election(shard) else { return };
        let watchdog = Watchdog::start(election.clone());
        let term = Term { shard, leadership: &leadership, election, watchdog };
        loop {
            let started = BootClock.now();
            let ended = self.work(&term).await;
            term.watchdog.pause();
            let (code, interrupted) = match ended {
                Ok(Ended::ByItself { code, interrupted }) => (code, interrupted),
                Ok(Ended::Over) => return,
                Err(failure) => return self.end(&term, MemberEvent::Failed(failure)).await,
            };
            match self.on_exit {
                OnShardExit::Exit => return self.end(&term, MemberEvent::Exit(code)).await,
                OnShardExit::Restart if interrupted => {
                    return self.end(&term, MemberEvent::Exit(code)).await;
                }
                OnShardExit::Restart | OnShardExit::GiveUp => {}
            }
            let pause = self.pause_after(shard, started);
            self.note(shard, code, pause);
            tokio::select! {
                _ = leadership.draining() => return,
                () = sleep_until(BootClock.now() + pause) => {}
            }
            if self.on_exit == OnShardExit::GiveUp {
                return;
            }
        }
    }

    fn pause_after(&self, shard: u32, started: Instant) -> Duration {
        let mut restarts = self.restarts.lock();
        restarts.entry(shard).or_default().pause_after(started)
    }

    fn note(&self, shard: u32, code: u8, pause: Duration) {
        let what = match self.naming {
            Naming::Shards => "shard",
            Naming::Seats => "seat",
        };
        let next = match self.on_exit {
            OnShardExit::GiveUp => "giving it up",
            OnShardExit::Restart | OnShardExit::Exit => "restart",
        };
        let pause = humantime::format_duration(pause);
        output::note(format!(
            "incumbent: {what} {shard}: COMMAND exited with code {code}; {next} in {pause}"
        ));
    }

    /// Reports an event that ends the member, and keeps the shard until it does.
    async fn end(&self, term: &Term<'_>, event: MemberEvent) {
        let _ = self.events.send(event); // an error: the member has ended
        term.leadership.draining().await;
    }

    /// Runs the command once.
    async fn work(&self, term: &Term<'_>) -> Result<Ended, CliError> {
        let leadership = term.leadership;
        let Ok(file) = tokio::task::spawn_blocking(DeadlineFile::create).await else {
            return Ok(Ended::Over); // the program ends
        };
        let mut file = file?;
        let mut deadline = leadership.deadline();
        file.renew(deadline, leadership.token());
        tokio::select! {
            biased;
            _ = leadership.draining() => return Ok(Ended::Over),
            written = file.written() => written.map_err(|why| file.failure(Some(&why)))?,
            () = sleep_until(deadline - self.grace.total()) => return Err(file.failure(None)),
        }
        let until = self.grace.until(deadline);
        if until.ask_at <= BootClock.now() {
            return Ok(Ended::Over); // suspended for too long
        }
        // Before the command starts, so that it misses none.
        let mut orders = self.orders.subscribe();
        let mut guard = self.start(term, &file)?;
        let mut draining = false;
        loop {
            term.watchdog.feed(deadline);
            tokio::select! {
                biased;
                loss = leadership.ended() => {
                    self.stop(term, &mut guard, loss.stop_by).await;
                    return Ok(Ended::Over);
                }
                _ = leadership.draining(), if !draining => {
                    draining = true;
                    guard.request(GuardRequest::Drain);
                }
                Ok(later) = leadership.renewed(deadline) => {
                    deadline = later;
                    guard.request(GuardRequest::RunUntil(self.grace.until(deadline)));
                    file.renew(deadline, leadership.token());
                }
                failure = file.fell_behind(self.grace.total()) => {
                    self.stop(term, &mut guard, deadline).await;
                    return Err(failure);
                }
                order = orders.recv() => match order {
                    Ok(Order::PassOn(signal)) => guard.request(GuardRequest::PassOn(signal.as_raw())),
                    Ok(Order::Suspend) => guard.suspend(),
                    Err(_) => {} // it missed some
                },
                event = guard.event() => {
                    term.watchdog.pause();
                    self.check_left(&guard).await;
                    match event {
                        CommandEvent::Ended if draining => return Ok(Ended::Over),
                        CommandEvent::Ended => {
                            let interrupted = guard.was_interrupted();
                            return Ok(Ended::ByItself { code: guard.code.unwrap_or(1), interrupted });
                        }
                        CommandEvent::HungUp => {
                            self.stop(term, &mut guard, deadline).await;
                            self.end(term, MemberEvent::HungUp).await;
                            return Ok(Ended::Over);
                        }
                        CommandEvent::Expired => {
                            leadership.resign(); // in case the last renewal was stored
                            leadership.ended().await;
                            return Ok(Ended::Over);
                        }
                        CommandEvent::Unguarded => return Err(unguarded()),
                    }
                }
            }
        }
    }

    fn start(&self, term: &Term<'_>, file: &DeadlineFile) -> Result<GuardHandle, CliError> {
        let (number, count) = self.naming.variables();
        let set = self.set.get().map(|set| OsString::from(set.name())).unwrap_or_default();
        let mut environment =
            variables(term.election, term.leadership.token(), file.path()).to_vec();
        environment.extend([
            ("INCUMBENT_SET", set),
            (number, term.shard.to_string().into()),
            (count, self.shards.to_string().into()),
        ]);
        let config = GuardConfig {
            grace: self.grace.stop,
            signal: self.program.signal,
            cgroup: Cgroup::create(),
            directory: Some(file.directory().to_owned()),
            until: Some(self.grace.until(term.leadership.deadline())),
            withheld: self.withheld.clone(),
            drops_network_capabilities: false,
        };
        let command = self.naming.command(&self.program.command, term.shard);
        let terms = self.terms.get(term.shard as usize).cloned();
        Ok(GuardHandle::start(&command, &environment, terms, config, self.is_alone)?)
    }

    /// Stops the command of a shard.
    async fn stop(&self, term: &Term<'_>, guard: &mut GuardHandle, deadline: Instant) {
        term.watchdog.pause();
        guard.stop(self.grace.kill_at(deadline)).await;
        self.check_left(guard).await;
    }

    /// Ends the program if a process could not be stopped: its shard must not be released.
    async fn check_left(&self, guard: &GuardHandle) {
        if let Some(left) = &guard.left {
            let _ = self.events.send(MemberEvent::Left(left.clone()));
            std::future::pending::<()>().await;
        }
    }
}
