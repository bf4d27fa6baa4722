//! A member of a set, from its start to its end.

use std::process::ExitCode;
use std::sync::Arc;

use incumbent::lock::Lock;
use incumbent::sentinel::Sentinel;
use incumbent::{Change, Set, SetBuilder, SetError, ShardChange, check_shards, new_set};
use parking_lot::Mutex;
use tokio::sync::{RwLock, SetOnce, broadcast, mpsc};

use super::args::{SetRun, ShareArgs};
use super::commands::Commands;
use super::http;
use super::work::{MemberEvent, Naming};
use crate::candidate::{CheckProcesses, Health, Reach, Refusals, StatusLine, systemd};
use crate::error::{CliError, Code};
use crate::lock::{LockArgs, OpenedLock, SelectedLock, check_name};
use crate::output;
use crate::process::allow_files;
use crate::run::{
    CommandFailure, Ending, Grace, Order, SignalAction, Signals, channel_of_terms, check_uptime,
    exit_code, new_orders, suspend_self, unstopped,
};

/// A member that runs.
struct Member {
    set: Set,
    signals: Signals,
    status: StatusLine,
    health: Arc<Health>,
    orders: broadcast::Sender<Order>,
    /// Held for reading by the work of each term, until no process of it is left.
    works: Arc<RwLock<()>>,
    naming: Naming,
    check: CheckProcesses,
    ending: Ending,
}

impl SetRun {
    /// Takes part in the set until a signal or a command ends it. `naming`: of its parts.
    pub async fn run(mut self, args: LockArgs, naming: Naming) -> Result<ExitCode, CliError> {
        self.lease = self.lease.of_set()?;
        check_name(&self.name)?;
        check_shards(self.share.shards, self.share.resizing)?; // before the server is tried
        let mut signals = match self.program.prepare()? {
            Ok(signals) => signals,
            Err(code) => return Ok(code),
        };
        if let SelectedLock::ForLife(_) = args.at().await? {
            let message = "a set cannot be used with --kind for-life, as its shards have leases: use `incumbent life`";
            return Err(CliError::new(Code::Usage, message));
        }
        let http = match &self.http {
            Some(address) => Some(http::Server::start(address).await?),
            None => None,
        };
        let mut status = StatusLine::new();
        let first = format!("{}.0", self.name);
        let end = signals.end();
        let lock = Reach::Always.open(&args, &first, &self.lease, &mut status, end).await?;
        let lock = match lock {
            Ok(lock) => lock,
            Err(signal) => return Ok(ExitCode::from(exit_code(signal))),
        };
        check_uptime();
        self.allow_files();
        let (mut member, events, changes) = self.start(lock, (&args, naming), (signals, status))?;
        if let Some(http) = &http {
            http.serve(member.set.clone(), Arc::clone(&member.health));
        }
        member.run(events, changes).await;
        member.check.close();
        member.health.ended();
        member.ending.outcome().map(ExitCode::from)
    }

    /// Each command has three files open here. Others are those of the lock, HTTP and the like.
    fn allow_files(&self) {
        const OTHERS: u64 = 128;
        let ShareArgs { shards, max_shards, .. } = self.share;
        let commands = max_shards.map_or(shards, |most| most.min(shards));
        let wanted = 3 * u64::from(commands) + OTHERS;
        let allowed = allow_files(wanted);
        if allowed < wanted {
            output::note(format!(
                "incumbent: {commands} commands need {wanted} open files, and {allowed} are allowed: \
                 raise `ulimit -n`, or use more members and --max-shards"
            ));
        }
    }

    fn start(
        self,
        lock: OpenedLock,
        (args, naming): (&LockArgs, Naming),
        (signals, status): (Signals, StatusLine),
    ) -> Result<Started, CliError> {
        let grace = Grace::new(lock.lease, self.stop.grace)?;
        let check = CheckProcesses::default();
        let (orders, (events, received)) = (new_orders(), mpsc::unbounded_channel());
        let mut builder = self.builder(&lock);
        if let Some(check) = self.check.start(args, &check)? {
            builder = builder.check(check);
        }
        // A guard knows the election of its shard, but not the others that are held with it.
        let releases = !self.stop.no_sentinel && self.share.resizing.is_none();
        let (sentinels, terms): (Vec<_>, Vec<_>) =
            (0..self.share.shards).map(|_| channel_of_terms(releases)).unzip();
        let (lease, site) = (lock.lease_override, self.site);
        builder = builder.each(move |shard, mut election| {
            if let Some(lease) = lease {
                election = election.lease(lease);
            }
            if let Some(site) = &site {
                election = election.site(site);
            }
            let sentinel = sentinels.get(shard as usize).cloned().unwrap_or_else(Sentinel::none);
            election.grace(grace.total()).sentinel(sentinel)
        });
        let set = Arc::new(SetOnce::new());
        let commands = Arc::new(Commands {
            program: self.program,
            shards: self.share.shards,
            naming,
            on_exit: self.on_exit,
            grace,
            withheld: args.secrets(&self.stop.pass_env),
            terms,
            set: Arc::clone(&set),
            orders: orders.clone(),
            events,
            restarts: Mutex::default(),
        });
        let works = Arc::new(RwLock::new(()));
        // A task of its own: the library would drop it at the end of the grace.
        let of_terms = Arc::clone(&works);
        builder = builder.on_won(move |shard, leadership| {
            let commands = Arc::clone(&commands);
            let works = Arc::clone(&of_terms).try_read_owned(); // nobody writes before the end
            drop(tokio::spawn(async move {
                commands.serve(shard, leadership).await;
                drop(works);
            }));
            std::future::ready(())
        });
        let (started, changes) = builder.start_with_changes()?;
        let _ = set.set(started.clone()); // it was empty
        let member = Member {
            set: started,
            signals,
            status,
            health: Arc::new(Health::new(lock.lease)),
            orders,
            works,
            naming,
            check,
            ending: Ending::new(self.stop.drain, lock.lease),
        };
        Ok((member, received, changes))
    }

    fn builder(&self, lock: &OpenedLock) -> SetBuilder {
        let lock: Arc<dyn Lock> = Arc::clone(&lock.lock);
        let share = &self.share;
        let mut builder = new_set(&self.name, lock).shards(share.shards).weight(share.weight);
        if let Some(other) = share.resizing {
            builder = builder.resizing(other);
        }
        if let Some(max) = share.max_shards {
            builder = builder.max_shards(max);
        }
        if let Some(settle) = share.settle {
            builder = builder.settle(settle);
        }
        if let Some(moves) = share.moves_at_once {
            builder = builder.moves_at_once(moves);
        }
        if let Some(drain) = self.stop.drain {
            builder = builder.drain(drain);
        }
        if let Some(identity) = &self.identity {
            builder = builder.identity(identity);
        }
        builder.stand_aside(self.stand_aside)
    }
}

type Started = (Member, mpsc::UnboundedReceiver<MemberEvent>, incumbent::Changes<ShardChange>);

impl Member {
    /// Takes part until a signal or a command ends it.
    async fn run(
        &mut self,
        mut events: mpsc::UnboundedReceiver<MemberEvent>,
        mut changes: incumbent::Changes<ShardChange>,
    ) {
        let mut service = systemd::ready(http::summary(&self.set));
        // Every member takes part in each election: one of them shows whether the lock responds.
        let election = self.set.election(0).cloned();
        let mut first = election.as_ref().map(incumbent::Election::changes);
        let mut refusals = {
            let elections = (0..).map_while(|shard| self.set.election(shard));
            Refusals::of(elections)
        };
        let (set, works) = (self.set.clone(), Arc::clone(&self.works));
        // The leases may be over before the last process is killed, or known to be left.
        let stop = async {
            set.stop().await;
            drop(works.write().await);
        };
        tokio::pin!(stop);
        loop {
            tokio::select! {
                biased;
                () = &mut stop, if self.ending.has_begun() => break,
                action = self.signals.next() => match action {
                    SignalAction::End(signal) => if self.ending.on_signal(signal) {
                        let elections = (0..).map_while(|shard| self.set.election(shard));
                        elections.for_each(incumbent::Election::end_drain);
                    },
                    // Of several commands none is suspended with this process.
                    SignalAction::Suspend if self.naming == Naming::Shards || self.ending.has_begun() => suspend_self(),
                    SignalAction::Suspend if self.orders.send(Order::Suspend).is_err() => suspend_self(),
                    SignalAction::Suspend => {}
                    // An error: no command runs.
                    SignalAction::PassOn(signal) => drop(self.orders.send(Order::PassOn(signal))),
                },
                Some(event) = events.recv() => self.note(event),
                Some(change) = changes.next() => {
                    self.report(&change);
                    service.update(http::summary(&self.set));
                }
                refused = refusals.next() => self.say(&refused),
                change = next_of(&mut first) => if let (Some(_), Some(election)) = (change, &election) {
                    self.health.note(election);
                } else {
                    first = None;
                },
            }
        }
        // The last command may have failed while the set stopped.
        while let Ok(event) = events.try_recv() {
            self.note(event);
        }
        self.status.clear();
    }

    fn note(&mut self, event: MemberEvent) {
        match event {
            Err(CommandFailure::Left(left)) => self.exit_without_release(&left),
            Err(CommandFailure::Failed(failure)) => self.ending.begin(Err(failure)),
            Ok(code) => self.ending.begin(Ok(code)),
        }
    }

    fn report(&mut self, change: &ShardChange) {
        match change {
            ShardChange::Won { shard, token } => {
                self.status.print(&format!("leads {shard} with token {token}"));
            }
            ShardChange::Draining { shard, .. } => self.status.print(&format!("{shard} drains")),
            ShardChange::Lost { shard, cause, .. } => {
                self.status.print(&format!("lost {shard}: {cause}"));
            }
            ShardChange::Missed(missed) => {
                self.status.print(&format!("missed {missed} transitions"));
            }
            ShardChange::OtherNumber { shards } => {
                let own = self.set.status().len();
                self.say(&self.naming.other_number(own, *shards));
            }
            _ => {}
        }
    }

    /// A line that is printed without a terminal, too.
    fn say(&mut self, line: &str) {
        self.status.clear();
        output::note(format!("incumbent: {line}"));
    }

    /// Exits without a release: the leases must end before another member leads these shards. The
    /// guards of the other commands stop them, and release their shards.
    fn exit_without_release(&self, left: &str) -> ! {
        unstopped(left).report();
        self.check.close();
        std::process::exit(Code::Failed as i32)
    }
}

/// The next change; waits forever without any.
async fn next_of(changes: &mut Option<incumbent::Changes<Change>>) -> Option<Change> {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

impl From<SetError> for CliError {
    fn from(error: SetError) -> Self {
        Self::new(Code::Usage, error.to_string())
    }
}
