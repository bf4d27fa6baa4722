//! Moves: when a leader hands over, and to which candidate.
//!
//! Every move is an ordinary end of a term. What is decided in here is when it ends, and who sends
//! its create first.

use std::sync::Arc;
use std::time::Duration;

use super::move_types::{Chosen, MoveCall, MoveRole, MoveSettings, Reason};
use super::refusal::{Found, Refusal};
use crate::lock::{
    CandidateInfo, CandidateRequest, Nonce, Pause, Role, Standing, Successor, TakeRequest,
};
use crate::time::clock::Instant;

/// The longest time between two requests to be preferred.
const MAX_RETRY: Duration = Duration::from_secs(600);
/// The least time between two searches of a sick leader for a healthy successor.
const MIN_SEARCH: Duration = Duration::from_secs(1);
/// For so many leases a candidate lets another one's request take effect.
const OVERHEARD: u32 = 4;
/// For so many leases a leader that got the leadership back hands over to others first.
const SHUNNED: u32 = 3;

/// The moves of one candidate's leadership, and its requests to be preferred.
#[derive(Debug, Clone)]
pub struct Moves {
    settings: MoveSettings,
    standing: Standing,
    /// Since when it is ready.
    ready_since: Option<Instant>,
    pause: Pause,
    /// The reason of the roll call that is under way, and since when the term leads.
    calling: Option<(Reason, Instant)>,
    /// The term that is being handed over by an order, which nothing voluntary takes the place of.
    ordered: Option<Instant>,
    /// The candidate that it handed over to, until another one leads.
    chosen: Option<Nonce>,
    /// A successor that did not lead, which voluntary moves skip until then.
    shunned: Option<(Nonce, Instant)>,
    /// What it was when it asked the leader whose answer is awaited.
    asking: Option<MoveRole>,
    /// Whether another candidate was heard to ask, since this one was last due.
    overheard: bool,
    role: MoveRole,
    /// When to search for a successor, or to ask to be preferred.
    at: Option<Instant>,
    retry: Duration,
}

impl Moves {
    /// A candidate that begins at `now` with this standing.
    pub fn new(settings: MoveSettings, now: Instant, standing: Standing) -> Self {
        Self {
            settings,
            standing,
            ready_since: (standing == Standing::Ready).then_some(now),
            pause: Pause::default(),
            calling: None,
            ordered: None,
            chosen: None,
            shunned: None,
            asking: None,
            overheard: false,
            role: MoveRole::StandsBy(None),
            at: None,
            retry: settings.lease,
        }
    }

    /// How ready the candidate is.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// The last pause, unless there was none.
    pub fn pause(&self) -> Option<Pause> {
        Some(self.pause).filter(|pause| *pause != Pause::default())
    }

    /// Until when the election is paused, by the wall clock; `None` unless it is at `now`.
    pub fn paused_until(&self, now: Instant) -> Option<u64> {
        Some(self.pause.until_unix_ms).filter(|until| *until > self.unix_ms(now))
    }

    /// When to call [`advance`](Self::advance) at the latest.
    pub fn next_wake(&self) -> Option<Instant> {
        self.at.filter(|_| self.calling.is_none() && self.asking.is_none())
    }

    /// The standing changes.
    pub fn set_standing(&mut self, now: Instant, standing: Standing) {
        if standing == self.standing {
            return;
        }
        self.standing = standing;
        self.ready_since = (standing == Standing::Ready).then_some(now);
        self.plan(now);
    }

    /// Takes in what the candidate is.
    pub fn set_role(&mut self, now: Instant, role: MoveRole) {
        if role != self.role {
            self.role = role;
            self.overheard = false;
            match role {
                // The successor has not acquired the entry, nor has anybody else.
                MoveRole::Leads(_) => {
                    let until = now + self.settings.lease.saturating_mul(SHUNNED);
                    self.shunned = self.chosen.take().map(|to| (to, until)).or(self.shunned);
                }
                MoveRole::StandsBy(Some(_)) => self.chosen = None,
                MoveRole::StandsBy(None) => {}
            }
            self.plan(now);
        }
    }

    /// Pauses voluntary moves, or ends a pause by a time that is past.
    pub fn set_pause(&mut self, now: Instant, pause: Pause) {
        let pause = self.bounded(now, pause);
        // What an operator wants now counts, whatever the clocks of earlier ones showed.
        let set_unix_ms = pause.set_unix_ms.max(self.pause.set_unix_ms.saturating_add(1));
        self.pause = Pause { set_unix_ms, ..pause };
        self.plan(now);
    }

    /// What is due at `now`.
    pub fn advance(&mut self, now: Instant) -> Option<MoveCall> {
        if self.next_wake().is_none_or(|at| now < at) {
            return None;
        }
        self.at = None;
        match self.role {
            MoveRole::Leads(_) => self.call(Reason::Standing).ok().map(|()| MoveCall::Ready),
            MoveRole::StandsBy(_) if std::mem::take(&mut self.overheard) => {
                // The one that asked may have died, or is none of the candidates.
                self.plan_after(now, self.settings.lease.saturating_mul(OVERHEARD));
                None
            }
            MoveRole::StandsBy(_) => {
                self.asking = Some(self.role);
                let MoveSettings { nonce, priority, .. } = self.settings;
                Some(MoveCall::Leader(CandidateRequest::Prefer { by: nonce, priority }))
            }
        }
    }

    /// An operator or the leader's program wants the leadership to move. `Ok`: a roll call is to be
    /// made, as by [`MoveCall::Ready`].
    pub fn request(&mut self, to: Successor) -> Result<(), Refusal> {
        self.call(Reason::Requested(to))
    }

    /// Another candidate asks to be preferred. `Ok`: likewise.
    pub fn prefer(&mut self, now: Instant, priority: u8) -> Result<(), Refusal> {
        if priority <= self.settings.priority {
            return Err(Refusal::NotPreferred(self.settings.priority));
        }
        self.check_voluntary(now)?;
        self.call(Reason::Preferred)
    }

    /// A member of the set that leads less asks for this shard. `Ok`: likewise.
    pub fn take(&mut self, now: Instant, request: TakeRequest) -> Result<(), Refusal> {
        self.check_voluntary(now)?;
        self.call(Reason::Taken(request))
    }

    /// A candidate of this priority was heard to ask the leader: one of lower priority asks later,
    /// unless it sees another leader first.
    pub fn overheard(&mut self, priority: u8) {
        self.overheard |= priority >= self.settings.priority;
    }

    /// Who may answer to [`MoveCall::Ready`].
    pub fn wanted(&self) -> Successor {
        match &self.calling {
            Some((Reason::Requested(to), _)) => to.clone(),
            Some((Reason::Taken(request), _)) => Successor::Candidate(request.by),
            _ => Successor::Any,
        }
    }

    /// Takes the answers to [`MoveCall::Ready`]: to whom the leader hands over.
    pub fn on_roll(&mut self, now: Instant, answers: &[CandidateInfo]) -> Result<Chosen, Refusal> {
        self.learn_pause(now, answers);
        let Some((reason, since)) = self.calling.take() else { return Err(Refusal::NotLeading) };
        if self.role != MoveRole::Leads(since) {
            return Err(Refusal::NotLeading); // another term, or none
        }
        let chosen = self.choose(now, &reason, answers);
        self.chosen = chosen.as_ref().map(|chosen| chosen.nonce).ok().or(self.chosen);
        if chosen.is_ok() && !reason.is_voluntary() {
            self.ordered = Some(since);
            self.plan(now);
        }
        if chosen.is_err() && reason == Reason::Standing {
            self.plan_after(now, self.settings.lease.max(MIN_SEARCH));
        }
        chosen
    }

    /// The roll call of [`MoveCall::Ready`] failed.
    pub fn on_roll_failed(&mut self, now: Instant) {
        if self.calling.take().is_some_and(|(reason, _)| reason == Reason::Standing) {
            self.plan_after(now, self.settings.lease.max(MIN_SEARCH));
        }
    }

    /// Takes the answers to [`MoveCall::Leader`].
    pub fn on_answer(&mut self, now: Instant, answers: &[CandidateInfo]) {
        self.learn_pause(now, answers);
        if self.asking.take() != Some(self.role) {
            return; // of another leader than it sees now
        }
        let leader = answers.iter().find(|info| info.handover.is_some());
        let settled = leader.is_some_and(|leader| leader.priority >= self.settings.priority);
        self.at = None;
        if settled {
            return; // until another one leads
        }
        self.retry = match leader {
            Some(_) => self.settings.lease,
            None => self.retry.saturating_mul(2).min(MAX_RETRY), // it understands no requests, or is gone
        };
        self.plan_after(now, self.retry);
    }

    fn call(&mut self, reason: Reason) -> Result<(), Refusal> {
        let MoveRole::Leads(since) = self.role else { return Err(Refusal::NotLeading) };
        if self.calling.is_some() {
            return Err(Refusal::Busy);
        }
        self.calling = Some((reason, since));
        self.asking = None; // the roll call takes the place of a question to an earlier leader
        Ok(())
    }

    fn check_voluntary(&self, now: Instant) -> Result<(), Refusal> {
        match self.role {
            MoveRole::Leads(_) if self.paused_until(now).is_some() => Err(Refusal::Paused),
            MoveRole::Leads(since) if self.ordered == Some(since) => Err(Refusal::Busy),
            MoveRole::Leads(since) if now < since + self.settings.lease => Err(Refusal::TooSoon),
            MoveRole::Leads(_) => Ok(()),
            MoveRole::StandsBy(_) => Err(Refusal::NotLeading),
        }
    }

    fn choose(
        &self,
        now: Instant,
        reason: &Reason,
        answers: &[CandidateInfo],
    ) -> Result<Chosen, Refusal> {
        if reason.is_voluntary() {
            self.check_voluntary(now)?; // the answers may state a pause
        }
        let wanted = |info: &&CandidateInfo| {
            let included = match reason {
                Reason::Requested(to) => to.includes(info),
                Reason::Standing => true,
                Reason::Preferred => info.priority > self.settings.priority,
                Reason::Taken(request) => info.nonce == request.by,
            };
            included && info.nonce != self.settings.nonce && info.role == Role::Standby
        };
        let shunned = self.shunned.filter(|(_, until)| reason.is_voluntary() && now < *until);
        let is_shunned = |info: &&CandidateInfo| shunned.is_some_and(|(to, _)| to == info.nonce);
        let may_lead = |info: &&CandidateInfo| match (reason, info.standing) {
            (Reason::Standing, standing) => standing < self.standing,
            // One that stands aside leads next only where it was named.
            (Reason::Requested(Successor::Identity(_)), standing) => standing != Standing::Sick,
            (_, standing) => standing == Standing::Ready,
        };
        let best = answers
            .iter()
            .filter(wanted)
            .filter(|info| may_lead(info) && !is_shunned(info))
            .max_by_key(|info| (info.standing == Standing::Ready, info.priority, info.nonce.0));
        match best {
            Some(info) => Ok(Chosen {
                nonce: info.nonce,
                identity: Arc::clone(&info.identity),
                has_sampled_hints: info.has_sampled_hints,
            }),
            None => Err(Refusal::NobodyReady(Found::among(answers.iter().filter(wanted)))),
        }
    }

    /// Each candidate remembers a pause, for those that began later.
    fn learn_pause(&mut self, now: Instant, answers: &[CandidateInfo]) {
        let latest = answers.iter().filter_map(|info| info.pause).max();
        let latest = latest.map(|pause| self.bounded(now, pause));
        self.pause = latest.unwrap_or_default().max(self.pause);
    }

    fn bounded(&self, now: Instant, pause: Pause) -> Pause {
        let bound = self.unix_ms(now + Pause::MAX);
        Pause {
            set_unix_ms: pause.set_unix_ms.min(bound),
            until_unix_ms: pause.until_unix_ms.min(bound),
        }
    }

    /// When something voluntary is due, as of what is known now.
    fn plan(&mut self, now: Instant) {
        self.retry = self.settings.lease;
        self.plan_after(now, Duration::ZERO);
    }

    /// The same, no sooner than after `delay`.
    fn plan_after(&mut self, now: Instant, delay: Duration) {
        let lease = self.settings.lease;
        let due = match (self.role, self.settings.prefer_after, self.ready_since) {
            (MoveRole::Leads(since), ..) if self.ordered == Some(since) => None,
            // The members of a set give away what they lead, one after the other.
            (MoveRole::Leads(_), ..) if self.settings.in_set => None,
            (MoveRole::Leads(since), ..) if self.standing != Standing::Ready => Some(since + lease),
            // Of a term without a token the holder understands no requests.
            (MoveRole::StandsBy(Some(_)), Some(after), Some(ready_since)) => {
                Some((ready_since + after).max(now + self.own_delay()))
            }
            _ => None,
        };
        let pause_ends = self
            .paused_until(now)
            .map(|until| now + Duration::from_millis(until.saturating_sub(self.unix_ms(now))));
        self.at = due.map(|at| at.max(now + delay).max(pause_ends.unwrap_or(at)));
    }

    /// Spreads the requests of many candidates, so that most hear one of higher priority first.
    fn own_delay(&self) -> Duration {
        let below = f64::from(u8::MAX - self.settings.priority);
        let own = f64::from(u8::try_from(self.settings.nonce.0 % 256).unwrap_or(0)) / 256.0;
        self.settings.lease / 4 + (self.settings.lease / 2).mul_f64((below + own) / 256.0)
    }

    fn unix_ms(&self, now: Instant) -> u64 {
        let since_origin = u64::try_from(now.since_origin().as_millis()).unwrap_or(u64::MAX);
        self.settings.origin_unix_ms.saturating_add(since_origin)
    }
}

#[cfg(test)]
#[path = "moves_tests.rs"]
mod tests;
