//! The checkpoint: a term claims it when it begins for its machine, as the driver does before it
//! tells anybody else, and its work saves.
//!
//! A term that has claimed may save at any later time while its process lives, over or not, as
//! where a clock stood still: that no late save is stored rests on conditions alone.

use std::sync::Arc;

use incumbent::lock::{LockErrorKind, Token};
use incumbent::protocol::{CheckpointProgress, CheckpointRequest, CheckpointResponse, Event};
use incumbent_sim::{Keeper, ShelfBreach};

use crate::key::{Key, nonce};
use crate::process::{Breach, Term};
use crate::state::{Flight, Message, State};
use crate::transitions::{Move, Sights, count};

/// A term with the checkpoint, in its process.
#[derive(Debug, Clone)]
pub struct CheckpointTerm {
    pub who: usize,
    /// Which process of the candidate it is.
    pub life: u8,
    keeper: Keeper,
    /// The request whose response is awaited.
    request: Option<u64>,
    asked: u64,
}

impl From<ShelfBreach> for Breach {
    fn from(breach: ShelfBreach) -> Self {
        match breach {
            ShelfBreach::Former => Self::Former,
            ShelfBreach::Lost => Self::Lost,
            ShelfBreach::Histories | ShelfBreach::Mistaken => Self::Histories,
        }
    }
}

impl CheckpointTerm {
    /// The writer is known by what it requests, and by what the keeper saves.
    pub fn sketch(&self, key: &mut Key) {
        let Self { who, life, keeper, request, asked: _ } = self;
        key.campaign(nonce(*who, *life));
        key.plain(70 + u64::from(keeper.has_claimed()));
        key.token(keeper.token.0);
        key.data(keeper.data());
        key.data(keeper.saving().map_or(&[], |saving| saving));
        key.plain(u64::from(request.is_some()));
        if let Some(request) = keeper.request() {
            key.checkpoint_request(&request);
        }
    }

    /// Whether it awaits the response to this message, or this very response.
    pub fn awaits(&self, flight: &Flight) -> bool {
        let (Message::Checkpoint { token, id, .. } | Message::OfCheckpoint { token, id, .. }) =
            &flight.message
        else {
            return false;
        };
        self.keeper.token == *token && self.request == Some(*id)
    }
}

impl State {
    /// What terms may do with the checkpoint.
    pub(crate) fn checkpoint_moves(&self, moves: &mut Vec<Move>) {
        for (index, keeping) in self.keepers.iter().enumerate() {
            if !self.processes[keeping.who].acts() {
                continue;
            }
            if keeping.keeper.has_claimed() && self.shelf.last < self.config.saves {
                moves.push(Move::Save(index));
            }
            let comes = |flight: &Arc<Flight>| flight.left == 0 && keeping.awaits(flight);
            if keeping.request.is_some() && !self.flights.iter().any(comes) {
                moves.push(Move::CheckpointTimeOut(index));
            }
        }
    }

    /// A term has begun for its machine.
    pub(crate) fn claims(&mut self, who: usize, token: Token) {
        if self.config.saves == 0 {
            return;
        }
        self.drop_keepers(who);
        let durable = self.config.capabilities().reads_are_durable;
        let keeper = Keeper::claim(token, 0, durable);
        let life = self.processes[who].life;
        self.keepers.push(Arc::new(CheckpointTerm { who, life, keeper, request: None, asked: 0 }));
        self.requests_checkpoint(self.keepers.len() - 1);
    }

    /// A term has ended for its machine: it claims no more.
    pub(crate) fn claims_no_more(&mut self, who: usize) {
        self.keepers.retain(|keeping| keeping.who != who || keeping.keeper.has_claimed());
    }

    /// A process has ended.
    pub(crate) fn drop_keepers(&mut self, who: usize) {
        self.keepers.retain(|keeping| keeping.who != who);
    }

    /// Drops what does nothing any more.
    pub(crate) fn prune_keepers(&mut self) {
        let all_saved = self.shelf.last >= self.config.saves;
        self.keepers.retain(|keeping| keeping.keeper.request().is_some() || !all_saved);
    }

    /// Its work saves, in the place of a save that is under way.
    pub(crate) fn saves(&mut self, index: usize) {
        let shelf = Arc::make_mut(&mut self.shelf);
        let keeping = Arc::make_mut(&mut self.keepers[index]);
        keeping.keeper.save(u64::from(shelf.last) + 1, shelf);
        self.requests_checkpoint(index);
    }

    fn requests_checkpoint(&mut self, index: usize) {
        let keeping = Arc::make_mut(&mut self.keepers[index]);
        let Some(request) = keeping.keeper.request() else { return };
        keeping.asked += 1;
        keeping.request = Some(keeping.asked);
        let &mut CheckpointTerm { who, life, asked: id, .. } = keeping;
        let message = Message::Checkpoint { token: keeping.keeper.token, id, request };
        self.flights.push(Arc::new(Flight { who, life, left: 0, held: false, message }));
    }

    pub(crate) fn checkpoint_times_out(&mut self, index: usize, sights: &Sights) -> Option<Event> {
        let unknown = CheckpointResponse::Failed(LockErrorKind::OutcomeUnknown);
        self.checkpoint_response(index, unknown, sights)
    }

    /// A message of the checkpoint arrives. Returns what its machine is told.
    pub(crate) fn checkpoint_message(&mut self, flight: &Flight, sights: &Sights) -> Option<Event> {
        let &Flight { who, life, .. } = flight;
        match &flight.message {
            Message::Checkpoint { token, id, request } => {
                let stores = matches!(request, CheckpointRequest::Store { .. });
                match Arc::make_mut(&mut self.shelf).perform(request.clone()) {
                    Ok(response) => {
                        let refused = matches!(response, CheckpointResponse::Failed(_));
                        if stores && refused && self.shelf.claimed > Some(*token) {
                            count(&sights.late);
                        }
                        let message = Message::OfCheckpoint { token: *token, id: *id, response };
                        let flight = Flight { who, life, left: 0, held: false, message };
                        self.flights.push(Arc::new(flight));
                    }
                    Err(breach) => drop(self.breach.get_or_insert(breach.into())),
                }
                None
            }
            Message::OfCheckpoint { response, .. } => {
                let index = self.keepers.iter().position(|keeping| keeping.awaits(flight))?;
                self.checkpoint_response(index, response.clone(), sights)
            }
            _ => None,
        }
    }

    fn checkpoint_response(
        &mut self,
        index: usize,
        response: CheckpointResponse,
        sights: &Sights,
    ) -> Option<Event> {
        let keeping = Arc::make_mut(&mut self.keepers[index]);
        keeping.request = None;
        let had_claimed = keeping.keeper.has_claimed();
        match keeping.keeper.handle(response, Arc::make_mut(&mut self.shelf)) {
            Ok(CheckpointProgress::Next | CheckpointProgress::Retry) => {
                self.requests_checkpoint(index);
            }
            Ok(CheckpointProgress::Done) => {
                count(&sights.kept[usize::from(had_claimed)]);
                let term = self.processes[keeping.who].term;
                if had_claimed {
                } else if !matches!(term, Term::Leading { deadline } if self.now < deadline) {
                    self.keepers.remove(index); // the term is over before it has begun
                } else if !self.shelf.is_followed_by(keeping.keeper.data()) {
                    self.breach.get_or_insert(Breach::Older);
                }
            }
            // The work of a term that has claimed is told; a term that has not is given up.
            Ok(CheckpointProgress::Superseded(_) | CheckpointProgress::Refused) => {
                if !had_claimed {
                    self.keepers.remove(index);
                    return Some(Event::Resign);
                }
            }
            Err(breach) => drop(self.breach.get_or_insert(breach.into())),
        }
        None
    }
}
