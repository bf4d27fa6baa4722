//! Sentinels: what they know of the terms, and their releases once a process is dead.
//!
//! A registration may take any time, and none comes after the death: a sentinel knows the term that
//! is on, an earlier one or none. It sees a death at any later time, and takes each of its steps at
//! any later time, or never.

use std::sync::Arc;

use incumbent::lock::{LockErrorKind, Request};
use incumbent::protocol::{CrashRelease, CrashStep, RegisteredTerm};

use crate::key::{Key, nonce};
use crate::lock::{Time, failed};
use crate::process::{SEED, local};
use crate::state::{Flight, Message, State};
use crate::transitions::{Move, Sights, count};

/// One release, by one sentinel.
#[derive(Debug, Clone)]
pub struct Run {
    pub who: usize,
    /// Which process of the candidate is dead.
    pub life: u8,
    /// Which sentinel of several.
    pub twin: u8,
    release: CrashRelease,
    /// The request whose response is awaited, and when it times out.
    pub request: Option<(u64, Time)>,
    asked: u64,
    /// What kind of request that is.
    releases: bool,
}

impl Run {
    pub fn sketch(&self, now: Time, key: &mut Key) {
        let Self { who, life, twin, release, request, asked: _, releases } = self;
        key.campaign(nonce(*who, *life));
        key.plain(50 + u64::from(*twin));
        release.fingerprint(local(now), key);
        if let Some((_, times_out)) = request {
            key.plain(1 + u64::from(*releases));
            key.duration(times_out.saturating_sub(now));
        }
    }
}

impl State {
    /// What sentinels may do.
    pub(crate) fn sentinel_moves(&self, moves: &mut Vec<Move>) {
        for (who, process) in self.processes.iter().enumerate() {
            if self.config.sentinels > 0 && process.registers() {
                moves.push(Move::Register(who));
            }
        }
        for (index, run) in self.runs.iter().enumerate() {
            match run.request {
                Some((_, at)) if at <= self.now => moves.push(Move::SentinelTimeOut(index)),
                Some(_) => {}
                None => match run.release.next(local(self.now)) {
                    CrashStep::Wait(_) => {}
                    CrashStep::Request(_) | CrashStep::Done(_) => {
                        moves.push(Move::Sentinel(index));
                    }
                },
            }
        }
    }

    /// The process is gone, and its work with it.
    pub(crate) fn dies(&mut self, who: usize) {
        let process = &self.processes[who];
        let (term, life) = (process.registered, process.life);
        for twin in 0..self.config.sentinels {
            let Some(term) = term else { break };
            let run = self.run_of(who, life, twin, term);
            self.runs.push(Arc::new(run));
        }
        self.drop_keepers(who);
        Arc::make_mut(&mut self.processes[who]).gone();
    }

    fn run_of(&self, who: usize, life: u8, twin: u8, term: RegisteredTerm) -> Run {
        let (now, until) = (local(self.now), local(self.now + self.config.ttl));
        let release = CrashRelease::new(term, now, until, self.config.tick, *SEED);
        Run { who, life, twin, release, request: None, asked: 0, releases: false }
    }

    /// The next step of a release.
    pub(crate) fn sentinel_steps(&mut self, index: usize) {
        let times_out = self.now + self.config.tick;
        let run = Arc::make_mut(&mut self.runs[index]);
        match run.release.next(local(self.now)) {
            CrashStep::Wait(_) => {}
            CrashStep::Done(_) => drop(self.runs.remove(index)),
            CrashStep::Request(request) => {
                run.asked += 1;
                run.releases = matches!(request, Request::Release(_));
                run.request = Some((run.asked, times_out));
                let message = Message::OfSentinel { twin: run.twin, id: run.asked, request };
                let (who, life) = (run.who, run.life);
                self.flights.push(Arc::new(Flight { who, life, left: 0, held: false, message }));
            }
        }
    }

    pub(crate) fn sentinel_times_out(&mut self, index: usize) {
        let now = local(self.now);
        let run = Arc::make_mut(&mut self.runs[index]);
        run.request = None;
        if let CrashStep::Request(request) = run.release.next(now) {
            let response = failed(&request, LockErrorKind::OutcomeUnknown);
            run.release.on_response(now, response);
        }
    }

    /// A message from or to a sentinel arrives.
    pub(crate) fn sentinel_message(&mut self, flight: &Flight, sights: &Sights) {
        let &Flight { who, life, .. } = flight;
        match &flight.message {
            Message::OfSentinel { twin, id, request } => {
                let (answer, stored) = Arc::make_mut(&mut self.lock).apply(self.now, request);
                if matches!(request, Request::Release(_)) {
                    count(&sights.releases[usize::from(!stored)]);
                }
                if stored {
                    self.stored();
                }
                let message = Message::ToSentinel { twin: *twin, id: *id, answer };
                self.flights.push(Arc::new(Flight { who, life, left: 0, held: false, message }));
            }
            Message::ToSentinel { twin, id: _, answer } => {
                let now = local(self.now);
                let is_its =
                    |run: &&mut Arc<Run>| (run.who, run.life, run.twin) == (who, life, *twin);
                if let Some(run) = self.runs.iter_mut().find(is_its) {
                    let run = Arc::make_mut(run);
                    run.request = None;
                    run.release.on_response(now, answer.clone());
                }
            }
            _ => {}
        }
    }

    /// Whether a sentinel awaits this response.
    pub(crate) fn sentinel_awaits(&self, flight: &Flight, of: u8, id: u64) -> bool {
        self.runs.iter().any(|run| {
            (run.who, run.life, run.twin) == (flight.who, flight.life, of)
                && run.request.is_some_and(|(awaited, _)| awaited == id)
        })
    }
}
