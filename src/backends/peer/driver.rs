//! The task of one member: it connects the state machines to sockets and a clock.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::protocol::{Action, Change, Event, Group};
use super::quorum::{Outcome, QuorumError, Voter, VoterAction, VoterEvent};
use super::seal::{Guard, Opened, Reason, is_signed};
use super::shared::{Input, Shared};
use super::sockets::{MAX_DATAGRAM_LEN, Sockets, receive};
use super::source::{PeerSource, REFRESH};
use crate::time::clock::Instant;
use crate::time::timer::deadline_after;
use crate::util::text::{error_chain, escape_line};

/// How long to wait after a socket error.
const PAUSE: Duration = Duration::from_millis(50);
/// How long one query of a source may take.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum length in bytes of another member's identifier in a log line.
const MAX_LOGGED_ID_LEN: usize = 128;

/// The maximum length in bytes of a source's error in a log line.
const MAX_ERROR_LEN: usize = 1024;

/// The result of a source: its index, and its addresses or the error.
type SourceResult = (usize, Result<Vec<SocketAddr>, String>);

pub(super) struct Driver {
    pub shutdown: ShutdownGuard,
    pub sockets: Sockets,
    pub group: Group,
    pub sources: Vec<Box<dyn PeerSource>>,
    /// Whether messages advertise the address that a peer sees.
    pub finds_source: bool,
    pub timeout: Duration,
    /// The version of the group in the published status.
    pub published_version: Option<u64>,
    /// The voter, if this member is part of a quorum.
    pub seat: Option<VoterHost>,
    /// The signer, if members share a key.
    pub guard: Option<Guard>,
    /// The last signed datagram, kept because it may go to several peers.
    pub sealed: Option<(Arc<[u8]>, Vec<u8>)>,
}

type Answer = oneshot::Sender<Result<Outcome, QuorumError>>;

/// A voter in the task, and the pending requests of locks.
pub(super) struct VoterHost {
    pub voter: Voter,
    tickets: u64,
    waiting: BTreeMap<u64, Answer>,
}

impl VoterHost {
    pub fn new(voter: Voter) -> Self {
        Self { voter, tickets: 0, waiting: BTreeMap::new() }
    }

    pub fn register(&mut self, answer: Answer) -> u64 {
        self.tickets += 1;
        self.waiting.insert(self.tickets, answer);
        self.tickets
    }

    pub fn answer(&mut self, ticket: u64, answer: Result<Outcome, QuorumError>) {
        if let Some(waiting) = self.waiting.remove(&ticket) {
            let _ = waiting.send(answer); // an error means that the request was dropped
        }
    }
}

/// Publishes that the member has left, however its task ends.
pub(super) struct ShutdownGuard(pub Arc<Shared>);

impl Drop for ShutdownGuard {
    fn drop(&mut self) {
        self.0.leads_until_ns.store(0, Ordering::Release);
        self.0.votes.store(false, Ordering::Relaxed);
        self.0.status.send_modify(|status| {
            status.leader = None;
            status.members.clear();
            status.finished = true;
        });
    }
}

impl Driver {
    pub async fn run(mut self, mut inputs: mpsc::UnboundedReceiver<Input>) {
        let (finds, mut found) = mpsc::channel(1);
        let mut finders = JoinSet::new(); // a drop aborts the tasks
        let sources = std::mem::take(&mut self.sources);
        let mut peers: Vec<Vec<SocketAddr>> = vec![Vec::new(); sources.len()];
        for (index, source) in sources.into_iter().enumerate() {
            finders.spawn(find(index, source, finds.clone()));
        }
        drop(finds);
        let mut buffer = vec![0; MAX_DATAGRAM_LEN];
        let mut sleep = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
        self.handle(Event::Start);
        self.vote(VoterEvent::Start);
        loop {
            self.perform().await;
            let now = self.now();
            let voter = self.seat.as_ref().map(|seat| &seat.voter);
            self.shared().votes.store(voter.is_some_and(|v| v.votes(now)), Ordering::Relaxed);
            let votes = voter.and_then(|voter| voter.next_wake());
            let wake = [self.group.next_wake(), votes].into_iter().flatten().min();
            if let Some(wake) = wake {
                let wait = wake.saturating_since(self.now());
                sleep.as_mut().reset(deadline_after(wait));
            }
            tokio::select! {
                Some(input) = inputs.recv() => match input {
                    Input::Resign => self.handle(Event::Resign),
                    Input::SubscribeChannel(channel) => self.handle(Event::Subscribe(channel)),
                    Input::Publish(channel, data) => self.handle(Event::Publish(channel, data)),
                    Input::Send(event, data) => self.handle(Event::Send(event, data)),
                    Input::Request { name, operation, timeout, answer } => {
                        if let Some(seat) = &mut self.seat {
                            let ticket = seat.register(answer);
                            self.vote(VoterEvent::Propose { ticket, name, operation, timeout });
                        }
                    }
                    Input::NotifyStepDown(name, notice) => {
                        self.vote(VoterEvent::NotifyStepDown(name, notice));
                    }
                    Input::Stop => {
                        self.vote(VoterEvent::Stop);
                        self.handle(Event::Stop);
                        return self.perform().await;
                    }
                },
                received = receive(&self.sockets, &mut buffer) => match received {
                    Ok((length, from, multicast)) => {
                        let bytes = buffer.get(..length).unwrap_or_default();
                        self.receive(from, multicast, bytes).await;
                    }
                    Err(error) => {
                        debug!(%error, "receiving a datagram failed");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
                Some((index, answer)) = found.recv() => match answer {
                    Ok(addresses) => {
                        if let Some(known) = peers.get_mut(index) {
                            *known = addresses;
                        }
                        let peers: Vec<_> = peers.iter().flatten().copied().collect();
                        self.find_source(&peers);
                        self.handle(Event::Peers(peers));
                    }
                    Err(problem) => {
                        warn!(%problem, "finding peers failed");
                        self.shared().publish(Change::DiscoveryFailed(problem.into()));
                    }
                },
                () = sleep.as_mut(), if wake.is_some() => {
                    // Nothing is sent before the address is known: not even to those that sent
                    // first, or that could not be reached when their addresses were found.
                    if !self.group.has_source() {
                        let mut known = self.group.all_addresses();
                        known.sort_by_key(|known| known.ip().is_loopback()); // the last resort
                        self.find_source(&known);
                    }
                    self.handle(Event::Wake);
                    self.vote(VoterEvent::Wake);
                }
            }
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.shutdown.0
    }

    fn now(&self) -> Instant {
        self.shared().clock.now()
    }

    /// Finds the address at which a peer sees this member, if the member is bound to every address
    /// of this machine.
    fn find_source(&mut self, peers: &[SocketAddr]) {
        if self.finds_source {
            let bound = self.shared().bound;
            let source = peers.iter().find_map(|peer| Sockets::seen_from(bound, *peer));
            if let Some(source) = source {
                self.handle(Event::Source(source));
            }
        }
    }

    fn handle(&mut self, event: Event<'_>) {
        let now = self.now();
        self.group.handle(now, event);
        let until = if self.group.leads() { (now + self.timeout).as_nanos() } else { 0 };
        self.shared().leads_until_ns.store(until, Ordering::Release);
        if self.published_version != Some(self.group.version()) {
            self.published_version = Some(self.group.version());
            self.shared().status.send_modify(|status| {
                status.leader = self.group.leader();
                status.members = self.group.members();
            });
        }
    }

    /// Passes an event to the voter, and performs the voter's actions.
    fn vote(&mut self, event: VoterEvent<'_>) {
        let now = self.now();
        let Some(seat) = &mut self.seat else { return };
        seat.voter.handle(now, event);
        while let Some(action) = seat.voter.poll_action() {
            match action {
                VoterAction::Send { to, message } => {
                    let event = Voter::EVENT.to_owned();
                    let send = match to {
                        Some(to) => Event::SendTo(to, event, message),
                        None => Event::Send(event, message),
                    };
                    self.group.handle(now, send);
                }
                VoterAction::Answer { ticket, answer } => seat.answer(ticket, answer),
                VoterAction::Hint { name, hint } => {
                    self.shutdown.0.hints.send(&name, &hint, |()| ());
                }
            }
        }
    }

    async fn perform(&mut self) {
        while let Some(action) = self.group.poll_action() {
            match action {
                Action::Report(Change::Message { from, address, event, data })
                    if event == Voter::EVENT =>
                {
                    self.vote(VoterEvent::Received { id: &from, from: address, message: &data });
                }
                Action::Send { to, bytes } => {
                    self.send(to, bytes).await;
                }
                Action::Report(change) => self.report(change),
            }
        }
    }

    /// Handles a datagram if its signature is accepted.
    async fn receive(&mut self, from: SocketAddr, multicast: bool, bytes: &[u8]) {
        let now = self.now();
        let Some(guard) = &mut self.guard else {
            if is_signed(bytes) {
                debug!(%from, "signed datagram received without a key");
            }
            return self.handle(Event::Datagram { from, multicast, bytes });
        };
        match guard.open(now, bytes) {
            Opened::Message(bytes) => self.handle(Event::Datagram { from, multicast, bytes }),
            Opened::Reply { bytes, unheard } => {
                if unheard {
                    self.handle(Event::NotAccepted);
                }
                self.send_datagram(from, &bytes).await;
            }
            Opened::Nothing => {}
            Opened::Refused(reason) => {
                let logs = reason != Reason::Replayed && guard.logs(now, from.ip());
                self.shared().refusals.count(reason);
                match reason {
                    Reason::Unsigned if logs => {
                        warn!(%from, "ignoring datagrams without a signature");
                    }
                    Reason::Forged if logs => {
                        warn!(%from, "ignoring datagrams signed by another key");
                    }
                    _ => debug!(%from, ?reason, "datagram ignored"),
                }
            }
        }
    }

    async fn send(&mut self, to: SocketAddr, bytes: Arc<[u8]>) {
        let Some(guard) = &mut self.guard else { return self.send_datagram(to, &bytes).await };
        let sealed = match self.sealed.take() {
            Some((of, sealed)) if Arc::ptr_eq(&of, &bytes) => sealed,
            _ => guard.seal(&bytes),
        };
        self.send_datagram(to, &sealed).await;
        self.sealed = Some((bytes, sealed));
    }

    async fn send_datagram(&self, to: SocketAddr, bytes: &[u8]) {
        if let Err(error) = self.sockets.main.send_to(bytes, to).await {
            debug!(%to, %error, "sending a datagram failed");
        }
    }

    fn report(&self, change: Change) {
        let name = |id: &str| escape_line(id, MAX_LOGGED_ID_LEN).into_owned();
        match &change {
            Change::Elected => info!("became leader"),
            Change::Resigned => info!("lost leadership"),
            Change::Leader(Some(leader)) if !leader.is_me => {
                info!(leader = name(&leader.id), "observed leader");
            }
            Change::Added(member) => debug!(member = name(&member.id), "member added"),
            Change::Removed(member) => debug!(member = name(&member.id), "member removed"),
            _ => {}
        }
        self.shared().publish(change);
    }
}

/// Queries a source for addresses periodically.
async fn find(index: usize, source: Box<dyn PeerSource>, finds: mpsc::Sender<SourceResult>) {
    loop {
        let query = AssertUnwindSafe(async { source.addresses().await }).catch_unwind();
        let answer = match timeout(SOURCE_TIMEOUT, query).await {
            Ok(Ok(answer)) => answer
                .map_err(|error| escape_line(&error_chain(&error), MAX_ERROR_LEN).into_owned()),
            Ok(Err(_)) => Err("the source of peers panicked".to_owned()),
            Err(_) => Err(format!("the source of peers returned nothing in {SOURCE_TIMEOUT:?}")),
        };
        // Also a source whose addresses never change is queried again if it failed.
        let retry = answer.is_err().then_some(REFRESH);
        if finds.send((index, answer)).await.is_err() {
            return;
        }
        match source.refresh().or(retry) {
            Some(refresh) => tokio::time::sleep(refresh.max(PAUSE)).await,
            None => return,
        }
    }
}
