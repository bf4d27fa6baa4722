//! Why a leader does not hand over.

use std::fmt;

use thiserror::Error;

use crate::lock::{CandidateInfo, Standing};

/// Why a leader does not hand over.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It has no term to hand over.
    #[error("this candidate does not lead")]
    NotLeading,
    /// Another call is under way.
    #[error("another handover is being prepared: try again")]
    Busy,
    /// No candidate is ready.
    #[error("no candidate that may lead next is ready: {0}")]
    NobodyReady(Found),
    /// The election is paused, so only an operator moves it.
    #[error("the election is paused")]
    Paused,
    /// No term is moved voluntarily before it has lasted a lease.
    #[error("the term is younger than a lease")]
    TooSoon,
    /// The asking member would lead as much as the leader does.
    #[error("the leader does not lead more than its share of the set")]
    Balanced,
    /// The election is no shard of a set, or of another one.
    #[error("the leader is not a member of this set")]
    OtherSet,
    /// The asking candidate is not to be preferred.
    #[error("the leader has priority {0}")]
    NotPreferred(u8),
}

/// Who answered, where none of them may lead next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    /// How many others answered that were asked for.
    pub others: u32,
    /// How many of them are sick.
    pub sick: u32,
    /// How many of them stand aside.
    pub aside: u32,
}

impl Found {
    /// Counts these answers.
    pub(super) fn among<'a>(answers: impl Iterator<Item = &'a CandidateInfo>) -> Self {
        answers.fold(Self::default(), |found, info| Self {
            others: found.others.saturating_add(1),
            sick: found.sick.saturating_add(u32::from(info.standing == Standing::Sick)),
            aside: found.aside.saturating_add(u32::from(info.standing == Standing::Aside)),
        })
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { others: 0, .. } => {
                f.write_str("none answered; see `incumbent election members`")
            }
            Self { others, sick, aside } => {
                write!(f, "{others} answered, {sick} of them sick and {aside} standing aside")
            }
        }
    }
}
