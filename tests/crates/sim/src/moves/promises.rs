//! What must hold of moves.

use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::lock::{
    CandidateInfo, Content, Coverage, Entry, Nonce, Pause, Readiness, Release, Role, Tombstone,
    Write,
};

use incumbent::protocol::Health;

use super::{Mover, Why};
use crate::candidate::Candidate;
use crate::faults::MoveStep;
use crate::server::Time;
use crate::world::World;

/// Clocks differ by so much at most.
const DRIFT: f64 = 0.998;

/// This long after the last fault nothing of it is under way any more.
const SETTLES: Duration = Duration::from_secs(45);

/// A leader decides to hand over.
pub(crate) struct Decision<'a> {
    pub to: Nonce,
    pub why: &'a Why,
    /// When its term began, and what time it is, by its clock.
    pub began: Option<Instant>,
    pub now: Instant,
    pub lease: Duration,
    /// Its own readiness and priority.
    pub own: Readiness,
    pub priority: u8,
    /// What its wall clock shows.
    pub unix_ms: u64,
    /// The pause in its entry.
    pub stated: Option<Pause>,
}

/// What is known of one candidate's moves.
#[derive(Debug, Default, Clone)]
struct Seat {
    /// The last pause that it was to state in its term.
    pause: Option<Pause>,
    /// Whom its term may be handed over to, and whether nobody ordered that.
    chosen: Vec<(Nonce, bool)>,
}

/// Judges moves by what was said to each candidate.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    seats: Vec<Seat>,
    /// When the last voluntary move was.
    last_voluntary: Option<Time>,
    /// Whom the last term was handed over to, and whether nothing can be in the way of that.
    handed: Option<(Nonce, bool)>,
}

impl Judge {
    pub fn new(candidates: usize) -> Self {
        Self { seats: vec![Seat::default(); candidates], ..Self::default() }
    }

    /// A new process knows nothing.
    pub fn forgets(&mut self, who: usize) {
        self.seats[who] = Seat::default();
    }

    /// An operator pauses: the last order that the holder hears counts.
    pub fn pauses(&mut self, who: usize, pause: Pause) {
        self.seats[who].pause = Some(pause);
    }

    pub fn decides(
        &mut self,
        who: usize,
        decision: &Decision<'_>,
        answers: &[CandidateInfo],
    ) -> Result<(), String> {
        let seat = &mut self.seats[who];
        let voluntary = decision.why.is_voluntary();
        let ordered = seat.chosen.last().is_some_and(|(_, voluntary)| !voluntary);
        seat.chosen.push((decision.to, voluntary));
        let suits = |info: &&CandidateInfo| {
            let ready = info.readiness == Readiness::Ready;
            let readiness = match decision.why {
                // Where it was named; who that is, is not known in here.
                Why::Requested(_) => ready || info.readiness == Readiness::Cordoned,
                // A ready one searches since one of higher priority has asked.
                Why::Alone if decision.own == Readiness::Ready => {
                    ready && info.priority > decision.priority
                }
                Why::Alone => info.readiness < decision.own,
                Why::Preferred(_) | Why::GivesAway => ready,
                Why::Taken(_, request) => ready && request.by == decision.to,
                Why::Asks | Why::Roll => false,
            };
            readiness && info.nonce == decision.to && info.role == Role::Standby
        };
        if !answers.iter().any(|info| suits(&info)) {
            return Err(format!("hands over to {}, which did not say it was ready", decision.to));
        }
        let Some(began) = decision.began else {
            return Err("hands over a term that it does not have".to_owned());
        };
        if voluntary && ordered {
            return Err("moves voluntarily in the place of an order".to_owned());
        }
        if voluntary && decision.now < began + decision.lease {
            return Err("moves a term voluntarily that is younger than a lease".to_owned());
        }
        let pause = seat.pause.or(decision.stated);
        if voluntary && pause.is_some_and(|pause| pause.until_unix_ms > decision.unix_ms) {
            return Err("moves voluntarily though it knows of a pause".to_owned());
        }
        Ok(())
    }
}

impl World {
    /// The judge of a candidate's election, and its seat there.
    fn judge(&mut self, who: usize) -> (&mut Judge, usize) {
        let Candidate { process, key, .. } = self.candidates[who];
        (&mut self.judges[key], process)
    }

    /// An operator's pause reaches the holder.
    pub(super) fn judge_pauses(&mut self, who: usize, pause: Pause) {
        let (judge, seat) = self.judge(who);
        judge.pauses(seat, pause);
    }

    pub(super) fn judge_decision(
        &mut self,
        who: usize,
        decision: &Decision<'_>,
        answers: &[CandidateInfo],
    ) {
        let (judge, seat) = self.judge(who);
        if let Err(wrong) = judge.decides(seat, decision, answers) {
            self.checker.fail(format!("candidate {who} {wrong}"));
        }
    }

    pub(crate) fn term_begins(&mut self, who: usize) {
        let (now, nonce) = (self.local(who), self.candidates[who].nonce());
        let Some(mover) = &mut self.candidates[who].mover else { return };
        mover.began = Some(now);
        let (judge, seat) = self.judge(who);
        judge.seats[seat] = Seat::default();
        let Some((to, surely)) = judge.handed.take() else { return };
        self.moved.succeeded += u64::from(to == nonce);
        if surely && to != nonce && self.may_succeed(to) {
            self.checker.fail(format!("candidate {who} leads in the place of {to}"));
        }
    }

    pub(crate) fn term_ends(&mut self, who: usize) {
        if let Some(mover) = &mut self.candidates[who].mover {
            mover.began = None;
        }
    }

    /// Its term ends, as it hands over.
    pub(crate) fn hands_over(&mut self, who: usize) {
        let (judge, seat) = self.judge(who);
        let chosen = judge.seats[seat].chosen.last().copied();
        let Some((to, voluntary)) = chosen else {
            return self.checker.fail(format!("candidate {who} hands over to nobody"));
        };
        self.moved.handovers += 1;
        let surely = self.is_calm_for(SETTLES) && self.may_succeed(to);
        let now = self.time.now;
        self.judge(who).0.handed = Some((to, surely));
        if voluntary {
            self.moved.voluntary += 1;
            let lease = self.candidates[who].timing.lease().mul_f64(DRIFT);
            let last = self.judge(who).0.last_voluntary.replace(now);
            if last.is_some_and(|last| now < last + lease) {
                self.checker.fail("two voluntary moves within a lease".to_owned());
            }
        }
        self.move_comes_to(MoveStep::Ends, who, Some(to));
    }

    /// It sends a release: it names whom it was to hand over to, if that is how its term ended.
    pub(crate) fn judge_release(&mut self, who: usize, release: &Release) {
        if self.candidates[who].mover.is_none() {
            return;
        }
        let (judge, seat) = self.judge(who);
        let chosen = &judge.seats[seat].chosen;
        let hands_over = release.cause == "handed_over";
        let wrong = match release.to {
            None if hands_over => Some("hands over, and names nobody"),
            Some(_) if !hands_over => Some("names a successor, and hands over to nobody"),
            Some(to) if chosen.last().is_none_or(|(chosen, _)| *chosen != to) => {
                Some("names a successor that it has not chosen")
            }
            _ => None,
        };
        if let Some(wrong) = wrong {
            self.checker.fail(format!("candidate {who} {wrong}"));
        }
        self.move_comes_to(MoveStep::Releases, who, release.to);
    }

    /// The pause in the stored entry, if it is of this candidate.
    pub(super) fn pause_stated_by(&self, who: usize) -> Option<Pause> {
        let server = &self.servers[self.candidates[who].key];
        let Content::Held(entry) = &server.last.as_ref()?.record.content else { return None };
        let mark = entry.mark.as_ref()?;
        (mark.write.nonce == self.candidates[who].nonce()).then_some(mark.moves.pause)?
    }

    /// A create was stored over `before`: it carries on the pause that this states.
    pub(crate) fn judge_create(&mut self, who: usize, write: &Write, before: Option<&Content>) {
        let stated = match before {
            Some(Content::Held(Entry { mark: Some(mark), .. }))
                if mark.write.nonce != write.mark.write.nonce =>
            {
                mark.moves.pause
            }
            Some(Content::Vacant(Tombstone::Released { pause, .. })) => *pause,
            _ => None,
        };
        let unix_ms = self.process(who).unix_ms(self.time.now);
        let Some(stated) = stated.filter(|pause| pause.until_unix_ms > unix_ms) else { return };
        self.moved.carried += 1;
        if write.mark.moves.pause != Some(stated) {
            self.checker.fail(format!("candidate {who} ends the pause that it found"));
        }
    }

    /// Whether a candidate receives hints, and is fit to lead.
    fn may_succeed(&self, nonce: Nonce) -> bool {
        let Some(who) = self.of_nonce(nonce) else { return false };
        let candidate = &self.candidates[who];
        let sick = |mover: &Mover| mover.moves.readiness() == Readiness::Unhealthy;
        matches!(candidate.setup.coverage, Coverage::Sampled | Coverage::Full)
            && !candidate.mover.as_deref().is_none_or(sick)
            && self.process(who).stopping_since.is_none()
    }

    /// Who leads in an election.
    pub(crate) fn leader_of(&self, key: usize) -> Option<usize> {
        self.of_election(key).find(|who| self.checker.is_leading(*who))
    }

    fn movers(&self) -> impl Iterator<Item = (usize, &Mover)> {
        let reached = |who: usize| self.candidates[who].setup.coverage != Coverage::None;
        let of = move |who: usize| self.candidates[who].mover.as_deref().map(|mover| (who, mover));
        (0..self.candidates.len()).filter(move |who| reached(*who)).filter_map(of)
    }

    fn leading_mover(&self) -> Option<(usize, &Mover)> {
        let who = self.leader_of(0)?;
        Some((who, self.candidates[who].mover.as_deref()?))
    }

    /// Whether the leader is as ready as the readiest one that hears calls.
    pub fn leader_is_ready(&self) -> Result<(), String> {
        let Some((leader, mover)) = self.leading_mover() else { return Ok(()) };
        let own = mover.moves.readiness();
        let better = self.movers().find(|(_, other)| other.moves.readiness() < own);
        better.map_or(Ok(()), |(who, _)| {
            Err(format!("candidate {leader} still leads and is {}, beside {who}", own.as_str()))
        })
    }

    /// Whether nobody that asks has a higher priority than the leader, if it hears who asks.
    pub fn preferences_are_settled(&self) -> Result<(), String> {
        let Some((leader, _)) = self.leading_mover() else { return Ok(()) };
        let setup = |who: usize| &self.candidates[who].setup;
        let asks =
            |who: &usize| setup(*who).moves.as_ref().is_some_and(|it| it.prefer_after_ms.is_some());
        let higher = self
            .movers()
            .filter(|(_, mover)| mover.moves.readiness() == Readiness::Ready)
            .map(|(who, _)| who)
            .filter(asks)
            .find(|who| setup(*who).priority > setup(leader).priority);
        match higher {
            Some(who) if setup(leader).coverage != Coverage::None => {
                Err(format!("candidate {leader} still leads, though {who} would rather"))
            }
            _ => Ok(()),
        }
    }

    /// Whether nobody is sick but by its check, or since the lock refuses its writes to this day.
    pub fn accepted_writers_are_not_sick(&self) -> Result<(), String> {
        let accepted = |who: usize| self.time.now >= self.process(who).faults.denied_until;
        let is_sick = |mover: &Mover| mover.moves.readiness() == Readiness::Unhealthy;
        let healthy = |who| self.process(who).health.as_ref().is_none_or(Health::is_healthy);
        let wrong = self.movers().find(|(who, it)| accepted(*who) && is_sick(it) && healthy(*who));
        wrong.map_or(Ok(()), |(who, _)| Err(format!("candidate {who} stays sick")))
    }
}
