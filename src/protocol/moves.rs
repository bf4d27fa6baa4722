//! Moves: when a leader hands over, and to which candidate.
//!
//! Every move is an ordinary end of a term. What is decided in here is when it ends, and who sends
//! its create first.

use std::sync::Arc;
use std::time::Duration;

use super::acquire;
use super::move_types::{Chosen, MoveCall, MoveRole, MoveSettings, Reason};
use super::refusal::{Found, Refusal};
use crate::lock::{CandidateInfo, CandidateRequest, Role, Standing, Successor, TakeRequest};
use crate::time::clock::Instant;

/// The longest time between two searches for a successor, or two requests to be preferred that
/// nobody answers.
const MAX_RETRY: Duration = Duration::from_secs(600);
/// The shortest such time.
const MIN_RETRY: Duration = Duration::from_secs(1);

/// The moves of one candidate's leadership, and its requests to be preferred.
#[derive(Debug, Clone)]
pub struct Moves {
    settings: MoveSettings,
    standing: Standing,
    /// Since when it is ready.
    ready_since: Option<Instant>,
    /// When the pause of the election ends.
    pause_ends: Option<Instant>,
    /// The reason of the roll call that is under way, and since when the term leads.
    calling: Option<(Reason, Instant)>,
    /// The term that is being handed over by an order, which nothing voluntary takes the place of.
    ordered: Option<Instant>,
    /// What it was when it asked the leader whose answer is awaited.
    asking: Option<MoveRole>,
    /// Of a standby: the leader has answered it. Of a leader: one of higher priority has asked.
    asked: bool,
    role: MoveRole,
    role_since: Instant,
    /// When to search for a successor, or to ask to be preferred.
    at: Option<Instant>,
    retry: Duration,
    random: fastrand::Rng,
}

impl Moves {
    /// A candidate that begins at `now` with this standing.
    pub fn new(settings: MoveSettings, now: Instant, standing: Standing) -> Self {
        Self {
            settings,
            standing,
            ready_since: (standing == Standing::Ready).then_some(now),
            pause_ends: None,
            calling: None,
            ordered: None,
            asking: None,
            asked: false,
            role: MoveRole::StandsBy(None),
            role_since: now,
            at: None,
            retry: Duration::ZERO,
            random: fastrand::Rng::with_seed(settings.nonce.0),
        }
    }

    /// How ready the candidate is.
    pub fn standing(&self) -> Standing {
        self.standing
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

    /// Takes in what the candidate is, and when the pause of the election ends.
    pub fn set_role(&mut self, now: Instant, role: MoveRole, pause_ends: Option<Instant>) {
        if (role, pause_ends) == (self.role, self.pause_ends) {
            return;
        }
        if role != self.role {
            (self.role, self.role_since, self.asked) = (role, now, false);
        }
        self.pause_ends = pause_ends;
        self.plan(now);
    }

    /// What is due at `now`.
    pub fn advance(&mut self, now: Instant) -> Option<MoveCall> {
        if self.next_wake().is_none_or(|at| now < at) {
            return None;
        }
        self.at = None;
        match self.role {
            MoveRole::Leads(_) => {
                let is_ready = self.standing == Standing::Ready;
                let reason = if is_ready { Reason::Preferred } else { Reason::Standing };
                self.call(reason).ok().map(|()| MoveCall::Ready)
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

    /// Another candidate asks to be preferred. `Ok`: a roll call is to be made. It asks once: a
    /// leader that cannot follow at once searches by itself.
    pub fn prefer(&mut self, now: Instant, priority: u8) -> Result<(), Refusal> {
        if priority <= self.settings.priority {
            return Err(Refusal::NotPreferred(self.settings.priority));
        }
        if !std::mem::replace(&mut self.asked, true) {
            self.plan(now);
        }
        self.check_voluntary(now)?;
        self.call(Reason::Preferred)
    }

    /// A member of the set that leads less asks for this shard. `Ok`: likewise.
    pub fn take(&mut self, now: Instant, request: TakeRequest) -> Result<(), Refusal> {
        self.check_voluntary(now)?;
        self.call(Reason::Taken(request))
    }

    /// The same where the request itself shows that the member is ready: no roll call is made.
    pub fn take_at_once(&mut self, now: Instant, request: &TakeRequest) -> Result<Chosen, Refusal> {
        self.check_voluntary(now)?;
        if self.calling.is_some() {
            return Err(Refusal::Busy);
        }
        let identity = Arc::clone(&request.identity);
        Ok(Chosen { nonce: request.by, identity })
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
        let Some((reason, since)) = self.calling.take() else { return Err(Refusal::NotLeading) };
        if self.role != MoveRole::Leads(since) {
            return Err(Refusal::NotLeading); // another term, or none
        }
        let chosen = self.choose(now, &reason, answers);
        match (&chosen, reason) {
            (Ok(_), Reason::Requested(_)) => {
                self.ordered = Some(since);
                self.plan(now);
            }
            (Ok(_), _) => self.at = None, // the term ends, though its work may drain
            (Err(_), reason) => self.search_again(now, &reason),
        }
        chosen
    }

    /// The roll call of [`MoveCall::Ready`] failed.
    pub fn on_roll_failed(&mut self, now: Instant) {
        if let Some((reason, _)) = self.calling.take() {
            self.search_again(now, &reason);
        }
    }

    /// A search by the leader itself has found nobody: the next ones are ever further apart, as
    /// each calls the whole fleet.
    fn search_again(&mut self, now: Instant, reason: &Reason) {
        if matches!(reason, Reason::Standing | Reason::Preferred) {
            let again = now + self.next_retry();
            self.at = self.due(now).map(|due| due.max(again));
        }
    }

    /// Takes the answers to [`MoveCall::Leader`].
    pub fn on_answer(&mut self, now: Instant, answers: &[CandidateInfo]) {
        if self.asking.take() != Some(self.role) {
            return; // of another leader than it sees now
        }
        // What it refuses, it refuses to all that would ask: it has been told once.
        self.asked = answers.iter().any(|info| info.handover.is_some());
        // Else it understands no requests, or is gone.
        let again = now + self.next_retry().mul_f64(0.5 + self.random.f64());
        self.at = self.due(now).map(|due| due.max(again));
    }

    /// The time until the next try. Each is twice as long as the one before.
    fn next_retry(&mut self) -> Duration {
        let retry = self.retry.max(self.settings.lease).max(MIN_RETRY);
        self.retry = retry.saturating_mul(2).min(MAX_RETRY);
        retry
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
            MoveRole::Leads(_) if self.pause_ends.is_some_and(|ends| now < ends) => {
                Err(Refusal::Paused)
            }
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
            self.check_voluntary(now)?; // a pause may have begun
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
        let may_lead = |info: &&CandidateInfo| match (reason, info.standing) {
            (Reason::Standing, standing) => standing < self.standing,
            // One that stands aside leads next only where it was named.
            (Reason::Requested(Successor::Identity(_)), standing) => standing != Standing::Sick,
            (_, standing) => standing == Standing::Ready,
        };
        let best = answers
            .iter()
            .filter(wanted)
            .filter(may_lead)
            .max_by_key(|info| (info.standing == Standing::Ready, info.priority, info.nonce.0));
        match best {
            Some(info) => Ok(Chosen { nonce: info.nonce, identity: Arc::clone(&info.identity) }),
            None => Err(Refusal::NobodyReady(Found::among(answers.iter().filter(wanted)))),
        }
    }

    /// When something voluntary is due, as of what is known now.
    fn plan(&mut self, now: Instant) {
        self.retry = Duration::ZERO;
        self.at = self.due(now);
    }

    fn due(&mut self, now: Instant) -> Option<Instant> {
        let lease = self.settings.lease;
        let pause_ends = self.pause_ends.unwrap_or(now);
        match self.role {
            MoveRole::Leads(since) if self.ordered == Some(since) => None,
            // The members of a set give away what they lead, one after the other.
            MoveRole::Leads(_) if self.settings.in_set => None,
            MoveRole::Leads(since) if self.standing != Standing::Ready || self.asked => {
                Some((since + lease).max(pause_ends))
            }
            MoveRole::Leads(_) => None,
            MoveRole::StandsBy(leader) => {
                // One that states no priority cannot follow, or understands no requests.
                let is_lower = leader?.priority? < self.settings.priority;
                let ready_for = self.ready_since? + self.settings.prefer_after?;
                let from = (self.role_since + lease).max(ready_for);
                let from = from.max(pause_ends).max(now);
                // Thousands may be of higher priority: most draw a late moment, and see the leader
                // move upon the request of one that drew an early one.
                let spread = acquire::truncated_exponential(lease, self.random.f64());
                (is_lower && !self.asked).then_some(from + spread)
            }
        }
    }
}

#[cfg(test)]
#[path = "moves_tests.rs"]
mod tests;
