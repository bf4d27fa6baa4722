//! What operators, programs and checks do, and what goes wrong in a move.

use std::time::Duration;

use incumbent::lock::{CandidateInfo, CandidateRequest, Nonce, Successor};

use super::Step;
use crate::event::SimEvent;
use crate::process_faults::millis;
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
    HandOver {
        to: Option<usize>,
    },
    /// The leader's program wants it to.
    ProgramHandsOver,
    /// The check of a candidate fails for so long, or for good.
    Ill {
        who: usize,
        for_ms: Option<u16>,
    },
    StandAside {
        who: usize,
        aside: bool,
    },
    /// An operator pauses the election, or ends a pause.
    Pause {
        for_ms: u16,
    },
    /// In the next move the leader or its successor crashes at this point.
    Crash {
        step: MoveStep,
        successor: bool,
        back_ms: u16,
    },
    /// Somebody answers the next call of a candidate: that this one is ready, or one that nobody
    /// is.
    ForgedAnswer {
        of: usize,
    },
    /// Somebody asks in the place of a candidate that is to be preferred.
    ForgedRequest {
        priority: u8,
    },
}

/// What waits for a move.
#[derive(Debug, Default)]
pub(crate) struct PendingFaults {
    crash: Option<(MoveStep, bool, u16)>,
    forged: Option<usize>,
}

impl World {
    pub(crate) fn inflict_on_moves(&mut self, fault: &MoveFault) {
        let fleet = self.candidates.len();
        match *fault {
            MoveFault::HandOver { to } => {
                let to = to.filter(|to| *to < fleet).map(|who| self.candidates[who].name(who));
                let to = to.map_or(Successor::Any, |name| Successor::Identity(name.into()));
                self.operator_calls(CandidateRequest::HandOver(to));
            }
            MoveFault::ProgramHandsOver => {
                if let Some(who) = (0..fleet).find(|who| self.checker.is_leading(*who)) {
                    self.later(who, Step::HandOver);
                }
            }
            MoveFault::StandAside { who, aside } if who < fleet => {
                self.later(who, Step::StandAside(aside));
            }
            MoveFault::Pause { for_ms } => {
                let pause = self.pause_for(millis(for_ms));
                self.operator_calls(CandidateRequest::Pause(pause));
            }
            MoveFault::Crash { step, successor, back_ms } => {
                self.pending_faults.crash = Some((step, successor, back_ms));
            }
            MoveFault::ForgedAnswer { of } => self.pending_faults.forged = Some(of),
            MoveFault::ForgedRequest { priority } => {
                let by = Nonce(self.random.u64(..));
                self.operator_calls(CandidateRequest::Prefer { by, priority });
            }
            MoveFault::Ill { .. } | MoveFault::StandAside { .. } => {}
        }
    }

    fn later(&mut self, who: usize, step: Step) {
        let life = self.candidates[who].life;
        self.after(Duration::ZERO, SimEvent::Moves { who, life, step });
    }

    pub(super) fn forged_answers(&mut self, request: &CandidateRequest) -> Vec<CandidateInfo> {
        if *request != CandidateRequest::Identify {
            return Vec::new();
        }
        let Some(of) = self.pending_faults.forged.take() else { return Vec::new() };
        let mut info = match self.candidates.get(of) {
            Some(candidate) => CandidateInfo::new(candidate.name(of), candidate.nonce()),
            None => CandidateInfo::new("nobody", Nonce(self.random.u64(..))),
        };
        info.priority = u8::MAX;
        vec![info]
    }

    pub(super) fn crash_in_move(&mut self, at: MoveStep, who: usize, successor: Option<usize>) {
        let Some((step, of_successor, back_ms)) = self.pending_faults.crash else { return };
        let who = if of_successor { successor } else { Some(who) };
        if let Some(who) = who.filter(|_| step == at) {
            self.pending_faults.crash = None;
            self.after(Duration::ZERO, SimEvent::Fault(Fault::Crash { who, back_ms }));
        }
    }
}
