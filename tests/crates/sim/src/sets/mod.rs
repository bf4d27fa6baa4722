//! A set: elections of many shards, and members that share them evenly.
//!
//! Each shard is an election with a lock of its own. Each process has a candidate in all of them,
//! with one clock and one link, and a member that decides for which it stands.

mod member;
mod promises;
mod run;

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
