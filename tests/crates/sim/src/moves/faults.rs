//! What goes wrong in a move.

use std::time::Duration;

use incumbent::lock::{CandidateInfo, CandidateRequest, Nonce};

use crate::event::SimEvent;
use crate::scenario::Fault;
use crate::world::World;

/// A point of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveStep {
    /// The leader calls the roll.
    Calls,
    /// It has chosen a successor.
    Chooses,
    /// Its term has ended.
    Ends,
    /// It sends its release.
    Releases,
    /// The successor holds the entry.
    Succeeds,
}

/// A fault of the leadership's moves.
#[derive(Debug, Clone)]
pub enum MoveFault {
    /// An operator wants the leader to hand over: to this one, or any.
    HandOver { to: Option<usize> },
    /// The leader's program wants it to.
    ProgramHandsOver,
    /// The check of a candidate fails for so long, or for good.
    Ill { who: usize, for_ms: Option<u16> },
    /// A process stands aside, or no longer does.
    StandAside { who: usize, aside: bool },
    /// An operator pauses the election, or ends a pause.
    Pause { for_ms: u16 },
    /// In the next move the leader or its successor crashes at this point.
    Crash { step: MoveStep, successor: bool, back_ms: u16 },
    /// Somebody answers the next call of a candidate: that this one is ready, or one that nobody
    /// is.
    ForgedAnswer { of: usize },
    /// Somebody asks in the place of a candidate that is to be preferred, or of a member that leads
    /// less.
    ForgedRequest { priority: u8 },
}

/// What waits for a move.
#[derive(Debug, Default)]
pub(crate) struct PendingFaults {
    pub crash: Option<(MoveStep, bool, u16)>,
    pub forged: Option<usize>,
}

impl World {
    pub(super) fn forged_answers(&mut self, request: &CandidateRequest) -> Vec<CandidateInfo> {
        if *request != CandidateRequest::Identify {
            return Vec::new();
        }
        let Some(of) = self.pending_faults.forged.take() else { return Vec::new() };
        let mut info = match self.candidates.get(of) {
            Some(candidate) => CandidateInfo::new(self.name(of), candidate.nonce()),
            None => CandidateInfo::new("nobody", Nonce(self.time.random.u64(..))),
        };
        info.priority = u8::MAX;
        vec![info]
    }

    /// A move of the candidate `who` comes to this point: a fault may wait for it there.
    pub(crate) fn move_comes_to(&mut self, at: MoveStep, who: usize, to: Option<Nonce>) {
        let Some((step, of_successor, back_ms)) = self.pending_faults.crash else { return };
        let who = if of_successor { to.and_then(|to| self.of_nonce(to)) } else { Some(who) };
        if let Some(who) = who.filter(|_| step == at) {
            self.pending_faults.crash = None;
            let crash = Fault::Crash { who: self.candidates[who].process, back_ms };
            self.time.after(Duration::ZERO, SimEvent::Fault(crash));
        }
    }
}
