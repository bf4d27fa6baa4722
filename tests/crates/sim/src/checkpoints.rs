//! The checkpoint of the election: each term claims it before it leads, as the driver does, and its
//! work saves again and again, beside all that former terms have sent.

use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::lock::{LockErrorKind, Readiness, Token};
use incumbent::protocol::{CheckpointProgress, CheckpointRequest, CheckpointResponse, Event};

use crate::shelf::{Keeper, Shelf};
use crate::world::{Inner, SimEvent, World};

/// One save in this many is given up before its response.
const GIVEN_UP: u8 = 8;

/// A [`Keeper`] in its process: its requests, one at a time, and when it gives up.
#[derive(Debug)]
pub(super) struct TimedKeeper {
    keeper: Keeper,
    pub deadline: Instant,
    /// When the claim is given up.
    claims_until: Instant,
    /// The request whose response is awaited.
    awaits: Option<u64>,
    requests: u64,
    saves: u64,
}

/// What happens to the checkpoint of a term, in its process.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// It performs what its writer requests.
    Next,
    /// Its work saves, after this many saves, in the place of one that is under way.
    Save {
        after: u64,
    },
    Response {
        id: u64,
        response: CheckpointResponse,
        from_server: bool,
    },
}

impl World {
    /// A term has begun for its machine: it claims the checkpoint until its work would have to stop
    /// if nothing were renewed.
    pub(super) fn claims(&mut self, who: usize, token: Token, deadline: Instant) {
        if !self.scenario.checkpoint {
            return;
        }
        let write = self.time.random.u64(..);
        let lock = self.capabilities(who);
        let candidate = &mut self.candidates[who];
        candidate.keeper = Some(Box::new(TimedKeeper {
            keeper: Keeper::claim(token, write, lock.reads_are_durable),
            deadline,
            claims_until: deadline - candidate.timing.grace(),
            awaits: None,
            requests: 0,
            saves: 0,
        }));
        self.later(who, Duration::ZERO, Inner::Checkpoint(token, Step::Next));
    }

    /// The term is over. What it saves it tries until its deadline.
    pub(super) fn claims_no_more(&mut self, who: usize) {
        let keeper = &mut self.candidates[who].keeper;
        *keeper = keeper.take().filter(|timed| timed.keeper.has_claimed());
    }

    fn keeper(&mut self, who: usize, token: Token) -> Option<&mut TimedKeeper> {
        self.candidates[who].keeper.as_deref_mut().filter(|timed| timed.keeper.token == token)
    }

    pub(super) fn step_checkpoint(&mut self, who: usize, token: Token, step: Step) {
        match step {
            Step::Next => self.next_request(who, token),
            Step::Save { after } => self.saves(who, token, after),
            Step::Response { id, response, .. } => {
                if self.keeper(who, token).is_some_and(|timed| timed.awaits == Some(id)) {
                    self.takes_response(who, token, response);
                }
            }
        }
    }

    fn next_request(&mut self, who: usize, token: Token) {
        let (now, life) = (self.local(who), self.life(who));
        let timeout = self.candidates[who].timing.request_timeout();
        let cut = self.time.now < self.process(who).faults.cut_out_until;
        let Some(timed) = self.keeper(who, token) else { return };
        let Some(request) = timed.keeper.request().filter(|_| timed.awaits.is_none()) else {
            return; // a save has taken the place of the one that this is of
        };
        if timed.keeper.has_claimed() {
            if now >= timed.deadline {
                self.candidates[who].keeper = None; // it saves nothing any more
                return;
            }
        } else if now >= timed.claims_until {
            return self.gives_up(who, token);
        }
        timed.requests += 1;
        let id = timed.requests;
        timed.awaits = Some(id);
        self.time.log(|| format!("c{who}'s {token}: checkpoint #{id}, {request:?}"));
        let response = CheckpointResponse::Failed(LockErrorKind::OutcomeUnknown);
        let timed_out = Step::Response { id, response, from_server: false };
        self.later(who, timeout, Inner::Checkpoint(token, timed_out));
        for after in self.time.passages(0.05).filter(|_| !cut) {
            let request = request.clone();
            self.time.after(after, SimEvent::Checkpoint { who, life, token, id, request });
        }
    }

    /// A request arrives at the server.
    pub(super) fn serve_checkpoint(
        &mut self,
        (who, life): (usize, u32),
        (token, id): (Token, u64),
        request: CheckpointRequest,
    ) {
        let (now, key) = (self.time.now, self.candidates[who].key);
        if !self.servers[key].is_up(now) {
            return;
        }
        let denied = now < self.process(who).faults.denied_until;
        let stores = matches!(request, CheckpointRequest::Store { .. });
        let performed = match stores && denied {
            true => Ok(CheckpointResponse::Failed(LockErrorKind::Denied)),
            false => self.shelves[key].perform(request),
        };
        let response = match performed {
            Ok(response) => response,
            Err(breach) => return self.checker.fail(format!("checkpoint of {token}: {breach}")),
        };
        let refused = matches!(response, CheckpointResponse::Failed(LockErrorKind::Conflict));
        let is_former = self.checker.last_token(key) > Some(token);
        self.checkpoints.late += u64::from(is_former && refused);
        self.time.log(|| format!("server: c{who}'s {token}: checkpoint #{id}: {response:?}"));
        for after in self.time.passages(0.08) {
            let response = response.clone();
            let step = Step::Response { id, response, from_server: true };
            let what = Inner::Checkpoint(token, step);
            self.time.after(after, SimEvent::In { who, life, what });
        }
    }

    fn takes_response(&mut self, who: usize, token: Token, response: CheckpointResponse) {
        let key = self.candidates[who].key;
        let (keepers, shelf) = (&mut self.candidates, &mut self.shelves[key]);
        let Some(timed) = &mut keepers[who].keeper else { return };
        timed.awaits = None;
        let had_claimed = timed.keeper.has_claimed();
        match timed.keeper.handle(response, shelf) {
            Ok(CheckpointProgress::Next) => self.next_request(who, token),
            Ok(CheckpointProgress::Retry) => {
                let after = self.time.millis(20..400);
                self.later(who, after, Inner::Checkpoint(token, Step::Next));
            }
            Ok(CheckpointProgress::Done) => self.is_stored(who, token, !had_claimed),
            Ok(CheckpointProgress::Superseded(_)) => {
                self.checkpoints.superseded += 1;
                self.gives_up(who, token);
            }
            Ok(CheckpointProgress::Refused) => self.gives_up(who, token),
            Err(breach) => self.checker.fail(format!("checkpoint of {token}: {breach}")),
        }
    }

    /// A claim or a save is acknowledged.
    fn is_stored(&mut self, who: usize, token: Token, is_claim: bool) {
        self.checkpoints.claims += u64::from(is_claim);
        self.checkpoints.saves += u64::from(!is_claim);
        self.saves_within(who, token, 1500);
        if is_claim && self.candidates[who].stands_back {
            self.candidates[who].stands_back = false;
            self.feed(who, Event::Readiness(Readiness::Ready));
        }
    }

    /// Its next save is due within this many milliseconds.
    fn saves_within(&mut self, who: usize, token: Token, within: u64) {
        let delay = self.time.millis(0..within);
        if let Some(TimedKeeper { saves: after, .. }) = self.keeper(who, token) {
            let step = Step::Save { after: *after };
            self.later(who, delay, Inner::Checkpoint(token, step));
        }
    }

    fn saves(&mut self, who: usize, token: Token, after: u64) {
        let key = self.candidates[who].key;
        let (write, gives_up) = (self.time.random.u64(..), self.time.random.u8(..GIVEN_UP) == 0);
        let (candidates, shelf) = (&mut self.candidates, &mut self.shelves[key]);
        let timed = candidates[who].keeper.as_deref_mut();
        let is_it = |timed: &&mut TimedKeeper| (timed.keeper.token, timed.saves) == (token, after);
        let Some(timed) = timed.filter(is_it) else { return };
        timed.keeper.save(write, shelf);
        (timed.saves, timed.awaits) = (timed.saves + 1, None);
        if gives_up {
            self.saves_within(who, token, 20);
        }
        self.next_request(who, token);
    }

    /// A leader without its checkpoint leads no longer, and stands back; a save is not repeated.
    fn gives_up(&mut self, who: usize, token: Token) {
        let Some(timed) = self.keeper(who, token) else { return };
        if timed.keeper.has_claimed() {
            return self.saves_within(who, token, 1500);
        }
        self.time.log(|| format!("c{who}'s {token} does not claim the checkpoint"));
        self.candidates[who].stands_back = true;
        self.checkpoints.unclaimed += 1;
        self.feed_now(who, vec![Event::Readiness(Readiness::Unhealthy), Event::Resign]);
    }

    /// Whether all that was acknowledged is stored, and the leader has claimed it.
    pub(crate) fn checkpoint_is_kept(&self) -> Result<(), String> {
        if !self.scenario.checkpoint {
            return Ok(());
        }
        let claimed = |who: &usize| {
            let keeper = self.candidates[*who].keeper.as_ref();
            self.checker.is_leading(*who) && keeper.is_some_and(|it| it.keeper.has_claimed())
        };
        match self.shelves.iter().all(Shelf::is_kept) {
            false => Err("what was acknowledged is not stored".to_owned()),
            true if !(0..self.candidates.len()).any(|who| claimed(&who)) => {
                Err("the leader has not claimed the checkpoint".to_owned())
            }
            true => Ok(()),
        }
    }
}
