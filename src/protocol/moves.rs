//! Moves: when a leader hands over, and to which candidate.
//!
//! Every move is an ordinary end of a term. What is decided in here is when it ends, and who sends
//! its create first.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use super::acquire;
use super::types::{Leader, Settings};
use crate::lock::{
    CandidateInfo, CandidateRequest, Nonce, Readiness, Role, Successor, TakeRequest, Token,
};
use crate::time::clock::Instant;

/// The longest time between two searches for a successor, or two requests to be preferred that
/// nobody answers.
const MAX_RETRY: Duration = Duration::from_secs(600);
/// The shortest such time.
const MIN_RETRY: Duration = Duration::from_secs(1);

/// The moves of one candidate's leadership, and its requests to be preferred.
#[derive(Debug, Clone)]
pub struct Moves {
    nonce: Nonce,
    priority: u8,
    /// No term that lasted shorter is moved voluntarily.
    lease: Duration,
    /// For how long it is ready before it asks a leader of lower priority to hand over; `None`: it
    /// never asks.
    prefer_after: Option<Duration>,
    /// Whether the election is a shard of a set, whose members decide when it moves.
    in_set: bool,
    readiness: Readiness,
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
    /// A candidate that begins at `now`. `prefer_after`: for how long it is ready before it asks a
    /// leader of lower priority to hand over, if it ever does; `in_set`: whether the election is a
    /// shard of a set, whose members decide when it moves.
    pub fn new(
        settings: &Settings,
        prefer_after: Option<Duration>,
        in_set: bool,
        now: Instant,
    ) -> Self {
        let &Settings { nonce, priority, readiness, .. } = settings;
        Self {
            nonce,
            priority,
            lease: settings.timing.lease(),
            prefer_after,
            in_set,
            readiness,
            ready_since: (readiness == Readiness::Ready).then_some(now),
            pause_ends: None,
            calling: None,
            ordered: None,
            asking: None,
            asked: false,
            role: MoveRole::StandsBy { token: None, priority: None },
            role_since: now,
            at: None,
            retry: Duration::ZERO,
            random: fastrand::Rng::with_seed(nonce.0),
        }
    }

    /// How ready the candidate is.
    pub fn readiness(&self) -> Readiness {
        self.readiness
    }

    /// When to call [`advance`](Self::advance) at the latest.
    pub fn next_wake(&self) -> Option<Instant> {
        self.at.filter(|_| self.calling.is_none() && self.asking.is_none())
    }

    /// The readiness changes.
    pub fn set_readiness(&mut self, now: Instant, readiness: Readiness) {
        if readiness == self.readiness {
            return;
        }
        self.readiness = readiness;
        self.ready_since = (readiness == Readiness::Ready).then_some(now);
        self.plan(now);
    }

    /// The candidate leads since `since`, and the pause of the election ends at `pause_ends`.
    pub fn leads(&mut self, now: Instant, since: Instant, pause_ends: Option<Instant>) {
        self.set_role(now, MoveRole::Leads(since), pause_ends);
    }

    /// The candidate stands by, and sees this leader.
    pub fn stands_by(
        &mut self,
        now: Instant,
        leader: Option<&Leader>,
        pause_ends: Option<Instant>,
    ) {
        let leader = leader.filter(|leader| !leader.is_me);
        let token = leader.and_then(|leader| leader.token);
        let priority = leader.and_then(|leader| leader.priority);
        self.set_role(now, MoveRole::StandsBy { token, priority }, pause_ends);
    }

    fn set_role(&mut self, now: Instant, role: MoveRole, pause_ends: Option<Instant>) {
        if (role, pause_ends) == (self.role, self.pause_ends) {
            return;
        }
        if role != self.role {
            (self.role, self.role_since, self.asked) = (role, now, false);
        }
        self.pause_ends = pause_ends;
        self.plan(now);
    }

    /// The roll call that is due at `now`: the leader asks who is ready, or a standby asks the
    /// leader to hand over. Pass the answers to [`on_roll`](Self::on_roll), or those to a
    /// [`CandidateRequest::Prefer`] to [`on_answer`](Self::on_answer).
    pub fn advance(&mut self, now: Instant) -> Option<CandidateRequest> {
        if self.next_wake().is_none_or(|at| now < at) {
            return None;
        }
        self.at = None;
        match self.role {
            MoveRole::Leads(_) => {
                let is_ready = self.readiness == Readiness::Ready;
                let reason = if is_ready { Reason::Preferred } else { Reason::NotReady };
                self.call(reason).ok()
            }
            MoveRole::StandsBy { .. } => {
                self.asking = Some(self.role);
                Some(CandidateRequest::Prefer { by: self.nonce, priority: self.priority })
            }
        }
    }

    /// An operator or the leader's program wants the leadership to move. Returns the roll call that
    /// asks who is ready.
    pub fn request(&mut self, to: Successor) -> Result<CandidateRequest, Refusal> {
        self.call(Reason::Requested(to))
    }

    /// Another candidate asks to be preferred. Returns the roll call that asks who is ready. It
    /// asks once: a leader that cannot follow at once searches by itself.
    pub fn prefer(&mut self, now: Instant, priority: u8) -> Result<CandidateRequest, Refusal> {
        if priority <= self.priority {
            return Err(Refusal::NotPreferred(self.priority));
        }
        if !std::mem::replace(&mut self.asked, true) {
            self.plan(now);
        }
        self.check_voluntary(now)?;
        self.call(Reason::Preferred)
    }

    /// A member of the set that leads less asks for this shard. Returns the roll call that asks who
    /// is ready.
    pub fn take(
        &mut self,
        now: Instant,
        request: TakeRequest,
    ) -> Result<CandidateRequest, Refusal> {
        self.check_voluntary(now)?;
        self.call(Reason::Taken(request))
    }

    /// The member of the set that leads this shard is not ready, and gives it to the member of this
    /// identity. Returns the roll call that asks whether that one is ready.
    pub fn give(&mut self, now: Instant, to: Arc<str>) -> Result<CandidateRequest, Refusal> {
        self.check_voluntary(now)?;
        self.call(Reason::Given(to))
    }

    /// Takes the answers of those that are ready: to whom the leader hands over.
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

    /// The roll call that asks who is ready failed.
    pub fn on_roll_failed(&mut self, now: Instant) {
        if let Some((reason, _)) = self.calling.take() {
            self.search_again(now, &reason);
        }
    }

    /// A search by the leader itself has found nobody: the next ones are ever further apart, as
    /// each calls the whole fleet.
    fn search_again(&mut self, now: Instant, reason: &Reason) {
        if matches!(reason, Reason::NotReady | Reason::Preferred) {
            let again = now + self.next_retry();
            self.at = self.due(now).map(|due| due.max(again));
        }
    }

    /// Takes the answers to a [`CandidateRequest::Prefer`].
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
        let retry = self.retry.max(self.lease).max(MIN_RETRY);
        self.retry = retry.saturating_mul(2).min(MAX_RETRY);
        retry
    }

    fn call(&mut self, reason: Reason) -> Result<CandidateRequest, Refusal> {
        let MoveRole::Leads(since) = self.role else { return Err(Refusal::NotLeading) };
        if self.calling.is_some() {
            return Err(Refusal::Busy);
        }
        let wanted = match &reason {
            Reason::Requested(to) => to.clone(),
            Reason::Taken(request) => Successor::Candidate(request.by),
            Reason::Given(to) => Successor::Identity(Arc::clone(to)),
            Reason::NotReady | Reason::Preferred => Successor::Any,
        };
        self.calling = Some((reason, since));
        self.asking = None; // the roll call takes the place of a question to an earlier leader
        Ok(CandidateRequest::WhoCanSucceed(wanted))
    }

    fn check_voluntary(&self, now: Instant) -> Result<(), Refusal> {
        match self.role {
            MoveRole::Leads(_) if self.pause_ends.is_some_and(|ends| now < ends) => {
                Err(Refusal::Paused)
            }
            MoveRole::Leads(since) if self.ordered == Some(since) => Err(Refusal::Busy),
            MoveRole::Leads(since) if now < since + self.lease => Err(Refusal::TooSoon),
            MoveRole::Leads(_) => Ok(()),
            MoveRole::StandsBy { .. } => Err(Refusal::NotLeading),
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
                Reason::NotReady => true,
                Reason::Preferred => info.priority > self.priority,
                Reason::Taken(request) => info.nonce == request.by,
                Reason::Given(to) => info.identity == *to,
            };
            included && info.nonce != self.nonce && info.role == Role::Standby
        };
        let may_lead = |info: &&CandidateInfo| match (reason, info.readiness) {
            (Reason::NotReady, readiness) => readiness < self.readiness,
            // One that stands aside leads next only where it was named.
            (Reason::Requested(Successor::Identity(_)), readiness) => {
                readiness != Readiness::Unhealthy
            }
            (_, readiness) => readiness == Readiness::Ready,
        };
        let best =
            answers.iter().filter(wanted).filter(may_lead).max_by_key(|info| {
                (info.readiness == Readiness::Ready, info.priority, info.nonce.0)
            });
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
        let lease = self.lease;
        let pause_ends = self.pause_ends.unwrap_or(now);
        match self.role {
            MoveRole::Leads(since) if self.ordered == Some(since) => None,
            // The members of a set give away what they lead, one after the other.
            MoveRole::Leads(_) if self.in_set => None,
            MoveRole::Leads(since) if self.readiness != Readiness::Ready || self.asked => {
                Some((since + lease).max(pause_ends))
            }
            MoveRole::Leads(_) => None,
            MoveRole::StandsBy { priority, .. } => {
                // A leader that states no priority cannot follow, or understands no requests.
                let is_lower = priority? < self.priority;
                let ready_for = self.ready_since? + self.prefer_after?;
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

/// What a candidate is in the election as it decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MoveRole {
    /// It leads since this instant.
    Leads(Instant),
    /// It stands by beside the leader of this term and priority, as far as its entry states them.
    StandsBy { token: Option<Token>, priority: Option<u8> },
}

/// The candidate that a leader hands over to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Distinguishes it from every other.
    pub nonce: Nonce,
    /// What people read.
    pub identity: Arc<str>,
}

/// Why the leadership is to move.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Reason {
    /// An operator, or the leader's own program.
    Requested(Successor),
    /// The leader is not ready.
    NotReady,
    /// A candidate of higher priority.
    Preferred,
    /// A member of the set that leads less.
    Taken(TakeRequest),
    /// Its own member of the set gives it to the member of this identity.
    Given(Arc<str>),
}

impl Reason {
    /// Whether it was not ordered.
    fn is_voluntary(&self) -> bool {
        !matches!(self, Self::Requested(_))
    }
}

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
    fn among<'a>(answers: impl Iterator<Item = &'a CandidateInfo>) -> Self {
        answers.fold(Self::default(), |found, info| Self {
            others: found.others.saturating_add(1),
            sick: found.sick.saturating_add(u32::from(info.readiness == Readiness::Unhealthy)),
            aside: found.aside.saturating_add(u32::from(info.readiness == Readiness::Cordoned)),
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

#[cfg(test)]
#[path = "moves_tests.rs"]
mod tests;
