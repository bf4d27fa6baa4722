//! A set: elections of many shards, and members that share them evenly.
//!
//! Each shard is an election with a lock of its own. Each process has a candidate in all of them,
//! with one clock and one link, and a member that decides for which it stands.

mod member;
mod promises;
mod run;

use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

use incumbent::lock::Coverage;

use crate::candidate::CandidateSetup;
use crate::moves::MoveSetup;

pub use member::Member;
pub(crate) use run::run;

/// The set of a scenario.
#[derive(Debug, Clone)]
pub struct SetSetup {
    pub shards: u32,
    /// For how long no member has come or gone before shards move.
    pub settle_ms: u16,
    pub moves_at_once: u32,
    pub drain_ms: u16,
    /// Whether a new process has the identity of the one before.
    pub keeps_names: bool,
    pub members: Vec<MemberSetup>,
}

/// How one member is set up.
#[derive(Debug, Clone)]
pub struct MemberSetup {
    pub weight: u32,
    pub max_load: Option<u32>,
    /// How fast its clock runs, in parts per million.
    pub ppm: i16,
    /// By how much its wall clock is ahead, in milliseconds.
    pub wall_ms: i16,
    /// It begins by standing aside.
    pub aside: bool,
    /// How often its check runs, if it has one.
    pub check_ms: Option<u16>,
    /// How often the work on a shard ends by itself or will not stop, of 255.
    pub unruly: u8,
    /// It answers no call, as a program that knows of none.
    pub mute: bool,
}

impl SetSetup {
    /// How the candidates of each member are set up.
    pub(super) fn candidates(&self) -> Vec<CandidateSetup> {
        let candidate = |member: &MemberSetup| CandidateSetup {
            ppm: member.ppm,
            wall_ms: member.wall_ms,
            unruly: member.unruly,
            drain_ms: self.drain_ms,
            moves: Some(MoveSetup {
                prefer_after_ms: None,
                aside: member.aside,
                check_ms: member.check_ms,
            }),
            ..CandidateSetup::new(Coverage::Full)
        };
        self.members.iter().map(candidate).collect()
    }
}

/// What was seen, so that nothing can pass by not happening.
#[derive(Debug, Default, Clone, Copy)]
pub struct SetFigures {
    /// Terms that were handed over.
    pub handovers: u64,
    /// Requests for a shard, and how many of them were accepted.
    pub asked: u64,
    pub accepted: u64,
    /// Terms that were given back, as the member led as much as it may.
    pub given_back: u64,
    /// Handovers after the last fault, and the least that would have done.
    pub moves: u64,
    pub least: u64,
    /// How long it took until the load was even, from when each shard was led.
    pub even_after: Duration,
}

impl AddAssign for SetFigures {
    fn add_assign(&mut self, other: Self) {
        self.handovers += other.handovers;
        self.asked += other.asked;
        self.accepted += other.accepted;
        self.given_back += other.given_back;
        self.moves += other.moves;
        self.least += other.least;
        self.even_after = self.even_after.max(other.even_after);
    }
}

impl fmt::Display for SetFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { handovers, asked, accepted, given_back, moves, least, even_after } = self;
        write!(
            f,
            "{handovers} handovers in storms, {asked} requests, {accepted} accepted; {given_back} \
             terms given back; {moves} moves after the last faults where {least} are the least; \
             even after {:.1} s at most",
            even_after.as_secs_f64()
        )
    }
}
