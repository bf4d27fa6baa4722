//! democracy's election, and the messages of a member.

mod membership;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::chunks::{Part, Waiting, cut};
use super::member::{KnownMember, Member, outweighs};
use super::types::{Action, Change, Event, Settings};
use super::wire::{self, Body, MAX_CHANNELS, MAX_NAME_LEN, MemberState, Message, Profile};
use crate::time::clock::Instant;

/// How long hellos are still sent to a removed member, so that a healed partition is found.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// How many intervals the first election waits for a message of a leader.
const FIRST_ELECTION_INTERVALS: u32 = 2;

/// One member's view of its group.
#[derive(Debug)]
pub struct Group {
    settings: Settings,
    members: BTreeMap<Arc<str>, KnownMember>,
    /// The addresses of peers from their source.
    peers: BTreeSet<SocketAddr>,
    waiting: Waiting,
    leads: bool,
    /// Whether there was a leader since this member started.
    had_election: bool,
    /// When to elect a leader if none is known by then.
    first_election: Option<Instant>,
    next_hello: Option<Instant>,
    last_turn: Instant,
    reported_leader: Option<Arc<str>>,
    /// Increases with every change of a member.
    version: u64,
    random: fastrand::Rng,
    actions: VecDeque<Action>,
}

impl Group {
    /// Creates a member that has not started.
    pub fn new(settings: Settings) -> Self {
        Self {
            random: fastrand::Rng::with_seed(settings.seed),
            settings,
            members: BTreeMap::new(),
            peers: BTreeSet::new(),
            waiting: Waiting::default(),
            leads: false,
            had_election: false,
            first_election: None,
            next_hello: None,
            last_turn: Instant::ORIGIN,
            reported_leader: None,
            version: 0,
            actions: VecDeque::new(),
        }
    }

    /// Handles an event at `now`, which never goes back.
    pub fn handle(&mut self, now: Instant, event: Event<'_>) {
        self.extend_after_suspension(now);
        match event {
            Event::Start => {
                self.next_hello = Some(now);
                self.first_election = Some(now + self.settings.interval * FIRST_ELECTION_INTERVALS);
            }
            Event::Wake => {}
            Event::Datagram { from, multicast, bytes } => {
                if let Ok(document) = serde_json::from_slice(bytes)
                    && let Part::Whole(document) =
                        self.waiting.take(now, from, document, self.settings.timeout)
                    && let Some(message) = Message::read(&document)
                {
                    self.receive(now, from, multicast, message);
                }
            }
            Event::Peers(peers) => {
                let new: Vec<_> =
                    peers.iter().filter(|p| !self.peers.contains(p)).copied().collect();
                self.peers = peers.into_iter().collect();
                if self.next_hello.is_some_and(|next| next > now) {
                    new.into_iter().for_each(|to| self.send_body(&[to], &Body::Hello));
                }
            }
            Event::Source(source) => {
                self.settings.source = Some(source);
                self.version += 1;
            }
            Event::NotAccepted => self.send_hello_sooner(now),
            Event::Resign => self.resign(),
            Event::Subscribe(channel) => {
                let channels = &mut self.settings.channels;
                if channels.len() < MAX_CHANNELS && channels.insert(channel.clone()) {
                    self.version += 1;
                    self.broadcast(&Body::Subscribe(channel));
                }
            }
            Event::Publish(channel, data) => {
                let subscribed = |known: &&KnownMember| known.member.channels.contains(&channel);
                let to: Vec<_> = self
                    .members
                    .values()
                    .filter(subscribed)
                    .filter_map(|k| k.member.address)
                    .collect();
                self.send_body(&to, &Body::Custom(channel, data));
            }
            Event::Send(event, data) => self.broadcast(&Body::Custom(event, data)),
            Event::SendTo(to, event, data) => self.send_body(&[to], &Body::Custom(event, data)),
            Event::Stop => return self.leave(),
        }
        self.run_timers(now);
        self.report_leader();
    }

    /// Returns the next action.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns a number that changes whenever [`members`](Self::members) or
    /// [`leader`](Self::leader) may return a new value.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns when to send [`Event::Wake`].
    pub fn next_wake(&self) -> Option<Instant> {
        let silent = self.members.values().filter(|known| known.is_present());
        let silent = silent.map(|known| known.last_received + self.settings.timeout).min();
        // A deadline counts as missed only after it has passed.
        let silent = silent.map(|at| at + Duration::from_nanos(1));
        [self.next_hello, self.first_election, silent].into_iter().flatten().min()
    }

    /// Returns whether this member believes that it leads.
    pub fn leads(&self) -> bool {
        self.leads
    }

    /// Returns the leader known to this member.
    pub fn leader(&self) -> Option<Member> {
        if self.leads {
            return Some(self.me());
        }
        let leaders = self.members.values().filter(|known| known.leads()).map(|k| &k.member);
        leaders.reduce(|a, b| if outweighs(rank(b), rank(a)) { b } else { a }).cloned()
    }

    fn receive(&mut self, now: Instant, from: SocketAddr, multicast: bool, message: Message) {
        let Message { id, profile, body } = message;
        if *id == *self.settings.id {
            return;
        }
        let standing = profile.as_ref().map(|profile| profile.standing);
        let leader_event = body == Body::Leader;
        if let Some(mut profile) = profile {
            if leader_event {
                profile.standing = MemberState::Leader;
            }
            // A message that was sent before its sender's goodbye does not bring the sender back; a
            // hello does.
            let comes = matches!(body, Body::Hello | Body::Leader | Body::Subscribe(_));
            if !self.record_profile(now, &id, from, multicast, profile, comes) {
                return;
            }
        }
        match body {
            Body::Hello => {
                if self.leads && standing == Some(MemberState::Leader) {
                    self.elect();
                }
                if self.had_election && self.leader().is_none() {
                    self.elect();
                }
                self.had_election |= self.leader().is_some();
            }
            Body::Leader => {
                self.had_election = true;
                // The other leader may be the lighter one: then its next hello, or this member's
                // `leader` message, makes it resign.
                if self.leads && self.best().is_some_and(|best| *best != *self.settings.id) {
                    self.elect();
                }
            }
            Body::Vote(candidate) => self.vote(now, &candidate),
            Body::Subscribe(channel) => {
                if let Some(known) = self.members.get_mut(id.as_str())
                    && known.member.channels.len() < MAX_CHANNELS
                {
                    known.member.channels.insert(channel);
                    self.version += 1;
                }
            }
            Body::Custom(event, data) => {
                self.report(Change::Message { from: id.into(), address: from, event, data });
            }
        }
    }

    fn run_timers(&mut self, now: Instant) {
        let timeout = self.settings.timeout;
        let silent = |(_, known): &(&Arc<str>, &KnownMember)| {
            known.is_present() && known.last_received + timeout < now
        };
        let silent: Vec<_> = self.members.iter().filter(silent).map(|(id, _)| id.clone()).collect();
        for id in silent {
            self.broadcast(&Body::Vote(id.to_string()));
            self.remove(now, &id);
        }
        self.members
            .retain(|_, known| known.removed.is_none_or(|removed| removed + REMEMBERED >= now));
        if self.first_election.is_some_and(|at| at <= now) {
            self.first_election = None;
            if self.leader().is_none() {
                self.elect();
            }
        }
        if self.next_hello.is_some_and(|at| at <= now) {
            self.next_hello = Some(now + self.settings.interval);
            self.broadcast(&Body::Hello);
        }
    }

    /// Returns the heaviest member.
    fn best(&self) -> Option<Arc<str>> {
        let others =
            self.members.values().filter(|known| known.is_present()).map(|k| rank(&k.member));
        let all = others.chain([(self.settings.weight, &*self.settings.id)]);
        let best = all.filter(|(weight, _)| *weight > 0.0);
        best.reduce(|a, b| if outweighs(b, a) { b } else { a }).map(|(_, id)| id.into())
    }

    fn elect(&mut self) {
        self.had_election = true;
        let Some(best) = self.best() else { return };
        if best != self.settings.id {
            if let Some(known) = self.members.get_mut(&best) {
                known.standing = MemberState::Leader;
            }
            return self.resign();
        }
        if !self.leads {
            self.leads = true;
            self.report(Change::Elected);
        }
        for known in self.members.values_mut().filter(|known| known.leads()) {
            // The lighter leader resigns when it receives the message.
            known.standing = MemberState::Citizen;
        }
        self.broadcast(&Body::Leader);
    }

    fn resign(&mut self) {
        if self.leads {
            self.leads = false;
            self.report(Change::Resigned);
            self.broadcast(&Body::Hello);
        }
    }

    /// Sends the goodbye twice, because no member requests it again.
    fn leave(&mut self) {
        if std::mem::take(&mut self.leads) {
            self.report(Change::Resigned);
        }
        let goodbye = Profile { standing: MemberState::Removed, ..self.profile() };
        let to = self.all_addresses();
        for _ in 0..2 {
            self.send(&to, &goodbye, &Body::Hello);
        }
        (self.next_hello, self.first_election) = (None, None);
        self.members.clear();
    }

    fn report(&mut self, change: Change) {
        self.version += 1;
        self.actions.push_back(Action::Report(change));
    }

    fn report_leader(&mut self) {
        let leader = self.leader();
        let id = leader.as_ref().map(|leader| Arc::clone(&leader.id));
        if self.reported_leader != id {
            self.reported_leader = id;
            self.report(Change::Leader(leader));
        }
    }

    fn profile(&self) -> Profile {
        let standing = if self.leads { MemberState::Leader } else { MemberState::Citizen };
        let channels = self.settings.channels.iter().cloned().collect();
        Profile { weight: self.settings.weight, standing, channels }
    }

    /// Returns whether it is known at which address others reach this member.
    pub(crate) fn has_source(&self) -> bool {
        self.settings.source.is_some()
    }

    /// Returns the addresses of all members, without duplicates.
    pub(crate) fn all_addresses(&self) -> Vec<SocketAddr> {
        let multicast = self.settings.multicast;
        let members = self.members.values().filter(|k| multicast.is_none() || !k.multicast);
        let members = members.filter_map(|known| known.member.address);
        let all = self.peers.iter().copied().chain(members).chain(multicast);
        let all: BTreeSet<_> = all.filter(|to| Some(*to) != self.settings.source).collect();
        all.into_iter().collect()
    }

    fn broadcast(&mut self, body: &Body) {
        let to = self.all_addresses();
        self.send_body(&to, body);
    }

    fn send_body(&mut self, to: &[SocketAddr], body: &Body) {
        let profile = self.profile();
        self.send(to, &profile, body);
    }

    fn send(&mut self, to: &[SocketAddr], profile: &Profile, body: &Body) {
        // democracy's members crash on a message without its source.
        let Some(source) = self.settings.source.filter(|_| !to.is_empty()) else { return };
        let text = wire::write(&self.settings.id, profile, &source.to_string(), body);
        for datagram in cut(text, self.settings.max_packet, self.random.u64(..)) {
            let bytes: Arc<[u8]> = datagram.into_bytes().into();
            let sends = to.iter().map(|to| Action::Send { to: *to, bytes: Arc::clone(&bytes) });
            self.actions.extend(sends);
        }
    }
}

fn rank(member: &Member) -> (f64, &str) {
    (member.weight, &member.id)
}

/// Refuses a name of a channel or an event that a receiver would not read as one.
pub(crate) fn check_event(name: &str) -> Result<(), &'static str> {
    match name {
        "" => Err("it is empty"),
        "hello" | "vote" | "leader" | "subscribe" => Err("it is one of the protocol's own"),
        "error" => Err("it terminates democracy's members on Node.js"),
        name if name.starts_with("incumbent/") => {
            Err("names that begin with incumbent/ are reserved")
        }
        name if name.len() > MAX_NAME_LEN => Err("it is longer than 256 bytes"),
        _ => Ok(()),
    }
}
