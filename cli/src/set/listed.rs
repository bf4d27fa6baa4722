//! One command for all shards that this member leads, which it reads from a file.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use incumbent::Leadership;
use incumbent::clock::{BootClock, Clock, Instant};
use rustix::process::Signal;
use tokio::sync::{broadcast, mpsc, watch};

use super::changes_file::{self, Shards, Written};
use super::work::{MemberEvent, Naming, Order};
use crate::error::{CliError, Code};
use crate::output::unwritten;
use crate::process::Cgroup;
use crate::run::{
    CommandEvent, Grace, GuardConfig, GuardHandle, GuardRequest, Program, Terms, sleep_until,
    unguarded,
};

/// The variable with the path of the file.
const SHARDS_FILE: &str = "INCUMBENT_SHARDS_FILE";
/// How long the last write may take.
const WRITE: Duration = Duration::from_secs(1);
/// Longer than any lease.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The command of all shards.
pub struct Listed {
    pub program: Program,
    pub shards: u32,
    /// Absolute.
    pub file: PathBuf,
    pub grace: Grace,
    pub withheld: Vec<String>,
    pub terms: Option<Terms>,
    pub orders: broadcast::Sender<Order>,
    pub events: mpsc::UnboundedSender<MemberEvent>,
}

/// What the shards and the task of the command share.
pub struct ShardList {
    file: PathBuf,
    grace: Grace,
    shards: watch::Sender<Shards>,
    written: watch::Receiver<Written>,
    /// Whether the command has ended.
    gone: watch::Sender<bool>,
    /// Set once the member stops: the command then stops before its shards are released.
    ending: AtomicBool,
    /// By when the command has to be stopped.
    stops: mpsc::UnboundedSender<Instant>,
    events: mpsc::UnboundedSender<MemberEvent>,
}

impl Listed {
    /// Starts the command, for the set `name` and this identity.
    pub fn start(self, name: &str, identity: &str) -> Result<Arc<ShardList>, CliError> {
        let environment: [(&str, OsString); 5] = [
            ("INCUMBENT_SET", name.into()),
            ("INCUMBENT_ELECTION", name.into()),
            ("INCUMBENT_IDENTITY", identity.into()),
            (Naming::Shards.variables().1, self.shards.to_string().into()),
            (SHARDS_FILE, self.file.clone().into()),
        ];
        let config = GuardConfig {
            grace: self.grace.stop,
            signal: self.program.signal,
            cgroup: Cgroup::create(),
            directory: None,
            until: None,
            withheld: self.withheld,
        };
        // Before the command starts, so that it misses none.
        let orders = self.orders.subscribe();
        let command = &self.program.command;
        let guard = GuardHandle::start(command, &environment, self.terms, config, true)?;
        let (shards, led) = watch::channel(Shards::default());
        let (write, written) = watch::channel(Written::default());
        tokio::spawn(changes_file::write_all(self.file.clone(), led, write));
        let (stops, to_stop) = mpsc::unbounded_channel();
        let list = Arc::new(ShardList {
            file: self.file,
            grace: self.grace,
            shards,
            written,
            gone: watch::Sender::new(false),
            ending: AtomicBool::new(false),
            stops,
            events: self.events,
        });
        tokio::spawn(Arc::clone(&list).supervise(guard, orders, to_stop));
        Ok(list)
    }
}

impl ShardList {
    /// Keeps the shard in the file for one term, and then gives the command the grace.
    pub async fn hold(&self, shard: u32, leadership: Leadership) {
        let mut gone = self.gone.subscribe();
        tokio::select! {
            biased;
            _ = gone.wait_for(|gone| *gone) => {} // the member stops
            () = self.hold_until_over(shard, &leadership) => {}
        }
        self.remove(shard, &leadership);
    }

    async fn hold_until_over(&self, shard: u32, leadership: &Leadership) {
        let mut deadline = leadership.deadline();
        loop {
            let mut version = 0;
            self.shards.send_modify(|shards| {
                version = shards.insert(shard, leadership.token(), deadline);
            });
            tokio::select! {
                biased;
                _ = leadership.draining() => break,
                Ok(later) = leadership.renewed(deadline) => deadline = later,
            }
        }
        let version = self.remove(shard, leadership);
        let loss = leadership.ended().await;
        if self.ending.load(Ordering::Acquire) {
            let _ = self.stops.send(loss.stop_by); // an error: the command has ended
            return std::future::pending().await; // until it has
        }
        // The command ends its work on the shard by itself.
        let end = self.grace.kill_at(loss.stop_by);
        sleep_until(end).await;
        if self.written.borrow().version < version {
            // It does not know that it must.
            let failure = unwritten(&self.file, "the disk does not respond");
            let _ = self.events.send(MemberEvent::Failed(failure));
            let _ = self.stops.send(loss.stop_by);
            std::future::pending().await
        }
    }

    fn remove(&self, shard: u32, leadership: &Leadership) -> u64 {
        let mut version = 0;
        self.shards.send_modify(|shards| version = shards.remove(shard, leadership.token()));
        version
    }

    /// Waits until the file is up to date, unless its disk hangs.
    pub async fn written(&self) {
        let version = self.shards.borrow().version();
        let mut written = self.written.clone();
        let written = written.wait_for(|written| written.version >= version);
        let _ = tokio::time::timeout(WRITE, written).await; // the shards are released all the same
    }

    /// The member stops.
    pub fn begin_to_end(&self) {
        self.ending.store(true, Ordering::Release);
    }

    /// Watches the command until it has ended.
    async fn supervise(
        self: Arc<Self>,
        mut guard: GuardHandle,
        orders: broadcast::Receiver<Order>,
        to_stop: mpsc::UnboundedReceiver<Instant>,
    ) {
        let event = match self.run(&mut guard, orders, to_stop).await {
            Ok(event) => event,
            Err(failure) => MemberEvent::Failed(failure),
        };
        if let Some(left) = &guard.left {
            let _ = self.events.send(MemberEvent::Left(left.clone()));
            return; // no shard is released
        }
        let _ = self.events.send(event); // an error: the member has ended
        self.gone.send_replace(true);
    }

    async fn run(
        &self,
        guard: &mut GuardHandle,
        mut orders: broadcast::Receiver<Order>,
        mut to_stop: mpsc::UnboundedReceiver<Instant>,
    ) -> Result<MemberEvent, CliError> {
        let (mut shards, mut written) = (self.shards.subscribe(), self.written.clone());
        let mut until = None;
        let kill_at = || self.grace.kill_at(BootClock.now() + self.grace.total());
        loop {
            tokio::select! {
                biased;
                Some(stop_by) = to_stop.recv() => {
                    guard.stop(self.grace.kill_at(stop_by)).await;
                    return Ok(MemberEvent::Exit(guard.code.unwrap_or(1)));
                }
                Ok(()) = written.changed() => {
                    let failure = written.borrow_and_update().failure.clone();
                    if let Some(why) = failure {
                        guard.stop(kill_at()).await;
                        return Err(unwritten(&self.file, why));
                    }
                    guard.request(GuardRequest::Signal(Signal::USR1.as_raw()));
                }
                Ok(()) = shards.changed() => {
                    let first = shards.borrow_and_update().first_deadline();
                    if std::mem::replace(&mut until, first) != first {
                        let first = first.unwrap_or_else(|| BootClock.now() + NEVER);
                        guard.request(GuardRequest::RunUntil(self.grace.until(first)));
                    }
                }
                order = orders.recv() => match order {
                    Ok(Order::End { drains: true }) => guard.request(GuardRequest::Drain),
                    Ok(Order::End { drains: false }) => {
                        guard.stop(kill_at()).await;
                        return Ok(MemberEvent::Exit(guard.code.unwrap_or(1)));
                    }
                    Ok(Order::Suspend) => guard.suspend(),
                    // It would look like a change of the file.
                    Ok(Order::PassOn(Signal::USR1)) => {}
                    Ok(Order::PassOn(signal)) => guard.request(GuardRequest::PassOn(signal.as_raw())),
                    Err(_) => {}
                },
                event = guard.event() => return match event {
                    CommandEvent::Ended => Ok(MemberEvent::Exit(guard.code.unwrap_or(1))),
                    CommandEvent::HungUp => {
                        guard.stop(kill_at()).await;
                        Ok(MemberEvent::HungUp)
                    }
                    CommandEvent::Expired => Err(expired()),
                    CommandEvent::Unguarded => Err(unguarded()),
                },
            }
        }
    }
}

fn expired() -> CliError {
    let message = "COMMAND was stopped: this process was suspended, and did not renew its leases";
    CliError::new(Code::Failed, message)
}
