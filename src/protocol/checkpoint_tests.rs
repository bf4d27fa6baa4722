//! Every interleaving of three terms and a store that loses responses.
//!
//! Terms begin one after the other, continue beside later ones, and stop at any point, as by a
//! crash: then nothing more is done for them. Requests are stored in any order, at any later time
//! or never; responses are lost; saves are given up. In every state that can be reached: what was
//! acknowledged is never lost, never replaced by what is older, and all that is stored follows from
//! what was stored before.

use std::collections::HashSet;
use std::sync::Arc;

use super::*;

/// The tokens of the terms that take part.
const TERMS: [u64; 3] = [1, 2, 3];
/// How many saves a term does.
const SAVES: u8 = 1;
/// How many requests of a term have no response, at most.
const LOST: u8 = 1;
/// How many requests may wait in the network beside the one that is awaited.
const DELAYED: usize = 1;

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    version: u64,
    stored: Option<StoredCheckpoint>,
    /// The writes whose data must not be lost: the greatest that was acknowledged.
    acknowledged: Vec<u8>,
    terms: Vec<TermState>,
    /// Writes that are stored later or never.
    delayed: Vec<(StoredCheckpoint, Option<CheckpointVersion>)>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct TermState {
    writer: CheckpointWriter,
    /// Data that is being saved; `None` during the claim.
    saving: Option<Arc<[u8]>>,
    /// The data that the term knows to be stored.
    last: Arc<[u8]>,
    claimed: bool,
    saves: u8,
    lost: u8,
    over: bool,
    idle: bool,
    begun: bool,
}

impl World {
    fn new() -> Self {
        let term = |token: &u64| TermState {
            writer: CheckpointWriter::claim(Token(*token), token * 10, true),
            saving: None,
            last: Arc::default(),
            claimed: false,
            saves: 0,
            lost: 0,
            over: false,
            idle: false,
            begun: false,
        };
        Self {
            version: 0,
            stored: None,
            acknowledged: Vec::new(),
            terms: TERMS.iter().map(term).collect(),
            delayed: Vec::new(),
        }
    }

    fn last(&self) -> Option<CheckpointVersion> {
        self.stored.as_ref().map(|_| CheckpointVersion::number(self.version))
    }

    /// Stores a write as a lock does. The data is the list of all saves that it follows from.
    fn store(
        &mut self,
        checkpoint: StoredCheckpoint,
        expected: Option<&CheckpointVersion>,
    ) -> CheckpointResponse {
        if self.last().as_ref() != expected {
            return CheckpointResponse::Failed(LockErrorKind::Conflict);
        }
        let history = &checkpoint.data;
        assert!(history.starts_with(&self.acknowledged), "an acknowledged save is lost");
        let before = self.stored.as_ref().map_or(Token(0), |stored| stored.token);
        assert!(before <= checkpoint.token, "a former term has written after a later one");
        self.version += 1;
        self.stored = Some(checkpoint);
        CheckpointResponse::Stored(CheckpointVersion::number(self.version))
    }

    fn load(&self) -> CheckpointResponse {
        CheckpointResponse::Loaded { version: self.last(), checkpoint: self.stored.clone() }
    }

    /// The worlds that can follow.
    fn next(&self) -> Vec<Self> {
        let mut worlds = Vec::new();
        for delayed in 0..self.delayed.len() {
            let mut stored = self.clone();
            let (checkpoint, expected) = stored.delayed.remove(delayed);
            worlds.push(stored.clone()); // never
            stored.store(checkpoint, expected.as_ref());
            worlds.push(stored);
        }
        for (index, term) in self.terms.iter().enumerate() {
            if term.over {
                continue;
            }
            if !term.begun {
                // The lock gives out tokens in order.
                if self.terms[..index].iter().all(|earlier| earlier.begun) {
                    let mut begun = self.clone();
                    begun.terms[index].begun = true;
                    worlds.push(begun);
                }
                continue;
            }
            if term.idle {
                worlds.extend(self.begin_save(index));
                continue;
            }
            worlds.extend(self.perform(index));
            if term.saving.is_some() {
                let mut given_up = self.clone();
                (given_up.terms[index].saving, given_up.terms[index].idle) = (None, true);
                worlds.push(given_up);
            }
        }
        worlds
    }

    fn begin_save(&self, index: usize) -> Option<Self> {
        let mut world = self.clone();
        let term = &mut world.terms[index];
        if term.saves == SAVES {
            return None;
        }
        term.saves += 1;
        let id = TERMS[index] * 10 + u64::from(term.saves);
        let mut history = term.last.to_vec();
        history.push(u8::try_from(id).expect("small"));
        let history: Arc<[u8]> = history.into();
        term.writer.save(id, Arc::clone(&history), 0);
        (term.saving, term.idle) = (Some(history), false);
        Some(world)
    }

    fn perform(&self, index: usize) -> Vec<Self> {
        let mut worlds = Vec::new();
        match self.terms[index].writer.request() {
            CheckpointRequest::Load => {
                let mut world = self.clone();
                let loaded = world.load();
                world.respond(index, loaded);
                worlds.push(world);
            }
            CheckpointRequest::Store { checkpoint, expected } => {
                let mut world = self.clone();
                let response = world.store(checkpoint.clone(), expected.as_ref());
                world.respond(index, response);
                worlds.push(world);
                if self.terms[index].lost < LOST {
                    let mut lost = self.clone();
                    lost.terms[index].lost += 1;
                    let unknown = CheckpointResponse::Failed(LockErrorKind::OutcomeUnknown);
                    let mut late = lost.clone();
                    lost.store(checkpoint.clone(), expected.as_ref());
                    lost.respond(index, unknown.clone());
                    worlds.push(lost);
                    if late.delayed.len() < DELAYED {
                        late.delayed.push((checkpoint, expected));
                        late.respond(index, unknown);
                        worlds.push(late);
                    }
                }
            }
        }
        worlds
    }

    fn respond(&mut self, index: usize, response: CheckpointResponse) {
        let term = &mut self.terms[index];
        match term.writer.handle(response) {
            CheckpointProgress::Next | CheckpointProgress::Retry => {}
            CheckpointProgress::Superseded(by) => {
                assert!(by > Token(TERMS[index]));
                term.over = true;
            }
            CheckpointProgress::Refused => unreachable!("the store refuses nothing"),
            CheckpointProgress::Done => {
                let data = term.writer.data();
                term.last = Arc::clone(&data);
                if let Some(saving) = term.saving.take() {
                    assert_eq!(data, saving);
                    self.acknowledged = data.to_vec();
                } else {
                    term.claimed = true;
                    assert!(data.starts_with(&self.acknowledged), "a claim read what is older");
                }
                term.idle = true;
            }
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
                claims += u32::from(world.terms.iter().all(|term| term.claimed));
                late += u32::from(!world.delayed.is_empty());
                seen.insert(world.clone());
                next.push(world);
            }
        }
    }
    println!("{} states, {claims} with every term claimed, {late} with late writes", seen.len());
    assert!(claims > 1_000 && late > 1_000, "{claims} {late}");
}

#[test]
fn what_a_read_confirms_is_written_again_where_reads_are_not_durable() {
    for durable in [true, false] {
        let mut writer = CheckpointWriter::claim(Token(5), 50, durable);
        writer.handle(CheckpointResponse::Loaded { version: None, checkpoint: None });
        let CheckpointRequest::Store { checkpoint, expected: None } = writer.request() else {
            panic!("a claim writes");
        };
        let unknown = CheckpointResponse::Failed(LockErrorKind::OutcomeUnknown);
        assert_eq!(writer.handle(unknown), CheckpointProgress::Retry);
        assert_eq!(writer.request(), CheckpointRequest::Load);
        let version = CheckpointVersion::number(1);
        let found = CheckpointResponse::Loaded {
            version: Some(version.clone()),
            checkpoint: Some(checkpoint.clone()),
        };
        let expected = if durable { CheckpointProgress::Done } else { CheckpointProgress::Next };
        assert_eq!(writer.handle(found), expected);
        if !durable {
            let again = CheckpointRequest::Store { checkpoint, expected: Some(version) };
            assert_eq!(writer.request(), again);
        }
    }
}
