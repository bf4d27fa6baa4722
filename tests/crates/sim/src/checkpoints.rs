//! The checkpoint of the election: each term claims it before it leads, as the driver does, and its
//! work saves again and again, beside all that former terms have sent.

use std::sync::Arc;
use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::lock::{CheckpointVersion, LockErrorKind, Standing, StoredCheckpoint, Token};
use incumbent::protocol::{
    CheckpointProgress, CheckpointRequest, CheckpointResponse, CheckpointWriter, Event,
};

use crate::world::{Inner, SimEvent, World};

/// Of so many saves one is given up before its response.
const GIVEN_UP: u8 = 8;

/// The checkpoint on the server of an election, and what must become of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Shelf {
    version: u64,
    stored: Option<StoredCheckpoint>,
    /// What leaders were told to be stored: the longest.
    acknowledged: Arc<[u8]>,
    /// The number of the last save: the data of each is that before it and its number.
    last: u16,
}

/// What a term does with the checkpoint.
#[derive(Debug)]
pub(super) struct Keeper {
    writer: CheckpointWriter,
    pub token: Token,
    pub deadline: Instant,
    /// When the claim is given up; `None` once it is done.
    claims_until: Option<Instant>,
    /// What is being saved.
    saving: Option<Arc<[u8]>>,
    /// As last acknowledged.
    data: Arc<[u8]>,
    /// The request whose response is awaited.
    awaits: Option<u64>,
    requests: u64,
    saves: u64,
}

impl Keeper {
    pub fn has_claimed(&self) -> bool {
        self.claims_until.is_none()
    }

    fn is_busy(&self) -> bool {
        !self.has_claimed() || self.saving.is_some()
    }
}

/// What happens to the checkpoint of a term, in its process.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// It performs what its writer requests.
    Next,
    /// Its work saves, after so many saves, in the place of one that is under way.
    Save {
        after: u64,
    },
    Response {
        id: u64,
        response: CheckpointResponse,
        from_server: bool,
    },
}

impl Shelf {
    fn version(&self) -> Option<CheckpointVersion> {
        self.stored.as_ref().map(|_| CheckpointVersion::number(self.version))
    }

    /// Stores a write as a lock does. An error: what must not be stored, and is.
    fn store(
        &mut self,
        checkpoint: StoredCheckpoint,
        expected: Option<&CheckpointVersion>,
    ) -> Result<CheckpointResponse, String> {
        if self.version().as_ref() != expected {
            return Ok(CheckpointResponse::Failed(LockErrorKind::Conflict));
        }
        let before = self.stored.as_ref().map(|stored| stored.token);
        if before > Some(checkpoint.token) {
            return Err(format!("a write of {} over that of {before:?}", checkpoint.token));
        }
        if !checkpoint.data.starts_with(&self.acknowledged) {
            return Err(format!("a save that was acknowledged is lost by {}", checkpoint.token));
        }
        self.version += 1;
        self.stored = Some(checkpoint);
        Ok(CheckpointResponse::Stored(CheckpointVersion::number(self.version)))
    }

    /// A leader is told that this is stored.
    fn acknowledge(&mut self, data: &Arc<[u8]>) -> Result<(), String> {
        if data.starts_with(&self.acknowledged) {
            self.acknowledged = Arc::clone(data);
        } else if !self.acknowledged.starts_with(data) {
            return Err("two leaders were told of two histories".to_owned());
        }
        Ok(())
    }

    fn is_kept(&self) -> bool {
        let stored = self.stored.as_ref().map(|stored| &*stored.data).unwrap_or_default();
        stored.starts_with(&self.acknowledged)
    }
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
        candidate.keeper = Some(Box::new(Keeper {
            writer: CheckpointWriter::claim(token, write, lock.reads_are_durable),
            token,
            deadline,
            claims_until: Some(deadline - candidate.timing.grace()),
            saving: None,
            data: Arc::default(),
            awaits: None,
            requests: 0,
            saves: 0,
        }));
        self.later(who, Duration::ZERO, Inner::Checkpoint(token, Step::Next));
    }

    /// The term is over. What it saves it tries until its deadline.
    pub(super) fn claims_no_more(&mut self, who: usize) {
        let keeper = &mut self.candidates[who].keeper;
        *keeper = keeper.take().filter(|keeper| keeper.has_claimed());
    }

    fn keeper(&mut self, who: usize, token: Token) -> Option<&mut Keeper> {
        self.candidates[who].keeper.as_deref_mut().filter(|keeper| keeper.token == token)
    }

    pub(super) fn step_checkpoint(&mut self, who: usize, token: Token, step: Step) {
        match step {
            Step::Next => self.next_request(who, token),
            Step::Save { after } => self.saves(who, token, after),
            Step::Response { id, response, .. } => {
                let Some(keeper) = self.keeper(who, token) else { return };
                if keeper.awaits == Some(id) {
                    keeper.awaits = None;
                    let progress = keeper.writer.handle(response);
                    self.progresses(who, token, progress);
                }
            }
        }
    }

    fn next_request(&mut self, who: usize, token: Token) {
        let (now, life) = (self.local(who), self.life(who));
        let timeout = self.candidates[who].timing.request_timeout();
        let cut = self.time.now < self.process(who).faults.cut_out_until;
        let Some(keeper) = self.keeper(who, token) else { return };
        if !keeper.is_busy() || keeper.awaits.is_some() {
            return; // a save has taken the place of the one that this is of
        }
        if keeper.has_claimed() && now >= keeper.deadline {
            self.candidates[who].keeper = None; // it saves nothing any more
            return;
        }
        if keeper.claims_until.is_some_and(|until| now >= until) {
            return self.gives_up(who, token);
        }
        keeper.requests += 1;
        let (id, request) = (keeper.requests, keeper.writer.request());
        keeper.awaits = Some(id);
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
        let shelf = &mut self.shelves[key];
        let response = match request {
            CheckpointRequest::Load => {
                let checkpoint = shelf.stored.clone();
                CheckpointResponse::Loaded { version: shelf.version(), checkpoint }
            }
            CheckpointRequest::Store { .. } if denied => {
                CheckpointResponse::Failed(LockErrorKind::Denied)
            }
            CheckpointRequest::Store { checkpoint, expected } => {
                let is_former = self.checker.last_token(key) > Some(token);
                let stored = shelf.store(checkpoint, expected.as_ref());
                let refused = matches!(stored, Ok(CheckpointResponse::Failed(_)));
                self.checkpoints.late += u64::from(is_former && refused);
                match stored {
                    Ok(response) => response,
                    Err(why) => return self.checker.fail(why),
                }
            }
        };
        self.time.log(|| format!("server: c{who}'s {token}: checkpoint #{id}: {response:?}"));
        for after in self.time.passages(0.08) {
            let response = response.clone();
            let step = Step::Response { id, response, from_server: true };
            let what = Inner::Checkpoint(token, step);
            self.time.after(after, SimEvent::In { who, life, what });
        }
    }

    fn progresses(&mut self, who: usize, token: Token, progress: CheckpointProgress) {
        match progress {
            CheckpointProgress::Next => self.next_request(who, token),
            CheckpointProgress::Retry => {
                let after = self.time.millis(20..400);
                self.later(who, after, Inner::Checkpoint(token, Step::Next));
            }
            CheckpointProgress::Done => self.is_stored(who, token),
            CheckpointProgress::Superseded(_) => {
                self.checkpoints.superseded += 1;
                self.gives_up(who, token);
            }
            CheckpointProgress::Refused => self.gives_up(who, token),
        }
    }

    /// A claim or a save is acknowledged.
    fn is_stored(&mut self, who: usize, token: Token) {
        let key = self.candidates[who].key;
        let Some(keeper) = self.keeper(who, token) else { return };
        keeper.data = keeper.writer.data();
        let (data, saving) = (Arc::clone(&keeper.data), keeper.saving.take());
        let claimed = keeper.claims_until.take().is_some();
        if saving.is_some_and(|saving| saving != data) {
            self.checker.fail(format!("{token} was told of another save than its own"));
        }
        if let Err(why) = self.shelves[key].acknowledge(&data) {
            self.checker.fail(why);
        }
        self.checkpoints.claims += u64::from(claimed);
        self.checkpoints.saves += u64::from(!claimed);
        self.saves_within(who, token, 1500);
        if claimed && self.candidates[who].stands_back {
            self.candidates[who].stands_back = false;
            self.feed(who, Event::Standing(Standing::Ready));
        }
    }

    /// Its next save is due within so many milliseconds.
    fn saves_within(&mut self, who: usize, token: Token, within: u64) {
        let delay = self.time.millis(0..within);
        if let Some(Keeper { saves: after, .. }) = self.keeper(who, token) {
            let step = Step::Save { after: *after };
            self.later(who, delay, Inner::Checkpoint(token, step));
        }
    }

    fn saves(&mut self, who: usize, token: Token, after: u64) {
        let key = self.candidates[who].key;
        let (write, gives_up) = (self.time.random.u64(..), self.time.random.u8(..GIVEN_UP) == 0);
        let number = self.shelves[key].last.wrapping_add(1);
        let Some(keeper) = self.keeper(who, token).filter(|keeper| keeper.saves == after) else {
            return;
        };
        keeper.saves += 1;
        let data: Arc<[u8]> = [&*keeper.data, &number.to_be_bytes()].concat().into();
        keeper.writer.save(write, Arc::clone(&data), 0);
        (keeper.saving, keeper.awaits) = (Some(data), None);
        self.shelves[key].last = number;
        if gives_up {
            self.saves_within(who, token, 20);
        }
        self.next_request(who, token);
    }

    /// A leader without its checkpoint leads no longer, and stands back; a save is not repeated.
    fn gives_up(&mut self, who: usize, token: Token) {
        let Some(keeper) = self.keeper(who, token) else { return };
        keeper.saving = None;
        if keeper.has_claimed() {
            return self.saves_within(who, token, 1500);
        }
        self.time.log(|| format!("c{who}'s {token} does not claim the checkpoint"));
        self.candidates[who].stands_back = true;
        self.checkpoints.unclaimed += 1;
        self.feed_now(who, vec![Event::Standing(Standing::Sick), Event::Resign]);
    }

    /// Whether all that was acknowledged is stored, and the leader has claimed it.
    pub(crate) fn checkpoint_is_kept(&self) -> Result<(), String> {
        if !self.scenario.checkpoint {
            return Ok(());
        }
        let claimed = |who: &usize| {
            let keeper = self.candidates[*who].keeper.as_ref();
            self.checker.is_leading(*who) && keeper.is_some_and(|keeper| keeper.has_claimed())
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
