//! What a driver runs: a campaign on one lock, or on several.

use std::time::Duration;

use crate::clock::Instant;
use crate::lock::Token;
use crate::protocol::{Action, Campaign, Event, Joint, Leader, Settings, State};

#[allow(clippy::large_enum_variant, reason = "one lock is the rule, and costs no allocation")]
pub(crate) enum Machine {
    One(Campaign),
    All(Box<Joint>),
}

impl Machine {
    /// `lock`: whose hint, answer or capabilities it is.
    pub fn handle(&mut self, now: Instant, lock: usize, event: Event) {
        match self {
            Self::One(campaign) => campaign.handle(now, event),
            Self::All(joint) => joint.handle(now, lock, event),
        }
    }

    /// The next thing to do, and on which lock.
    pub fn poll_action(&mut self) -> Option<(usize, Action)> {
        match self {
            Self::One(campaign) => campaign.poll_action().map(|action| (0, action)),
            Self::All(joint) => joint.poll_action(),
        }
    }

    pub fn next_wake(&self) -> Option<Instant> {
        match self {
            Self::One(campaign) => campaign.next_wake(),
            Self::All(joint) => joint.next_wake(),
        }
    }

    pub fn state(&self) -> State {
        match self {
            Self::One(campaign) => campaign.state(),
            Self::All(joint) => joint.state(),
        }
    }

    /// Who leads, as last seen on the lock whose word counts.
    pub fn leader(&self) -> Option<&Leader> {
        match self {
            Self::One(campaign) => campaign.leader(),
            Self::All(joint) => joint.first().leader(),
        }
    }

    /// Of the lock whose word counts.
    pub fn settings(&self) -> &Settings {
        match self {
            Self::One(campaign) => campaign.settings(),
            Self::All(joint) => joint.first().settings(),
        }
    }

    /// How long before its deadline a term is told to end, at the latest.
    pub fn least_grace(&self) -> Duration {
        let grace = |campaign: &Campaign| campaign.settings().timing.grace();
        match self {
            Self::One(campaign) => grace(campaign),
            Self::All(joint) => joint.campaigns().map(grace).min().unwrap_or_default(),
        }
    }

    /// The tokens of a term on several locks, as they are now; `None` where there is one lock.
    pub fn tokens(&self) -> Option<Vec<Option<Token>>> {
        match self {
            Self::One(_) => None,
            Self::All(joint) => Some(joint.tokens()),
        }
    }
}
