//! One command per shard that this member leads.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::{Election, Leadership, Set};
use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::sync::{SetOnce, broadcast, mpsc};

use super::work::{MemberEvent, Naming, OnShardExit};
use crate::output;
use crate::process::sleep_until;
use crate::run::{
    CommandEnd, CommandFailure, Grace, GuardedCommand, Order, Program, Restarts, Terms, Watchdog,
    exit_code,
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
    pub terms: Vec<Option<Terms>>,
    pub set: Arc<SetOnce<Set>>,
    pub orders: broadcast::Sender<Order>,
    pub events: mpsc::UnboundedSender<MemberEvent>,
    /// By shard: a command that fails in each term starts no more often than one in one term.
    pub restarts: Mutex<HashMap<u32, Restarts>>,
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
        let watchdog = Watchdog::start(election.clone(), false);
        let term = Term { shard, leadership: &leadership, election, watchdog };
        loop {
            let started = BootClock.now();
            let ended = self.work(&term).await;
            term.watchdog.pause();
            let (code, interrupted) = match ended {
                Ok(Some(CommandEnd::ByItself { code, interrupted })) => (code, interrupted),
                Ok(Some(CommandEnd::HungUp)) => {
                    return self.end(&term, Ok(exit_code(Signal::HUP))).await;
                }
                Ok(_) => return,
                Err(failure) => return self.end(&term, Err(failure)).await,
            };
            match self.on_exit {
                OnShardExit::Restart if !interrupted => {}
                OnShardExit::GiveUp => {}
                _ => return self.end(&term, Ok(code)).await,
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
        let is_left = matches!(event, Err(CommandFailure::Left(_)));
        let _ = self.events.send(event); // an error: the member has ended
        match is_left {
            true => std::future::pending().await, // the shard must not be released
            false => drop(term.leadership.draining().await),
        }
    }

    /// Runs the command once.
    async fn work(&self, term: &Term<'_>) -> Result<Option<CommandEnd>, CommandFailure> {
        let (number, count) = self.naming.variables();
        let set = self.set.get().map(|set| OsString::from(set.name())).unwrap_or_default();
        let command = GuardedCommand {
            command: self.naming.command(&self.program.command, term.shard),
            environment: vec![
                ("INCUMBENT_SET", set),
                (number, term.shard.to_string().into()),
                (count, self.shards.to_string().into()),
            ],
            signal: self.program.signal,
            grace: self.grace,
            withheld: self.withheld.clone(),
            terms: self.terms.get(term.shard as usize).cloned().flatten(),
            is_alone: self.naming == Naming::Seats,
            shares_term: false,
        };
        let of_term = (term.leadership, term.election);
        command.run(of_term, &term.watchdog, &self.orders).await
    }
}
