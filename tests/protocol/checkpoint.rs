//! Every interleaving of three terms that write a checkpoint, on a lock that loses responses.
//!
//! Terms begin one after the other, continue beside later ones, and stop at any point, as by a
//! crash: then nothing more is done for them. Requests are stored in any order, at any later time
//! or never, and responses are lost. No time passes: the writer knows none. Where terms come from,
//! and when they are told, is part of the model check.

use std::collections::HashSet;

use incumbent::lock::{CheckpointVersion, LockErrorKind, StoredCheckpoint, Token};
use incumbent::protocol::{CheckpointProgress, CheckpointRequest, CheckpointResponse};
use incumbent_sim::{Keeper, Shelf};

/// How many terms take part.
const TERMS: u64 = 3;
/// How many saves a term does.
const SAVES: u8 = 1;
/// How many requests of a term have no response, at most.
const LOST: u8 = 1;
/// How many requests may wait in the network beside the one that is awaited.
const DELAYED: usize = 1;

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    shelf: Shelf,
    terms: Vec<Term>,
    /// Writes that are stored later or never.
    delayed: Vec<(StoredCheckpoint, Option<CheckpointVersion>)>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Term {
    keeper: Keeper,
    saves: u8,
    lost: u8,
    begun: bool,
    over: bool,
}

impl World {
    fn new() -> Self {
        let term = |token| Term {
            keeper: Keeper::claim(Token(token), 0, true),
            saves: 0,
            lost: 0,
            begun: false,
            over: false,
        };
        Self {
            shelf: Shelf::default(),
            terms: (1..=TERMS).map(term).collect(),
            delayed: Vec::new(),
        }
    }

    /// The worlds that can follow.
    fn next(&self) -> Vec<Self> {
        let mut worlds = Vec::new();
        for delayed in 0..self.delayed.len() {
            let mut never = self.clone();
            let (checkpoint, expected) = never.delayed.remove(delayed);
            let mut stored = never.clone();
            stored.perform(CheckpointRequest::Store { checkpoint, expected });
            worlds.extend([never, stored]);
        }
        for (index, term) in self.terms.iter().enumerate() {
            if !term.begun {
                // The lock gives out tokens in order.
                let mut begun = self.clone();
                begun.terms[index].begun = true;
                worlds.push(begun);
                break;
            }
            match term.keeper.request().filter(|_| !term.over) {
                Some(request) => worlds.extend(self.requests(index, request)),
                None if term.over || term.saves == SAVES => {}
                None => {
                    let mut saves = self.clone();
                    let World { shelf, terms, .. } = &mut saves;
                    terms[index].saves += 1;
                    terms[index].keeper.save(u64::from(shelf.last) + 1, shelf);
                    worlds.push(saves);
                }
            }
        }
        worlds
    }

    fn requests(&self, index: usize, request: CheckpointRequest) -> Vec<Self> {
        let mut worlds = Vec::new();
        let mut performed = self.clone();
        let response = performed.perform(request.clone());
        let unknown = CheckpointResponse::Failed(LockErrorKind::OutcomeUnknown);
        if let CheckpointRequest::Store { checkpoint, expected } = request
            && self.terms[index].lost < LOST
        {
            let mut late = self.clone();
            late.delayed.push((checkpoint, expected));
            for mut world in [performed.clone(), late] {
                world.terms[index].lost += 1;
                world.respond(index, unknown.clone());
                worlds.push(world);
            }
        }
        performed.respond(index, response);
        worlds.push(performed);
        worlds.retain(|world| world.delayed.len() <= DELAYED);
        worlds
    }

    fn perform(&mut self, request: CheckpointRequest) -> CheckpointResponse {
        self.shelf.perform(request).unwrap_or_else(|breach| panic!("{breach}"))
    }

    fn respond(&mut self, index: usize, response: CheckpointResponse) {
        let (term, shelf) = (&mut self.terms[index], &mut self.shelf);
        let had_claimed = term.keeper.has_claimed();
        match term.keeper.handle(response, shelf) {
            Ok(CheckpointProgress::Next | CheckpointProgress::Retry) => {}
            Ok(CheckpointProgress::Superseded(by)) => {
                assert!(by > term.keeper.token);
                term.over = true;
            }
            Ok(CheckpointProgress::Done) => {
                let is_older = !shelf.is_followed_by(term.keeper.data());
                assert!(had_claimed || !is_older, "a claim read what is older");
            }
            Ok(CheckpointProgress::Refused) => unreachable!("the lock refuses nothing"),
            Err(breach) => panic!("{breach}"),
        }
    }
}

#[test]
fn no_interleaving_loses_what_was_acknowledged() {
    let mut seen = HashSet::new();
    let mut next = vec![World::new()];
    let (mut claims, mut late) = (0_u32, 0_u32);
    while let Some(world) = next.pop() {
        for world in world.next() {
            if !seen.contains(&world) {
                claims += u32::from(world.terms.iter().all(|term| term.keeper.has_claimed()));
                late += u32::from(!world.delayed.is_empty());
                seen.insert(world.clone());
                next.push(world);
            }
        }
    }
    println!("{} states, {claims} with every term claimed, {late} with late writes", seen.len());
    assert!(claims > 1_000 && late > 1_000, "{claims} {late}");
}
