//! Random schedules of faults around the machine, in virtual time: candidates of many kinds on two
//! buckets, or on a bucket and a Lease. Processes crash, their clocks run at rates of their own,
//! and work may continue until its deadline.

use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::lock::{
    Capabilities, Content, Coverage, Hint, LockErrorKind, Need, Nonce, Record, Request, Revision,
};
use incumbent::protocol::{
    Action, Elector, Event, MIN_LEASE, MultiElector, Response, Settings, Timing, TimingOptions,
};
use incumbent_sim::{Drifting, Retention, Server, Time, Timeline, failed, failure};

const LEASE: Duration = Duration::from_secs(4);
const WORLD: Duration = Duration::from_secs(120);
const MS: Duration = Duration::from_millis(1);

/// The locks of a candidate, in order, each with its need.
type Kind = &'static [(usize, Need)];

/// The steps of a move from the first lock to the second, and those who do as they like.
const KINDS: [Kind; 7] = [
    &[(0, Need::Required)],
    &[(0, Need::Required), (1, Need::BestEffort)],
    &[(0, Need::Required), (1, Need::Required)],
    &[(0, Need::BestEffort), (1, Need::Required)],
    &[(1, Need::Required)],
    &[(1, Need::Required), (0, Need::Required)],
    &[(1, Need::Required), (0, Need::BestEffort)],
];

enum Happens {
    Wake,
    Arrives { part: usize, id: u64, request: Request, reply_lost: bool },
    Answered { part: usize, id: u64, answer: Response },
    Heard { part: usize, hint: Hint },
    Ended { work_stopped: bool },
    Back,
    Fault,
}

struct Candidate {
    kind: Kind,
    machine: MultiElector,
    /// Which process it is; what was to happen to an earlier one does not.
    life: u64,
    crashed: bool,
    clock: Drifting,
    /// Of each lock, until when it cannot be reached.
    cut_until: [Time; 2],
    paused_until: Time,
    /// When its latest wish to be woken is due: earlier wishes are void.
    wake: Option<Time>,
    /// Working, and until when it may.
    works_until: Option<Time>,
    ending: bool,
    terms: usize,
}

struct World {
    /// To whom something happens, in which of its lives, and what.
    time: Timeline<(usize, u64, Happens)>,
    servers: [Server; 2],
    fleet: Vec<Candidate>,
    /// For how long any candidate has worked, in all.
    led: Duration,
}

/// `retention`: what each lock does with an entry.
fn machine(kind: Kind, retention: [Retention; 2], who: u64, seed: u64) -> MultiElector {
    let lock = |index: usize| Capabilities {
        min_lease: MIN_LEASE,
        max_lease: LEASE,
        can_read: true,
        empty_is_proof: false,
        expires_entries: retention[index].frees(),
        reads_are_durable: true,
        max_identity_len: 100,
    };
    let timing = Timing::new(TimingOptions::default(), LEASE).expect("a lease");
    let part = |(index, need): (usize, &(usize, Need))| {
        let settings = Settings::new(format!("c{who}"), Nonce(seed ^ index as u64), timing);
        let settings = Settings { seed: seed ^ (index as u64), ..settings };
        (Elector::new(settings, lock(need.0)), need.1)
    };
    MultiElector::new(kind.iter().enumerate().map(part).collect()).expect("a required lock")
}

impl World {
    fn new(seed: u64) -> Self {
        let mut time = Timeline::new(seed, false);
        let random = &mut time.random;
        // The second lock may be a Lease, which frees nothing by itself.
        let retention = [
            Retention::LeavesMarkers,
            [Retention::LeavesMarkers, Retention::Forever][random.usize(..2)],
        ];
        let server = |retention| Server::new(LEASE, retention, LEASE * 2);
        let campaign = |who: u64, kind, seed, ppm| Candidate {
            kind,
            machine: machine(kind, retention, who, seed),
            life: 0,
            crashed: false,
            clock: Drifting { origin: Duration::from_secs(1000), ppm, lost: Duration::ZERO },
            cut_until: [Time::ZERO; 2],
            paused_until: Time::ZERO,
            wake: None,
            works_until: None,
            ending: false,
            terms: 0,
        };
        let fleet = (0..4).map(|who| {
            let kind = KINDS[random.usize(..KINDS.len())];
            let ppm = random.i64(-900..900);
            campaign(who, kind, random.u64(..), ppm)
        });
        let fleet = fleet.collect::<Vec<_>>();
        Self { time, servers: retention.map(server), fleet, led: Duration::ZERO }
    }

    fn later(&mut self, delay: Duration, who: usize, happens: Happens) {
        let life = self.fleet[who].life;
        self.time.after(delay, (who, life, happens));
    }

    fn latency(&mut self) -> Duration {
        let longest = if self.time.random.u8(..20) == 0 { 400 } else { 20 };
        MS * self.time.random.u32(1..longest)
    }

    fn run(&mut self) {
        for who in 0..self.fleet.len() {
            self.start(who);
        }
        self.later(Duration::from_secs(1), 0, Happens::Fault);
        loop {
            let before = self.time.now;
            let Some((who, life, happens)) = self.time.next(WORLD) else { return };
            let at = self.time.now;
            let is_led = self.fleet.iter().any(|it| it.works_until.is_some_and(|until| at < until));
            self.led += if is_led { at - before } else { Duration::ZERO };
            for index in 0..2 {
                if self.servers[index].expire(at) {
                    self.publish(index);
                }
            }
            self.happens(who, life, happens);
            self.judge();
        }
    }

    fn start(&mut self, who: usize) {
        for part in 0..self.fleet[who].kind.len() {
            self.deliver(who, part, Event::Hint(Hint::Coverage(Coverage::Full)));
        }
        self.deliver(who, 0, Event::Start);
    }

    /// The process dies, and another one starts later.
    fn crash(&mut self, who: usize) {
        let seed = self.time.random.u64(..);
        let retention = [self.servers[0].retention, self.servers[1].retention];
        let standing = &mut self.fleet[who];
        standing.machine = machine(standing.kind, retention, who as u64, seed);
        standing.life += 1;
        (standing.crashed, standing.ending) = (true, false);
        (standing.wake, standing.works_until) = (None, None);
        standing.paused_until = Time::ZERO;
        let back = MS * self.time.random.u32(10..5000);
        self.later(back, who, Happens::Back);
    }

    fn happens(&mut self, who: usize, life: u64, happens: Happens) {
        let paused_until = self.fleet[who].paused_until;
        let of_process = !matches!(happens, Happens::Fault | Happens::Arrives { .. });
        let is_gone = life != self.fleet[who].life;
        if of_process && is_gone {
            return;
        }
        if of_process && paused_until > self.time.now {
            return self.later(paused_until - self.time.now, who, happens);
        }
        match happens {
            Happens::Wake if self.fleet[who].wake.is_none_or(|at| at > self.time.now) => {}
            Happens::Wake => self.deliver(who, 0, Event::Wake),
            Happens::Arrives { part, id, request, reply_lost } => {
                let index = self.fleet[who].kind[part].0;
                let (answer, stored) = self.servers[index].apply(self.time.now, &request);
                if stored {
                    self.publish(index);
                }
                if let Request::NotifyStepDown(notice) = &request {
                    self.spread(index, &Hint::SteppedDown(*notice));
                }
                if !reply_lost && !is_gone {
                    let delay = self.latency();
                    self.later(delay, who, Happens::Answered { part, id, answer });
                }
            }
            Happens::Answered { part, id, answer } => {
                self.deliver(who, part, Event::Response { id, response: answer });
            }
            Happens::Heard { part, hint } => self.deliver(who, part, Event::Hint(hint)),
            Happens::Ended { work_stopped } => {
                // Work that would not stop continues until its deadline, which it knows.
                if work_stopped {
                    self.fleet[who].works_until = None;
                }
                self.fleet[who].ending = false;
                self.deliver(who, 0, Event::TermEnded { work_stopped });
            }
            Happens::Back => {
                self.fleet[who].crashed = false;
                self.start(who);
            }
            Happens::Fault => self.fault(),
        }
    }

    fn publish(&mut self, index: usize) {
        if let Some(stored) = self.servers[index].last.clone() {
            let record: Record = stored.record;
            // A watch of a Lease does not report what a write replaced.
            let frees = self.servers[index].retention.frees();
            let previous: Option<Option<Revision>> = stored.previous.filter(|_| frees);
            self.spread(index, &Hint::Stored { record, previous, age: None });
        }
    }

    fn spread(&mut self, index: usize, hint: &Hint) {
        for who in 0..self.fleet.len() {
            let kind = self.fleet[who].kind;
            if self.fleet[who].cut_until[index] > self.time.now {
                continue;
            }
            for part in (0..kind.len()).filter(|part| kind[*part].0 == index) {
                let delay = self.latency();
                self.later(delay, who, Happens::Heard { part, hint: hint.clone() });
            }
        }
    }

    fn fault(&mut self) {
        let who = self.time.random.usize(..self.fleet.len());
        let index = self.time.random.usize(..2);
        let long = MS * self.time.random.u32(50..9000);
        match self.time.random.u8(..11) {
            0..3 => {
                self.fleet[who].cut_until[index] = self.time.now + long;
                let kind = self.fleet[who].kind;
                for part in (0..kind.len()).filter(|part| kind[*part].0 == index) {
                    for (delay, coverage) in [(MS, Coverage::None), (long, Coverage::Full)] {
                        let hint = Hint::Coverage(coverage);
                        self.later(delay, who, Happens::Heard { part, hint });
                    }
                }
            }
            3..5 => self.fleet[who].paused_until = self.time.now + long,
            5..7 => {
                self.servers[index].delete(self.time.now);
                self.publish(index);
            }
            7 => self.deliver(who, 0, Event::WorkEnded { panicked: false }),
            8 if !self.fleet[who].crashed => self.crash(who),
            _ => self.deliver(who, 0, Event::Resign),
        }
        let next = MS * self.time.random.u32(200..6000);
        self.later(next, 0, Happens::Fault);
    }

    fn deliver(&mut self, who: usize, part: usize, event: Event) {
        if self.fleet[who].paused_until > self.time.now || self.fleet[who].crashed {
            return;
        }
        let now = self.time.now;
        let local = self.fleet[who].clock.local(now);
        self.fleet[who].machine.handle(local, part, event);
        let mut actions = 0;
        while let Some((part, action)) = self.fleet[who].machine.poll_action() {
            actions += 1;
            assert!(actions < 100, "a loop without a delay: {:?}", self.fleet[who].machine);
            match action {
                Action::Request { id, request } => self.request(who, part, id, request),
                Action::Begin { deadline, .. } => {
                    let standing = &mut self.fleet[who];
                    let works = standing.works_until.is_some_and(|until| now < until);
                    assert!(!works, "a term begins within a term");
                    standing.works_until = Some(standing.clock.real(deadline));
                    standing.terms += 1;
                }
                Action::Extend { deadline } => {
                    self.fleet[who].works_until = Some(self.fleet[who].clock.real(deadline));
                }
                Action::End { by, .. } => {
                    let standing = &mut self.fleet[who];
                    assert!(standing.works_until.is_some() && !standing.ending);
                    standing.ending = true;
                    let left = standing.clock.real(by).saturating_sub(now);
                    let work_stopped = self.time.random.u8(..8) > 0;
                    let part = if work_stopped { self.time.random.f64() } else { 1.0 };
                    let stops = left.mul_f64(part);
                    self.later(stops, who, Happens::Ended { work_stopped });
                }
                _ => {}
            }
        }
        let next = self.fleet[who].machine.next_wake();
        let next = next.map(|at| self.fleet[who].clock.real(at).max(now + MS));
        self.fleet[who].wake = next;
        if let Some(next) = next {
            self.later(next - now, who, Happens::Wake);
        }
    }

    fn request(&mut self, who: usize, part: usize, id: u64, request: Request) {
        let index = self.fleet[who].kind[part].0;
        let delay = self.latency();
        let lost =
            self.fleet[who].cut_until[index] > self.time.now || self.time.random.u8(..40) == 0;
        if !lost {
            let arrives = Happens::Arrives { part, id, request, reply_lost: false };
            return self.later(delay, who, arrives);
        }
        let kind = LockErrorKind::OutcomeUnknown;
        let answer = failed(&request, failure(kind, "lost"));
        if self.time.random.bool() {
            self.later(delay, who, Happens::Arrives { part, id, request, reply_lost: true });
        }
        self.later(Duration::from_millis(500), who, Happens::Answered { part, id, answer });
    }

    /// No two that require one and the same lock work at once.
    fn judge(&self) {
        let works = |s: &&Candidate| s.works_until.is_some_and(|until| self.time.now < until);
        let at_work: Vec<&Candidate> = self.fleet.iter().filter(works).collect();
        let requires = |s: &Candidate, lock| s.kind.contains(&(lock, Need::Required));
        for lock in 0..2 {
            let together = at_work.iter().filter(|s| requires(s, lock)).count();
            assert!(
                together <= 1,
                "{together} work at {:?} who require lock {lock}",
                self.time.now
            );
        }
    }
}

#[test]
fn candidates_with_a_common_required_lock_never_work_at_once() {
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(300);
    let (mut terms, mut joint_terms) = (0, 0);
    for seed in 0..seeds {
        let played = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            world.run();
            let of = |several: bool| {
                let counted = world.fleet.iter().filter(|s| several == (s.kind.len() > 1));
                counted.map(|s| s.terms).sum::<usize>()
            };
            (of(false), of(true))
        });
        let Ok((single, several)) = played else { panic!("seed {seed} fails") };
        terms += single;
        joint_terms += several;
    }
    println!("{seeds} schedules, {terms} terms on one lock, {joint_terms} on two");
    assert!(terms > seeds as usize && joint_terms > seeds as usize, "{terms}, {joint_terms}");
}

/// Neither faults nor each other's locks keep a fleet from being led for long.
#[test]
fn every_schedule_has_a_leader_for_most_of_its_time() {
    for seed in 0..200 {
        let mut world = World::new(seed);
        world.run();
        assert!(world.led > WORLD / 3, "seed {seed}: led for {:?} of two minutes", world.led);
    }
}

/// Not even a best-effort lock that comes into reach before, at or after the end of the term.
#[test]
fn work_that_does_not_stop_keeps_no_lock() {
    let (tick, round_trip, retention) = (MS * 20, MS * 200, [Retention::LeavesMarkers; 2]);
    for led in (0..100).map(|step| MS * 100 * step) {
        let mut servers = retention.map(|retention| Server::new(LEASE, retention, LEASE * 2));
        let mut machine = machine(KINDS[1], retention, 0, 7);
        let (mut now, mut began, mut ended) = (Time::ZERO, None, None);
        let mut in_flight = [None, None];
        let mut events = vec![(0, Event::Start)];
        while ended.is_none_or(|ended| now < ended + LEASE * 2) {
            for (part, event) in std::mem::take(&mut events) {
                machine.handle(Instant::from_origin(LEASE * 2 + now), part, event);
            }
            while let Some((part, action)) = machine.poll_action() {
                match action {
                    Action::Request { id, request } => {
                        let response = match part == 1 && began.is_none() {
                            true => failed(&request, failure(LockErrorKind::Unavailable, "cut")),
                            false => servers[part].apply(now, &request).0,
                        };
                        in_flight[part] =
                            Some((now + round_trip, Event::Response { id, response }));
                    }
                    Action::Begin { .. } => began = Some(now),
                    Action::End { .. } => ended = Some(now),
                    _ => {}
                }
            }
            now += tick;
            assert!(now < WORLD, "a term begins and ends");
            for (part, server) in servers.iter_mut().enumerate() {
                server.expire(now);
                let response = in_flight[part].take_if(|(at, _)| *at <= now);
                events.extend(response.map(|(_, response)| (part, response)));
            }
            let resigns = ended.is_none() && began.is_some_and(|began| began + led <= now);
            events.push((0, if resigns { Event::Resign } else { Event::Wake }));
        }
        let held = |server: &Server| {
            let last = server.last.as_ref();
            last.is_some_and(|stored| matches!(stored.record.content, Content::Held(_)))
        };
        assert_eq!(servers.each_ref().map(held), [false; 2], "led for {led:?}");
    }
}
