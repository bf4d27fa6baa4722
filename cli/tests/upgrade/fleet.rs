//! Members of both releases, their ends, and the journal of their commands.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use incumbent_attack::judge::Judge;
use incumbent_attack::record::journal::{Event, Line, Tail, now};
use incumbent_test_support::eventually;
use rustix::process::Signal;
use serde_json::Value;

use crate::env::{Candidate, TIMEOUT};
use crate::place::{ELECTION, Place};
use crate::release::Release;
use crate::worker;

/// How many members of each release there are.
pub const MEMBERS: usize = 3;

pub struct Fleet {
    pub place: Place,
    pub members: Vec<Member>,
    /// The signal with which each was ended.
    ended: Vec<(Member, Signal)>,
    pub journal: Journal,
    /// Whether the members that join have a sentinel, which releases the term of a killed one.
    pub sentinel: bool,
    joined: u32,
    random: fastrand::Rng,
}

pub struct Member {
    pub release: Release,
    pub slot: usize,
    /// Its identity.
    pub who: String,
    pub life: u32,
    socket: PathBuf,
    candidate: Candidate,
}

/// What the commands have written, and its judge.
pub struct Journal {
    pub path: PathBuf,
    tail: Tail,
    judge: Judge,
    /// The leader of each term.
    pub holders: BTreeMap<u64, String>,
    /// The newest sign of life of each term.
    signs: BTreeMap<u64, Line>,
}

impl Journal {
    pub fn new(home: &Path) -> Self {
        let path = home.join("journal");
        Self {
            tail: Tail::new(&path),
            path,
            judge: Judge::default(),
            holders: BTreeMap::new(),
            signs: BTreeMap::new(),
        }
    }

    /// Takes note of a member. One that is given the `life` of another continues its terms.
    pub fn started(&mut self, who: &str, life: u32) {
        let event = Event::Started { ours: true };
        self.judge.feed(&Line {
            t: now(),
            who: who.into(),
            life,
            election: ELECTION.into(),
            event,
        });
    }

    /// Reads what is new.
    pub fn read(&mut self) {
        for line in self.tail.lines().expect("a journal") {
            self.judge.feed(&line);
            let Event::Work { token } = line.event else { panic!("only work: {line:?}") };
            self.holders.entry(token).or_insert_with(|| line.who.clone());
            self.signs.insert(token, line);
        }
    }

    /// Waits for work, from now on, of somebody for whom `wanted` holds.
    pub async fn sign(&mut self, wanted: impl Fn(&Line) -> bool) -> Option<Line> {
        let (since, end) = (now(), Instant::now() + TIMEOUT);
        while Instant::now() < end {
            self.read();
            // A term that is over gives no sign that is so new.
            let recent = self.signs.values().filter(|line| line.t > since && wanted(line));
            if let Some(line) = recent.max_by_key(|line| line.t) {
                return Some(line.clone());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        None
    }

    /// Panics if two worked at once, or a token did not grow, or one of the ways that
    /// `takeovers` counts was too rare.
    pub fn check(&mut self, takeovers: usize) {
        self.read();
        let report = self.judge.report(false);
        assert_eq!(report.violations, [], "{:?}", self.holders);
        let release = |who: &String| who.split('-').next().unwrap_or_default().to_owned();
        let leaders: Vec<String> = self.holders.values().map(release).collect();
        let count = |from: &str, to: &str| {
            leaders.windows(2).filter(|pair| pair[0] == from && pair[1] == to).count()
        };
        let (up, down) = (count("last", "this"), count("this", "last"));
        println!(
            "{} terms, {} signs of work, no overlap; from the last release to this one {up} times, \
             and back {down} times",
            report.terms, report.work
        );
        assert!(up.min(down) >= takeovers, "too few takeovers: {leaders:?}");
    }
}

impl Member {
    /// What it knows of the leader: `GET /leader`. None before it serves.
    fn leader(&self) -> Option<Value> {
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        write!(stream, "GET /leader HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).ok()?;
        let (_, body) = response.split_once("\r\n\r\n")?;
        serde_json::from_str(body).ok()
    }

    /// Lets nothing of it continue, and returns what it said.
    async fn said(mut self) -> String {
        self.candidate.signal(Signal::KILL);
        self.candidate.exit().await;
        self.candidate.wait_for_no_descendants().await;
        let said = self.candidate.stderr();
        format!("{} (life {}): {said}", self.who, self.life)
    }
}

impl Fleet {
    pub fn new(place: Place, seed: u64) -> Self {
        let journal = Journal::new(place.home());
        let random = fastrand::Rng::with_seed(seed);
        Self {
            place,
            members: Vec::new(),
            ended: Vec::new(),
            journal,
            sentinel: false,
            joined: 0,
            random,
        }
    }

    /// Starts a member.
    pub fn join(&mut self, release: Release, slot: usize) {
        self.joined += 1;
        let (life, who) = (self.joined, format!("{release}-{slot}"));
        let socket = self.place.home().join(format!("{who}.{life}"));
        let (http, lease) =
            (format!("unix:{}", socket.display()), format!("{}s", self.place.lease));
        let (address, named) = (format!("{who}.example.net:1"), format!("release={release}"));
        let mut flags = vec!["--identity", &who, "--lease", &lease, "--grace", "200ms"];
        flags.extend(["--http", &http, "--advertise", &address, "--metadata", &named]);
        if !self.sentinel {
            flags.push("--no-sentinel");
        }
        let mut command = self.place.run(release, slot, &flags);
        worker::add(&mut command, &self.journal.path, life, life % 2 == 0);
        self.journal.started(&who, life);
        let candidate = Candidate::start(command);
        self.members.push(Member { release, slot, who, life, socket, candidate });
    }

    /// Starts as many members of a release as it is to have, in any order.
    pub fn join_all(&mut self, release: Release) {
        let mut slots: Vec<usize> = (0..MEMBERS).collect();
        self.random.shuffle(&mut slots);
        for slot in slots {
            self.join(release, slot);
        }
    }

    /// Waits for a sign of life of a member for whom `wanted` holds, and returns its place.
    pub async fn leader(&mut self, what: &str, wanted: impl Fn(&Member) -> bool) -> usize {
        let members = &self.members;
        let place_of = |line: &Line| {
            let is = |member: &Member| member.who == line.who && member.life == line.life;
            members.iter().position(is).filter(|&place| wanted(&members[place]))
        };
        let line = self.journal.sign(|line| place_of(line).is_some()).await;
        match line.as_ref().and_then(place_of) {
            Some(place) => place,
            None => self.fail(what).await,
        }
    }

    /// Waits until every member takes part: each knows who leads, and with which token.
    pub async fn all_see_the_leader(&mut self) {
        for place in 0..self.members.len() {
            self.sees_the_leader(place).await;
        }
    }

    pub async fn sees_the_leader(&mut self, place: usize) {
        let end = Instant::now() + TIMEOUT;
        let mut seen = None;
        while Instant::now() < end {
            seen = self.members[place].leader();
            if let Some(seen) = &seen
                && seen["fresh"] == true
                && let Some(token) = seen["token"].as_u64()
            {
                self.journal.read();
                // A term may have begun of which there is no work yet.
                if let Some(holder) = self.journal.holders.get(&token) {
                    assert_eq!(seen["leader"], **holder, "{seen}");
                    assert_eq!(seen["address"], format!("{holder}.example.net:1"), "{seen}");
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let who = self.members[place].who.clone();
        self.fail(&format!("{who} sees the leader; it saw {seen:?}")).await
    }

    /// Ends a member; its descendants end within its lease.
    pub fn end(&mut self, place: usize, signal: Signal) {
        let member = self.members.swap_remove(place);
        member.candidate.signal(signal);
        self.ended.push((member, signal));
    }

    /// Waits until nothing is left of the members that were ended.
    pub async fn settle(&mut self) {
        for (mut member, signal) in std::mem::take(&mut self.ended) {
            let code = member.candidate.exit_code().await;
            let expected = (signal == Signal::TERM).then_some(128 + 15);
            assert_eq!(code, expected, "{} after {signal:?}", member.who);
            member.candidate.wait_for_no_descendants().await;
        }
    }

    /// Ends all members of a release, in any order, and waits until one of the other leads.
    pub async fn leave_it_to_the_other(&mut self, release: Release, signal: Signal) {
        self.random.shuffle(&mut self.members);
        while let Some(place) = self.members.iter().rposition(|member| member.release == release) {
            self.end(place, signal);
        }
        let next = format!("a member of {} takes over after {signal:?}", release.other());
        self.leader(&next, |member| member.release != release).await;
        self.settle().await;
    }

    /// Suspends the leader until another one leads; then it takes part again.
    pub async fn suspend_the_leader(&mut self) {
        let place = self.leader("a leader to suspend", |_| true).await;
        let (who, life) = (self.members[place].who.clone(), self.members[place].life);
        self.members[place].candidate.signal(Signal::STOP);
        let next = format!("another one takes over from {who}, who is suspended");
        self.leader(&next, |member| member.life != life).await;
        self.members[place].candidate.signal(Signal::CONT);
        self.sees_the_leader(place).await;
    }

    /// Every member leads in turn, as each is ended once it has.
    pub async fn all_lead_in_turn(&mut self) {
        while !self.members.is_empty() {
            let left: Vec<&str> = self.members.iter().map(|member| &*member.who).collect();
            let next = format!("one of {} leads", left.join(", "));
            let place = self.leader(&next, |_| true).await;
            let signal = if self.random.bool() { Signal::TERM } else { Signal::KILL };
            self.end(place, signal);
        }
        self.settle().await;
    }

    /// Panics with what all members said.
    pub async fn fail(&mut self, what: &str) -> ! {
        let mut said = Vec::new();
        for member in self.members.drain(..).chain(self.ended.drain(..).map(|(member, _)| member)) {
            said.push(member.said().await);
        }
        let (terms, wrong) = (&self.journal.holders, self.journal.judge.report(false).violations);
        panic!("waited in vain: {what}\n{terms:?}\n{wrong:?}\n{}", said.join("\n"));
    }
}

/// As `eventually`, of what blocks.
pub async fn soon<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    eventually(what, async || tokio::task::block_in_place(&mut look)).await
}
