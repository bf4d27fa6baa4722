//! Moves of the leadership: what the driver does as [`Moves`](crate::protocol::Moves) decides.

use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info, warn};

use super::health::record;
use super::move_state::{DriverMoves, MoveOptions, ReplyTo, readiness};
use super::{Driver, MAX_IDENTITY_SHOWN};
use crate::election::change::Change;
use crate::election::hand_over::HandOverError;
use crate::lock::{
    CandidateInfo, CandidateRequest, HandoverAnswer, Hint, LockError, Readiness, RollCall,
    Successor, TakeRequest,
};
use crate::protocol::{Chosen, Event, Health, Moves, Rank, Refusal, State};
use crate::time::clock::Instant;
use crate::util::text::escape_line;

/// The most bytes of the reason of a refusal.
const MAX_REASON_SHOWN: usize = 240;

impl Driver {
    /// Begins with what the builder set.
    pub(super) fn begin_moves(&mut self, options: &MoveOptions) {
        if !options.is_default() {
            let (moves, readiness) = (self.new_moves(options), options.readiness());
            self.moves = Some(moves);
            self.shared().update(|status| status.readiness = readiness);
            self.telemetry().readiness(readiness);
        }
    }

    fn new_moves(&self, options: &MoveOptions) -> Box<DriverMoves> {
        let (settings, in_set) = (self.machine.settings(), self.set_part.is_some());
        Box::new(DriverMoves {
            machine: Moves::new(settings, options.prefer_after, in_set, self.now()),
            health: options.health(),
            aside: options.aside,
            of_member: options.of_member,
            unclaimed: None,
            call: None,
        })
    }

    /// The moves, in the role that the candidate has now. Most candidates never move: their state
    /// is made when there is something to decide.
    fn refresh_moves(&mut self) -> &mut DriverMoves {
        let (now, leads_since) = (self.now(), self.leads_since());
        let moves = self.moves.take();
        let moves = moves.unwrap_or_else(|| self.new_moves(&MoveOptions::default()));
        let moves = self.moves.insert(moves);
        let pause_ends = self.machine.pause_ends(now);
        match leads_since {
            Some(since) => moves.machine.leads(now, since, pause_ends),
            None => moves.machine.stands_by(now, self.machine.leader(), pause_ends),
        }
        moves
    }

    /// Since when the candidate leads, if it does.
    fn leads_since(&self) -> Option<Instant> {
        let status = self.shared().status.borrow();
        let term = status.term.as_ref().filter(|_| self.machine.state() == State::Leader);
        term.map(|term| term.began)
    }

    /// When a move is due.
    pub(super) fn moves_wake(&self) -> Option<Instant> {
        self.moves.as_ref()?.machine.next_wake()
    }

    /// Does what is due.
    pub(super) fn advance_moves(&mut self) {
        if self.moves.is_none() {
            return;
        }
        let now = self.now();
        match self.refresh_moves().machine.advance(now) {
            Some(request @ CandidateRequest::Prefer { .. }) => {
                self.call(request, RollCall::HANDOVER_WITHIN, ReplyTo::Asking);
            }
            Some(request) => self.call(request, RollCall::SUCCESSORS_WITHIN, ReplyTo::None),
            None => {}
        }
    }

    fn call(&mut self, request: CandidateRequest, within: Duration, reply: ReplyTo) {
        let shared = Arc::clone(self.shared());
        let answers =
            Box::pin(async move { shared.lock.call_roll(&shared.name, request, within).await });
        self.refresh_moves().call = Some((answers, reply));
    }

    /// The leader's own program, or an operator, wants it to hand over.
    pub(super) fn hand_over(&mut self, to: Successor, reply: ReplyTo) {
        let request = self.refresh_moves().machine.request(to);
        self.call_ready(request, reply);
    }

    /// The member of the set, which is not ready, gives the shard to another one.
    pub(super) fn give_away(&mut self, to: Arc<str>, reply: ReplyTo) {
        let now = self.now();
        let request = self.refresh_moves().machine.give(now, to);
        self.call_ready(request, reply);
    }

    /// Asks who is ready, unless that is refused.
    fn call_ready(&mut self, request: Result<CandidateRequest, Refusal>, reply: ReplyTo) {
        match request {
            Ok(request) => self.call(request, RollCall::SUCCESSORS_WITHIN, reply),
            Err(refusal) => self.reply(reply, Err(refusal.into())),
        }
    }

    /// A request in a roll call. Returns whether the candidate answers with who it is.
    pub(super) fn on_request(&mut self, lock: usize, call: &RollCall) -> bool {
        let leads = self.leads_since().is_some();
        match &call.request {
            CandidateRequest::Identify => return true,
            CandidateRequest::WhoCanSucceed(to) => {
                // One that acquires nothing would only interrupt the term.
                let settings = self.machine.settings();
                let site = settings.site.as_ref();
                let may = !leads && settings.rank != Rank::Never;
                let included = to.includes_candidate(settings.nonce, &settings.identity, site);
                self.handle_of(lock, Event::Hint(Hint::RollCall(call.clone())));
                return may && included;
            }
            CandidateRequest::Pause(pause) => {
                let holds = self.machine.leader().is_some_and(|leader| leader.is_me);
                if holds {
                    self.handle(Event::Pause(*pause));
                }
                return holds;
            }
            CandidateRequest::HandOver(to) if leads => {
                self.hand_over(to.clone(), ReplyTo::Call(lock, call.clone()));
            }
            CandidateRequest::Prefer { priority, .. } if leads => {
                let now = self.now();
                let request = self.refresh_moves().machine.prefer(now, *priority);
                self.call_ready(request, ReplyTo::Call(lock, call.clone()));
            }
            // A member of the set that leads less asks for this shard.
            CandidateRequest::Take(request) if leads => {
                let request = self.give(request);
                self.call_ready(request, ReplyTo::Call(lock, call.clone()));
            }
            CandidateRequest::HandOver(_)
            | CandidateRequest::Prefer { .. }
            | CandidateRequest::Take(_) => {}
        }
        false
    }

    pub(super) fn on_move_answers(&mut self, answers: Result<Vec<CandidateInfo>, LockError>) {
        let now = self.now();
        let moves = self.refresh_moves();
        let Some((_, reply)) = moves.call.take() else { return };
        let moves = &mut moves.machine;
        if matches!(reply, ReplyTo::Asking) {
            if let Err(error) = &answers {
                debug!(%error, "cannot ask the leader to hand over");
            }
            return moves.on_answer(now, &answers.unwrap_or_default());
        }
        let chosen = match answers {
            Ok(answers) => moves.on_roll(now, &answers).map_err(HandOverError::from),
            Err(error) => {
                moves.on_roll_failed(now);
                Err(HandOverError::Lock(error))
            }
        };
        match &chosen {
            Ok(chosen) => {
                let to = escape_line(&chosen.identity, MAX_IDENTITY_SHOWN);
                info!(%to, "handing over");
            }
            // Excluding everyone is worse than a leader that is not ready.
            Err(why) if matches!(reply, ReplyTo::None) => {
                warn!(standing = self.readiness().as_str(), "still leading: {why}");
            }
            Err(why) => debug!("not handing over: {why}"),
        }
        match chosen {
            Ok(Chosen { nonce, identity }) => {
                self.reply(reply, Ok(Arc::clone(&identity)));
                self.drain_before(Event::HandOver { to: nonce, identity });
            }
            Err(why) => {
                self.keep_shard();
                self.reply(reply, Err(why));
            }
        }
    }

    fn reply(&mut self, reply: ReplyTo, outcome: Result<Arc<str>, HandOverError>) {
        match reply {
            // An error: the caller has gone.
            ReplyTo::Caller(caller) => drop(caller.send(outcome)),
            ReplyTo::Call(lock, call) => {
                let answer = match outcome {
                    Ok(to) => HandoverAnswer::To(to),
                    Err(why) => HandoverAnswer::Refused(
                        escape_line(&why.to_string(), MAX_REASON_SHOWN).into(),
                    ),
                };
                self.answer(lock, call, Some(answer));
            }
            ReplyTo::None | ReplyTo::Asking => {}
        }
    }

    /// Counts the shard as one that is on its way, if the member and the leader agree.
    fn give(&mut self, request: &TakeRequest) -> Result<CandidateRequest, Refusal> {
        let now = self.now();
        self.set_part.as_mut().ok_or(Refusal::OtherSet)?.give(request)?;
        self.refresh_moves().machine.take(now, request.clone()).inspect_err(|_| self.keep_shard())
    }

    /// The leader continues to lead, unless it drains already.
    fn keep_shard(&mut self) {
        if self.machine.drain.until().is_none()
            && let Some(part) = &mut self.set_part
        {
            part.keep();
        }
    }

    pub(super) fn readiness(&self) -> Readiness {
        self.moves.as_ref().map_or(Readiness::Ready, |moves| moves.machine.readiness())
    }

    /// The result of a check.
    pub(super) fn checked(&mut self, result: Result<(), Arc<str>>) {
        let Some(health) = self.moves.as_mut().and_then(|moves| moves.health.as_mut()) else {
            return;
        };
        record(health, result);
        self.update_readiness();
    }

    /// It stands aside from now on, or no longer does.
    pub(super) fn stand_aside(&mut self, aside: bool) {
        self.refresh_moves().aside = aside;
        self.update_readiness();
    }

    /// The member of the set that it belongs to is this ready.
    pub(super) fn set_member_readiness(&mut self, readiness: Readiness) {
        self.refresh_moves().of_member = readiness;
        self.update_readiness();
    }

    /// The checkpoint could not be claimed, or was. What cannot claim it stands behind all others,
    /// as what fails its check does: it takes the entry again after a lease, and others go first.
    pub(super) fn set_unclaimed(&mut self, why: Option<Arc<str>>) {
        if why.is_some() || self.moves.as_ref().is_some_and(|moves| moves.unclaimed.is_some()) {
            self.refresh_moves().unclaimed = why;
            self.update_readiness();
        }
    }

    /// By its check, its member, the claims of its checkpoint and the lock.
    pub(super) fn update_readiness(&mut self) {
        let now = self.now();
        let DriverMoves { health, aside, of_member, unclaimed, .. } = self.refresh_moves();
        let claims = if unclaimed.is_some() { Readiness::Unhealthy } else { Readiness::Ready };
        let own = readiness(health.as_ref(), *aside).max(*of_member).max(claims);
        let failure = health.as_ref().and_then(Health::failure).map(Arc::from);
        let failure: Option<Arc<str>> = failure.or_else(|| unclaimed.clone());
        if own != self.machine.settings().readiness {
            self.handle(Event::Readiness(own));
        }
        let after = self.machine.readiness();
        let moves = &mut self.refresh_moves().machine;
        let before = moves.readiness();
        moves.set_readiness(now, after);
        let mut checked = false; // the first check failed: it was taken to be sick already
        self.shared().status.send_if_modified(|status| {
            let new = (after, failure);
            let old = (status.readiness, status.check_failure.clone());
            let changed = old != new;
            checked = old.1.is_none() && new.1.is_some();
            (status.readiness, status.check_failure) = new;
            changed
        });
        if before != after {
            self.telemetry().readiness(after);
        }
        if before != after || checked {
            self.shared().publish(Change::Readiness(after));
        }
    }
}
