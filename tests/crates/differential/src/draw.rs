//! Random operations.

use std::time::Duration;

use fastrand::Rng;
use incumbent::Advertisement;
use incumbent::lock::{Mark, MoveInfo, Nonce, Release, Revision, Write, WriteId};

use crate::store::{Deed, Rules};

/// How long a request may take: so long that an answer comes however busy the machine is.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A number of an object that no wall clock will show in milliseconds for long.
const FIRST_NUMBER: u64 = 1_000_000_000_000_000;
/// How far two such numbers are apart: no election sees as many writes, nor is it what one expects
/// that is far from any.
const NUMBERS_BETWEEN: u64 = 10_000_019;

/// What is done next.
#[derive(Debug, Clone)]
pub enum Step {
    Read,
    Write(Write),
    Release(Release),
    Evict(Revision),
    /// Several writes at once.
    Race(Vec<Write>),
    Deed(Deed, Option<Revision>),
    /// Nothing, for a while.
    Wait(Duration),
    /// Nothing, until what is stored has been freed.
    Outlive,
}

/// What the next operation may refer to.
pub struct KnownRevisions {
    /// What is stored, as far as was seen.
    pub last: Option<Revision>,
    /// What was stored before.
    pub earlier: Vec<Revision>,
    /// How many writes there were.
    pub writes: u64,
}

impl KnownRevisions {
    /// Which revision a conditional request expects: most often the right one.
    fn expected(&self, random: &mut Rng) -> Option<Revision> {
        match random.u8(..20) {
            0 => None,
            1 | 2 if !self.earlier.is_empty() => {
                Some(self.earlier[random.usize(..self.earlier.len())])
            }
            // Far from any: what is stored next may get one near by.
            3 => self.last.map(|last| Revision(last.0 + 1_000_000)),
            _ => self.last,
        }
    }

    fn write(&mut self, random: &mut Rng, rules: Rules) -> Write {
        self.writes += 1;
        let expected = self.expected(random);
        // As long as the store keeps an entry at most, shorter, or longer than it can.
        let life = match random.u8(..8) {
            0 => rules.ttl * 2,
            1 => rules.ttl + Duration::from_millis(random.u64(1..2000)),
            2..5 => Duration::from_secs(1),
            _ => rules.ttl,
        };
        let says = random.u8(..6) == 0;
        let said = || Advertisement::new(format!("10.0.0.{}:50051", random.u8(..))).into();
        Write {
            expected,
            identity: format!("host{}", self.writes % 5).into(),
            mark: Mark {
                write: WriteId { nonce: Nonce(7 + self.writes % 3), number: self.writes },
                lease: life, // as the protocol has it
                token: expected.filter(|_| self.writes.is_multiple_of(2)).map(Into::into),
                since_unix_ms: 1_700_000_000_000 + self.writes,
                moves: Box::new(MoveInfo::default()),
            },
            ttl: life,
            advertisement: says.then(said),
            timeout: TIMEOUT,
        }
    }

    /// With a number that is less than any other, or greater.
    fn put_numbered(&mut self, random: &mut Rng) -> Deed {
        self.writes += 1;
        let after_all = FIRST_NUMBER + self.writes * NUMBERS_BETWEEN;
        Deed::PutNumbered(if random.bool() { after_all } else { 0 })
    }

    /// Draws what is done next.
    pub fn draw(&mut self, random: &mut Rng, rules: Rules, deeds: &[Deed]) -> Step {
        match random.u8(..100) {
            0..18 => Step::Read,
            18..56 => Step::Write(self.write(random, rules)),
            56..68 => match self.expected(random) {
                Some(expected) => Step::Release(Release {
                    expected,
                    by: Nonce(random.u64(..)),
                    left: Duration::from_millis(random.u64(..3000)),
                    cause: "resigned",
                    to: None,
                    pause: None,
                    timeout: TIMEOUT,
                }),
                None => Step::Read,
            },
            68..73 => self.expected(random).map_or(Step::Read, Step::Evict),
            73..79 => {
                let write = self.write(random, rules);
                let rivals = (0..random.u8(2..4)).map(|_| {
                    let rival = self.write(random, rules);
                    // A create begins a term.
                    let token = rival.mark.token.filter(|_| write.expected.is_some());
                    let mark = Mark { token, ..rival.mark };
                    Write { expected: write.expected, mark, ..rival }
                });
                Step::Race(rivals.collect())
            }
            79..90 if !deeds.is_empty() => {
                let deed = match deeds[random.usize(..deeds.len())] {
                    Deed::PutNumbered(_) => self.put_numbered(random),
                    deed => deed,
                };
                Step::Deed(deed, self.expected(random))
            }
            90..95 => Step::Wait(Duration::from_millis(random.u64(..rules.ttl.as_millis() as u64))),
            95..100 => Step::Outlive,
            _ => Step::Read,
        }
    }
}
