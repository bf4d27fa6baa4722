//! Runs one member on its sockets and a clock. It decides nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use super::protocol::{Action, Change, Event, Group};
use super::quorum::{Voter, VoterAction, VoterEvent, VoterHost};
use super::seal::{Guard, Opened, Reason, is_signed};
use super::shared::{Input, Shared};
use super::sockets::{LONGEST_DATAGRAM, Sockets, receive};
use super::source::PeerSource;
use crate::time::clock::Instant;
use crate::time::timer::deadline_after;
use crate::util::text::{error_chain, escape_line};

/// How long to wait after a socket has failed.
const PAUSE: Duration = Duration::from_millis(50);
/// The most bytes of somebody else's name that a log line shows.
const LONGEST_NAME_TOLD: usize = 128;

/// The most bytes of a source's error that are told.
const LONGEST_ERROR: usize = 1024;

/// What a source answered: which one, and its addresses or what is wrong.
type Found = (usize, Result<Vec<SocketAddr>, String>);

pub(super) struct Driver {
    pub finish: Finish,
    pub sockets: Sockets,
    pub group: Group,
    pub sources: Vec<Box<dyn PeerSource>>,
    /// Whether others are told the address that a peer would see.
    pub finds_source: bool,
    pub timeout: Duration,
    /// The version of the group that handles see.
    pub told: Option<u64>,
    /// Where this member is one of a quorum.
    pub seat: Option<VoterHost>,
    /// Where members share a key.
    pub guard: Option<Guard>,
    /// The last datagram that was signed: it may go to several.
    pub sealed: Option<(Arc<[u8]>, Vec<u8>)>,
}

/// Says that the member has left, however its task ends.
pub(super) struct Finish(pub Arc<Shared>);

impl Drop for Finish {
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
        let mut finders = JoinSet::new(); // ends them when it is dropped
        let sources = std::mem::take(&mut self.sources);
        let mut peers: Vec<Vec<SocketAddr>> = vec![Vec::new(); sources.len()];
        for (index, source) in sources.into_iter().enumerate() {
            finders.spawn(find(index, source, finds.clone()));
        }
        drop(finds);
        let mut buffer = vec![0; LONGEST_DATAGRAM];
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
                    Input::Subscribe(channel) => self.handle(Event::Subscribe(channel)),
                    Input::Publish(channel, data) => self.handle(Event::Publish(channel, data)),
                    Input::Send(event, data) => self.handle(Event::Send(event, data)),
                    Input::Ask { name, operation, timeout, answer } => {
                        if let Some(seat) = &mut self.seat {
                            let ticket = seat.wait(answer);
                            self.vote(VoterEvent::Propose { ticket, name, operation, timeout });
                        }
                    }
                    Input::Concede(name, notice) => {
                        self.vote(VoterEvent::Concede(name, notice));
                    }
                    Input::Listen { id, name, sink } => {
                        if let Some(seat) = &mut self.seat {
                            seat.listen(id, name, sink);
                        }
                    }
                    Input::Unsubscribe(id) => {
                        if let Some(seat) = &mut self.seat {
                            seat.deafen(id);
                        }
                    }
                    Input::Stop => {
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
                        debug!(%error, "a datagram was not received");
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
                        warn!(%problem, "the group's peers are not known");
                        self.shared().tell(Change::DiscoveryFailed(problem.into()));
                    }
                },
                () = sleep.as_mut(), if wake.is_some() => {
                    self.handle(Event::Wake);
                    self.vote(VoterEvent::Wake);
                }
            }
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.finish.0
    }

    fn now(&self) -> Instant {
        self.shared().clock.now()
    }

    /// Where a peer sees this member, which is bound to every address of this machine.
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
        if self.told != Some(self.group.version()) {
            self.told = Some(self.group.version());
            self.shared().status.send_modify(|status| {
                status.leader = self.group.leader();
                status.members = self.group.members();
            });
        }
    }

    /// Passes on to the voter what is its own, and does what it wants done.
    fn vote(&mut self, event: VoterEvent<'_>) {
        let now = self.now();
        let Some(seat) = &mut self.seat else { return };
        seat.voter.handle(now, event);
        while let Some(action) = seat.voter.poll_action() {
            match action {
                VoterAction::Send { to, said } => {
                    let event = Voter::EVENT.to_owned();
                    let say = match to {
                        Some(to) => Event::SendTo(to, event, said),
                        None => Event::Send(event, said),
                    };
                    self.group.handle(now, say);
                }
                VoterAction::Answer { ticket, answer } => seat.answer(ticket, answer),
                VoterAction::Hint { name, hint } => seat.hint(&name, &hint),
            }
        }
    }

    async fn perform(&mut self) {
        while let Some(action) = self.group.poll_action() {
            match action {
                Action::Tell(Change::Message { from, address, event, data })
                    if event == Voter::EVENT =>
                {
                    self.vote(VoterEvent::Received { id: &from, from: address, said: &data });
                }
                Action::Send { to, bytes } => {
                    self.send(to, bytes).await;
                }
                Action::Tell(change) => self.tell(change),
            }
        }
    }

    /// Takes in a datagram, if it is to be believed.
    async fn receive(&mut self, from: SocketAddr, multicast: bool, bytes: &[u8]) {
        let now = self.now();
        let Some(guard) = &mut self.guard else {
            if is_signed(bytes) {
                debug!(%from, "a datagram is signed, and this member has no key");
            }
            return self.handle(Event::Datagram { from, multicast, bytes });
        };
        match guard.open(now, bytes) {
            Opened::Message(bytes) => self.handle(Event::Datagram { from, multicast, bytes }),
            Opened::Reply { bytes, unheard } => {
                if unheard {
                    self.handle(Event::Unheard);
                }
                self.put(from, &bytes).await;
            }
            Opened::Nothing => {}
            Opened::Refused(reason) => {
                let logs = reason != Reason::Replayed && guard.logs(now, from.ip());
                self.shared().refusals.count(reason);
                match reason {
                    Reason::Unsigned if logs => {
                        warn!(%from, "datagrams without a signature are ignored");
                    }
                    Reason::Forged if logs => {
                        warn!(%from, "datagrams signed by another key are ignored");
                    }
                    _ => debug!(%from, ?reason, "a datagram was ignored"),
                }
            }
        }
    }

    async fn send(&mut self, to: SocketAddr, bytes: Arc<[u8]>) {
        let Some(guard) = &mut self.guard else { return self.put(to, &bytes).await };
        let sealed = match self.sealed.take() {
            Some((of, sealed)) if Arc::ptr_eq(&of, &bytes) => sealed,
            _ => guard.seal(&bytes),
        };
        self.put(to, &sealed).await;
        self.sealed = Some((bytes, sealed));
    }

    async fn put(&self, to: SocketAddr, bytes: &[u8]) {
        if let Err(error) = self.sockets.main.send_to(bytes, to).await {
            debug!(%to, %error, "a datagram was not sent");
        }
    }

    fn tell(&self, change: Change) {
        let name = |id: &str| escape_line(id, LONGEST_NAME_TOLD).into_owned();
        match &change {
            Change::Elected => info!("elected: this member leads"),
            Change::Resigned => info!("resigned: this member leads no more"),
            Change::Leader(Some(leader)) if !leader.is_me => {
                info!(leader = name(&leader.id), "somebody leads");
            }
            Change::Added(member) => debug!(member = name(&member.id), "a member was found"),
            Change::Removed(member) => debug!(member = name(&member.id), "a member is gone"),
            _ => {}
        }
        self.shared().tell(change);
    }
}

/// Asks a source for addresses again and again.
async fn find(index: usize, source: Box<dyn PeerSource>, finds: mpsc::Sender<Found>) {
    loop {
        let answer = source.addresses().await;
        let answer =
            answer.map_err(|error| escape_line(&error_chain(&error), LONGEST_ERROR).into_owned());
        if finds.send((index, answer)).await.is_err() {
            return;
        }
        match source.refresh() {
            Some(refresh) => tokio::time::sleep(refresh.max(PAUSE)).await,
            None => return,
        }
    }
}
