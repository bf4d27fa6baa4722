//! What a driver runs: a campaign on one lock, or on several.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[cfg(feature = "_history")]
use crate::driver::record::{HistoryWriter, Output};
use crate::lock::{Need, Token};
use crate::protocol::{
    Action, BackoffPolicy, Elector, Event, Leader, MemberSettings, MultiElector, Settings, State,
};
use crate::time::clock::Instant;

pub(crate) struct Machine {
    campaigns: Campaigns,
    #[cfg(feature = "_history")]
    history: Option<Box<HistoryWriter>>,
}

#[allow(clippy::large_enum_variant, reason = "one lock is the rule, and costs no allocation")]
enum Campaigns {
    One(Elector),
    All(Box<MultiElector>),
}

impl Machine {
    /// `None` if no lock is required.
    pub fn new(mut parts: Vec<MemberSettings>) -> Option<Self> {
        let campaign =
            |part: MemberSettings| (Elector::new(part.settings, part.capabilities), part.need);
        let campaigns = match (parts.pop(), parts.is_empty()) {
            (Some(part), true) if part.need == Need::Required => Campaigns::One(campaign(part).0),
            (last, _) => {
                let campaigns = parts.into_iter().chain(last).map(campaign).collect();
                Campaigns::All(Box::new(MultiElector::new(campaigns)?))
            }
        };
        Some(Self {
            campaigns,
            #[cfg(feature = "_history")]
            history: None,
        })
    }

    /// Has everything that it takes in and returns written down.
    #[cfg(feature = "_history")]
    pub fn recorded(self, history: Option<HistoryWriter>) -> Self {
        Self { history: history.map(Box::new), ..self }
    }

    /// `lock`: whose hint, answer or capabilities it is.
    pub fn handle(&mut self, now: Instant, lock: usize, event: Event) {
        #[cfg(feature = "_history")]
        if let Some(mut history) = self.history.take() {
            self.handle_unrecorded(now, lock, event.clone());
            history.write_step(now, lock, event, self.output());
            self.history = Some(history);
            return;
        }
        self.handle_unrecorded(now, lock, event);
    }

    fn handle_unrecorded(&mut self, now: Instant, lock: usize, event: Event) {
        match &mut self.campaigns {
            Campaigns::One(campaign) => campaign.handle(now, event),
            Campaigns::All(joint) => joint.handle(now, lock, event),
        }
    }

    /// Takes what is to be returned. Nothing that is decided later depends on when that is done.
    #[cfg(feature = "_history")]
    pub fn output(&mut self) -> Output {
        let actions = std::iter::from_fn(|| self.poll_action()).collect();
        Output { actions, wake: self.next_wake(), state: self.state() }
    }

    /// The next thing to do, and on which lock.
    pub fn poll_action(&mut self) -> Option<(usize, Action)> {
        #[cfg(feature = "_history")]
        if let Some(history) = &mut self.history {
            return history.poll_action();
        }
        match &mut self.campaigns {
            Campaigns::One(campaign) => campaign.poll_action().map(|action| (0, action)),
            Campaigns::All(joint) => joint.poll_action(),
        }
    }

    pub fn next_wake(&self) -> Option<Instant> {
        match &self.campaigns {
            Campaigns::One(campaign) => campaign.next_wake(),
            Campaigns::All(joint) => joint.next_wake(),
        }
    }

    pub fn state(&self) -> State {
        match &self.campaigns {
            Campaigns::One(campaign) => campaign.state(),
            Campaigns::All(joint) => joint.state(),
        }
    }

    /// Who leads, as last seen on the lock whose word counts.
    pub fn leader(&self) -> Option<&Leader> {
        match &self.campaigns {
            Campaigns::One(campaign) => campaign.leader(),
            Campaigns::All(joint) => joint.first().leader(),
        }
    }

    /// Of the lock whose word counts.
    pub fn settings(&self) -> &Settings {
        match &self.campaigns {
            Campaigns::One(campaign) => campaign.settings(),
            Campaigns::All(joint) => joint.first().settings(),
        }
    }

    /// How long before its deadline a term is told to end, at the latest.
    pub fn least_grace(&self) -> Duration {
        let grace = |campaign: &Elector| campaign.settings().timing.grace();
        match &self.campaigns {
            Campaigns::One(campaign) => grace(campaign),
            Campaigns::All(joint) => joint.campaigns().map(grace).min().unwrap_or_default(),
        }
    }

    /// The tokens of a term on several locks, as they are now; `None` where there is one lock.
    pub fn tokens(&self) -> Option<Vec<Option<Token>>> {
        match &self.campaigns {
            Campaigns::One(_) => None,
            Campaigns::All(joint) => Some(joint.tokens()),
        }
    }
}

/// One policy for several campaigns, which may remember what it was asked.
pub(crate) fn shared_among(
    campaigns: usize,
    policy: Box<dyn BackoffPolicy>,
) -> Vec<Box<dyn BackoffPolicy>> {
    if campaigns == 1 {
        return vec![policy];
    }
    let policy = Arc::new(Mutex::new(policy));
    let share = || -> Box<dyn BackoffPolicy> {
        let policy = Arc::clone(&policy);
        Box::new(move |attempt, random| {
            policy.lock().unwrap_or_else(PoisonError::into_inner).delay(attempt, random)
        })
    };
    (0..campaigns).map(|_| share()).collect()
}
