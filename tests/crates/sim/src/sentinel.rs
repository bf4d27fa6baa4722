//! Sentinels: one beside each candidate. It takes the terms that the candidate registers, sees the
//! death of its process, and releases the entry once the work of the term is dead too.
//!
//! What it does with the lock is the library's own. The rest is here, and worse than in life:
//! registrations are lost and change places, a death is seen late or never, and two sentinels
//! release one term.

use std::collections::HashMap;
use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::lock::{LockErrorKind, Nonce, Request};
use incumbent::protocol::{
    CRASHED, CrashOutcome, CrashRelease, CrashStep, RegisteredTerm, Response,
};

use crate::faults::Fault;
use crate::server::{Time, failed, failure};
use crate::trace;
use crate::world::{SimEvent, World};

/// How long to try, and to wait for each response.
const LIMIT: Duration = Duration::from_secs(8);
const TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub struct Sentinel {
    /// Which process it is.
    life: u32,
    down_until: Time,
    pub paused_until: Time,
    pub cut_until: Time,
    /// By the process that registered it.
    registered: HashMap<u32, RegisteredTerm>,
}

impl Sentinel {
    pub fn recover(&mut self, now: Time) {
        self.paused_until = self.paused_until.min(now);
        self.cut_until = now;
    }
}

/// One release, by one sentinel.
#[derive(Debug)]
pub struct Run {
    term: RegisteredTerm,
    release: CrashRelease,
    /// The request whose response is awaited.
    request: Option<u64>,
    asked: u64,
    conflicts: u32,
    /// Whether the server has stored its release.
    released: bool,
    over: bool,
}

/// What happens to a sentinel.
#[derive(Debug, Clone)]
pub enum Step {
    /// The process `of` registers a term, or its end.
    Register { of: u32, term: Option<RegisteredTerm> },
    /// It sees that the process `of` is dead, and its work.
    Dead { of: u32 },
    /// It releases a term that another one knew.
    Release { term: RegisteredTerm },
    /// The next step of a release is due.
    Next { run: usize },
    /// A request arrives at the server.
    Arrives { run: usize, id: u64, request: Request },
    /// A response arrives, or its timeout.
    Response { run: usize, id: u64, response: Response, from_server: bool },
    /// The process that lives connects to a new sentinel.
    Connected,
}

impl World {
    fn sentinel_later(&mut self, at: usize, after: Duration, step: Step) {
        let life = self.sentinels[at].life;
        self.time.after(after, SimEvent::Sentinel { at, life, step });
    }

    /// Registers what has changed.
    pub(super) fn register(&mut self, who: usize) {
        if self.sentinels.is_empty() {
            return;
        }
        let of = self.life(who);
        let candidate = &mut self.candidates[who];
        let Some(machine) = &candidate.machine else { return };
        let term = machine.releasable();
        let waits = machine.cool_down().is_some();
        if candidate.registered != term {
            candidate.registered = term;
            if let Some(after) = self.time.passage(0.08) {
                self.sentinel_later(who, after, Step::Register { of, term });
            }
        }
        if let Some((back_ms, stopping)) = self.winner_crashes.take_if(|_| waits) {
            let after = self.time.millis(0..300);
            if stopping {
                self.time.after(after, SimEvent::Fault(Fault::Stop { who }));
            }
            let after = after + self.time.millis(1..30);
            self.time.after(after, SimEvent::Fault(Fault::Crash { who, back_ms }));
        }
    }

    /// A process ends; if it crashes, its work may survive it for a while.
    pub(super) fn process_ends(&mut self, process: usize, crashes: bool) {
        let (of, lived) = (self.processes[process].life, self.is_up(process));
        self.processes[process].ends();
        self.of_process(process).for_each(|who| self.candidates[who].crash());
        if self.sentinels.is_empty() {
            return self.of_process(process).for_each(|who| self.checker.gone(who));
        }
        let who = process; // sentinels stand beside processes of one election
        if !lived {
            return;
        }
        let survives = crashes && !self.time.calm && self.time.random.u8(..3) == 0;
        let lease = self.servers[0].bucket_ttl.as_millis() as u64;
        let work = if survives { self.time.millis(0..lease * 3 / 2) } else { Duration::ZERO };
        self.checker.orphaned(who, self.time.now + work);
        let seen = match self.time.random.u8(..) {
            0..30 if !self.time.calm => self.time.millis(500..15_000),
            _ => self.time.millis(0..40),
        };
        self.sentinel_later(who, work + seen, Step::Dead { of });
    }

    pub(super) fn sentinel_is_killed(&mut self, at: usize, span: Duration) {
        let Some(sentinel) = self.sentinels.get_mut(at) else { return };
        let life = sentinel.life + 1;
        *sentinel = Sentinel { life, down_until: self.time.now + span, ..Sentinel::default() };
        let connects = span + self.time.millis(1..300);
        self.sentinel_later(at, connects, Step::Connected);
    }

    pub(super) fn step_sentinel(&mut self, at: usize, life: u32, step: Step) {
        if let Step::Arrives { run, id, request } = step {
            return self.serve_sentinel(at, run, id, request);
        }
        let sentinel = &self.sentinels[at];
        if sentinel.life != life || self.time.now < sentinel.down_until {
            return; // it knows nothing of it
        }
        if self.time.now < sentinel.paused_until {
            let resumes = sentinel.paused_until - self.time.now;
            return self.sentinel_later(at, resumes, step);
        }
        match step {
            Step::Register { of, term } => {
                self.time.log(|| format!("s{at} hears of process {of}: {term:?}"));
                let registered = &mut self.sentinels[at].registered;
                match term {
                    Some(term) => registered.insert(of, term),
                    None => registered.remove(&of),
                };
            }
            Step::Connected => {
                let (candidate, of) = (&self.candidates[at], self.life(at));
                let term = candidate.registered;
                if let Some(term) = term.filter(|_| candidate.machine.is_some()) {
                    let after = self.time.millis(0..50);
                    self.sentinel_later(at, after, Step::Register { of, term: Some(term) });
                }
            }
            Step::Dead { of } => {
                let term = self.sentinels[at].registered.remove(&of);
                self.time.log(|| format!("s{at} sees that process {of} is dead: {term:?}"));
                let Some(term) = term else { return };
                if !self.time.calm && self.time.random.u8(..4) == 0 {
                    let after = self.time.millis(0..3000);
                    self.sentinel_later(at, after, Step::Release { term });
                }
                self.sentinel_releases(at, term);
            }
            Step::Release { term } => self.sentinel_releases(at, term),
            Step::Next { run } => self.sentinel_continues(at, run),
            Step::Response { run, id, response, from_server } => {
                let cut = from_server && self.time.now < self.sentinels[at].cut_until;
                if self.runs[run].request != Some(id) || cut {
                    return;
                }
                self.time.log(|| format!("s{at} <- {run}#{id} {}", trace::answer(&response)));
                let now = self.sentinel_clock();
                let conflict = matches!(
                    &response,
                    Response::Released(Err(failure)) if failure.kind == LockErrorKind::Conflict
                );
                let of = &mut self.runs[run];
                of.request = None;
                of.conflicts += u32::from(conflict);
                of.release.on_response(now, response);
                let slow = match self.time.random.u8(..) {
                    0..16 if !self.time.calm => self.time.millis(1..4000),
                    _ => Duration::ZERO,
                };
                self.sentinel_later(at, slow, Step::Next { run });
            }
            Step::Arrives { .. } => {}
        }
    }

    /// A clock that has nothing to do with any other.
    fn sentinel_clock(&self) -> Instant {
        Instant::from_origin(Duration::from_secs(3600) + self.time.now)
    }

    fn sentinel_releases(&mut self, at: usize, term: RegisteredTerm) {
        let now = self.sentinel_clock();
        let seed = self.time.random.u64(..);
        let release = CrashRelease::new(term, now, now + LIMIT, TIMEOUT, seed);
        self.runs.push(Run {
            term,
            release,
            request: None,
            asked: 0,
            conflicts: 0,
            released: false,
            over: false,
        });
        self.sentinel_continues(at, self.runs.len() - 1);
    }

    fn sentinel_continues(&mut self, at: usize, run: usize) {
        let now = self.sentinel_clock();
        if self.runs[run].over || self.runs[run].request.is_some() {
            return;
        }
        match self.runs[run].release.next(now) {
            CrashStep::Wait(until) => {
                self.sentinel_later(at, until.saturating_since(now), Step::Next { run });
            }
            CrashStep::Request(request) => self.sentinel_sends(at, run, request),
            CrashStep::Done(outcome) => {
                self.time.log(|| format!("s{at} ends release {run}: {outcome:?}"));
                self.runs[run].over = true;
                match outcome {
                    CrashOutcome::Released => {}
                    CrashOutcome::NotHeld => self.releases.not_held += 1,
                    CrashOutcome::Failed(_) => self.releases.failed += 1,
                }
            }
        }
    }

    fn sentinel_sends(&mut self, at: usize, run: usize, request: Request) {
        let of = &mut self.runs[run];
        of.asked += 1;
        let id = of.asked;
        of.request = Some(id);
        self.time.log(|| format!("s{at} -> {run}#{id} {}", trace::request(&request)));
        let response = failed(&request, failure(LockErrorKind::OutcomeUnknown, "timed out"));
        let late = Step::Response { run, id, response, from_server: false };
        self.sentinel_later(at, TIMEOUT, late);
        let cut = self.time.now < self.sentinels[at].cut_until;
        for after in self.time.passages(0.05).filter(|_| !cut) {
            let request = request.clone();
            self.sentinel_later(at, after, Step::Arrives { run, id, request });
        }
    }

    fn serve_sentinel(&mut self, at: usize, run: usize, id: u64, request: Request) {
        if !self.servers[0].is_up(self.time.now) {
            return;
        }
        let term = self.runs[run].term;
        let denied = self.time.now < self.process(at).faults.denied_until;
        let (response, stored) = self.execute(0, &request, denied, None);
        self.time.log(|| {
            let (request, answer) = (trace::request(&request), trace::answer(&response));
            format!("server: s{at}'s {run}#{id}, {request}: {answer}")
        });
        if let (Request::Release(release), Response::Released(result)) = (&request, &response) {
            if (release.by, release.cause, release.left) != (term.nonce, CRASHED, Duration::ZERO) {
                self.checker.fail(format!("{release:?} is not the release of {term:?}"));
            }
            match result {
                Ok(()) => {
                    self.releases.stored += 1;
                    self.runs[run].released = true;
                    self.releases.after_conflict += u64::from(self.runs[run].conflicts > 0);
                    self.checker.released_after_crash(at, self.time.now);
                }
                Err(failure) if failure.kind == LockErrorKind::Conflict => {
                    let last = self.servers[0].last.as_ref();
                    let holds = last.is_some_and(|last| term.holds(&last.record));
                    self.releases.conflicts += 1;
                    self.releases.late += u64::from(!holds);
                    let led = self.checker.has_leader();
                    self.releases.beside_leader += u64::from(!holds && led);
                }
                Err(_) => {}
            }
        }
        if stored {
            self.stored(0);
        }
        for after in self.time.passages(0.08) {
            let response = response.clone();
            let step = Step::Response { run, id, response, from_server: true };
            self.sentinel_later(at, after, step);
        }
    }

    /// Counts a write that was refused, of a process whose entry a sentinel has released.
    pub(super) fn count_late_write(&mut self, by: Nonce) {
        let released = self.runs.iter().any(|run| run.released && run.term.nonce == by);
        self.releases.late_writes += u64::from(released);
    }
}
