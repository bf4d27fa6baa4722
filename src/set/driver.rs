//! Runs a member of a set: one task that watches all its elections.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, FuturesUnordered, SelectAll, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::{Instrument, debug, info, info_span, warn};

use super::change::ShardChange;
use super::shared::{SetInput, SetShared};
use crate::driver::health::{HealthCheck, record};
use crate::driver::move_state::readiness;
use crate::driver::set_part::SharedLedger;
use crate::election::hand_over::HandOverError;
use crate::election::handle::Election;
use crate::election::inbox::Input;
use crate::lock::{
    CandidateInfo, CandidateRequest, HandoverAnswer, LockError, Readiness, RollCall, TakeRequest,
};
use crate::protocol::set::{Holder, SetAction, SetMember, TakeOutcome};
use crate::protocol::{Health, Rank, Refusal, State};
use crate::telemetry::SetTelemetry;
use crate::time::clock::{Clock, Instant, sleep_until_about};

/// How long answers to a roll call are awaited.
const ROLL_WITHIN: Duration = Duration::from_millis(500);

/// What a member is made of.
pub(super) struct SetParts {
    pub member: SetMember,
    pub elections: Arc<[Election]>,
    pub shared: Arc<SetShared>,
    pub share: SharedLedger,
    pub clock: Arc<dyn Clock>,
    pub check: Option<HealthCheck>,
    pub aside: bool,
}

/// Spawns the member. Its task ends after [`SetInput::Stop`].
pub(super) fn spawn(runtime: &Handle, parts: SetParts, inputs: mpsc::UnboundedReceiver<SetInput>) {
    let SetParts { member, elections, shared, share, clock, check, aside } = parts;
    let span = info_span!("set", name = %shared.name, identity = %shared.identity);
    let health = check.as_ref().map(HealthCheck::unchecked);
    let checks = check.map(|check| {
        let sender = shared.inputs.clone();
        let report = move |result| drop(sender.send(SetInput::Checked(result)));
        runtime.spawn(check.run(Arc::clone(&clock), report).instrument(span.clone()))
    });
    let updates = updates(&elections);
    let calls = FuturesUnordered::new();
    let driver = Driver {
        telemetry: SetTelemetry::new(&shared.name, &shared.identity),
        member,
        elections,
        shared,
        share,
        clock,
        health,
        aside,
        refused: BTreeSet::new(),
        checks,
        updates,
        calls,
    };
    runtime.spawn(driver.run(inputs).instrument(span));
}

/// The outcome of a call.
enum Outcome {
    Roll(Result<Vec<CandidateInfo>, LockError>),
    Take(u32, TakeOutcome),
    GiveAway(u32, TakeOutcome),
}

struct Driver {
    member: SetMember,
    elections: Arc<[Election]>,
    shared: Arc<SetShared>,
    share: SharedLedger,
    clock: Arc<dyn Clock>,
    health: Option<Health>,
    aside: bool,
    /// The shards whose elections refuse its writes.
    refused: BTreeSet<u32>,
    /// The task that runs the check.
    checks: Option<JoinHandle<()>>,
    /// The shards whose status has changed.
    updates: SelectAll<BoxStream<'static, u32>>,
    calls: FuturesUnordered<BoxFuture<'static, Outcome>>,
    telemetry: SetTelemetry,
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(checks) = &self.checks {
            checks.abort();
        }
        for election in &*self.elections {
            election.shared().inbox.send(Input::Stop);
        }
        self.telemetry.finished(); // before a successor of the same name starts
        self.shared.finished.send_replace(true);
    }
}

impl Driver {
    async fn run(mut self, mut inputs: mpsc::UnboundedReceiver<SetInput>) {
        let mut sleep = sleep_until_about(Arc::clone(&self.clock), self.clock.now());
        loop {
            // Elections often change many at a time: what is decided takes all of it in.
            while let Some(Some(shard)) = self.updates.next().now_or_never() {
                self.update(shard);
            }
            let now = self.clock.now();
            self.member.advance(now);
            while let Some(action) = self.member.poll_action() {
                self.perform(action);
            }
            self.telemetry.update(self.share.load(), self.member.known_members());
            let wake = self.member.next_wake(now);
            if let Some(wake) = wake {
                sleep.reset(wake);
            }
            tokio::select! {
                input = inputs.recv() => match input {
                    Some(SetInput::Checked(result)) => self.checked(result),
                    Some(SetInput::StandAside(aside)) => {
                        self.aside = aside;
                        self.update_readiness();
                    }
                    Some(SetInput::Stop) | None => break,
                },
                Some(shard) = self.updates.next() => self.update(shard),
                Some(outcome) = self.calls.next() => self.on_outcome(outcome),
                () = &mut sleep, if wake.is_some() => {}
            }
        }
        // One that drains takes nothing.
        self.aside = true;
        self.update_readiness();
        let elections = Arc::clone(&self.elections);
        futures_util::future::join_all(elections.iter().map(Election::stop)).await;
    }

    fn update(&mut self, shard: u32) {
        let Some(election) = self.elections.get(shard as usize) else { return };
        let (holder, is_refused) = {
            let status = election.shared().status.borrow();
            let holder = match &status.leader {
                Some(leader) if leader.is_me => Holder::Me,
                Some(leader) => Holder::Other(Arc::clone(&leader.identity)),
                None if status.state == State::Unknown => Holder::Unknown,
                None => Holder::Nobody,
            };
            (holder, status.is_refused)
        };
        self.member.set_holder(self.clock.now(), shard, holder);
        let changed = match is_refused {
            true => self.refused.insert(shard),
            false => self.refused.remove(&shard),
        };
        if changed {
            self.update_readiness();
        }
    }

    fn perform(&mut self, action: SetAction) {
        let election = |shard: u32| self.elections.get(shard as usize);
        match action {
            SetAction::Rank { shard, rank } => self.set_rank(shard, rank),
            SetAction::CallRoll => {
                // Every member stands in each election: one of them will do.
                let Some(election) = election(0).map(|e| Arc::clone(e.shared())) else { return };
                self.calls.push(Box::pin(async move {
                    let request = CandidateRequest::Identify;
                    Outcome::Roll(
                        election.lock.call_roll(&election.name, request, ROLL_WITHIN).await,
                    )
                }));
            }
            SetAction::Take { shard, load } => {
                let Some(election) = election(shard).map(|e| Arc::clone(e.shared())) else {
                    return;
                };
                debug!(shard, load = load.load, "asking for a shard");
                let identity = Arc::clone(&election.identity);
                let request =
                    CandidateRequest::Take(TakeRequest { by: election.nonce(), identity, load });
                self.calls.push(Box::pin(async move {
                    let within = RollCall::HANDOVER_WITHIN;
                    let answers = election.lock.call_roll(&election.name, request, within).await;
                    Outcome::Take(shard, outcome_of(shard, answers))
                }));
            }
            SetAction::GiveAway { shard, to } => {
                let Some(election) = election(shard).cloned() else { return };
                info!(shard, %to, "giving away a shard");
                self.calls.push(Box::pin(async move {
                    let (reply, outcome) = oneshot::channel();
                    election.shared().inbox.send(Input::Give { to, reply });
                    let outcome = outcome.await.unwrap_or(Err(HandOverError::Stopped));
                    if let Err(error) = &outcome {
                        debug!(shard, %error, "a shard stays");
                    }
                    let outcome = match outcome {
                        Ok(_) => TakeOutcome::Accepted,
                        Err(HandOverError::Refused(Refusal::NobodyReady(_))) => {
                            TakeOutcome::NoAnswer
                        }
                        Err(_) => TakeOutcome::Refused,
                    };
                    Outcome::GiveAway(shard, outcome)
                }));
            }
        }
    }

    fn set_rank(&self, shard: u32, rank: Rank) {
        if let Some(election) = self.elections.get(shard as usize) {
            election.shared().inbox.send(Input::Rank(rank));
        }
    }

    fn on_outcome(&mut self, outcome: Outcome) {
        let now = self.clock.now();
        match outcome {
            Outcome::Take(shard, outcome) => {
                self.telemetry.took(outcome);
                self.member.on_outcome(now, shard, outcome);
            }
            Outcome::GiveAway(shard, outcome) => {
                self.telemetry.gave(outcome);
                self.member.on_outcome(now, shard, outcome);
            }
            Outcome::Roll(answers) => self.on_roll(now, answers),
        }
    }

    fn on_roll(&mut self, now: Instant, answers: Result<Vec<CandidateInfo>, LockError>) {
        if let Err(error) = &answers {
            debug!(%error, "cannot call the roll of the set");
        }
        let before = self.member.others_shards();
        self.member.on_roll(now, answers.as_deref().ok());
        if let Some(others) = self.member.others_shards().filter(|o| Some(*o) != before) {
            self.shared.publish(ShardChange::OtherNumber { shards: others });
            warn!(
                own = self.elections.len(),
                others,
                "another member has another number of shards: acquiring none beside it; see resizing() and docs/sets.md"
            );
        }
    }

    fn checked(&mut self, result: Result<(), Arc<str>>) {
        let Some(health) = &mut self.health else { return };
        record(health, result);
        self.update_readiness();
    }

    fn update_readiness(&mut self) {
        // It would ask for shards that it cannot acquire.
        let refused = if self.refused.is_empty() { Readiness::Ready } else { Readiness::Unhealthy };
        let readiness = readiness(self.health.as_ref(), self.aside).max(refused);
        if self.shared.readiness.send_replace(readiness) != readiness {
            self.member.set_readiness(self.clock.now(), readiness);
            for election in &*self.elections {
                election.shared().inbox.send(Input::Readiness(readiness));
            }
        }
    }
}

fn outcome_of(shard: u32, answers: Result<Vec<CandidateInfo>, LockError>) -> TakeOutcome {
    let answers = match answers {
        Ok(answers) => answers,
        Err(error) => {
            debug!(shard, %error, "cannot ask for a shard");
            return TakeOutcome::NoAnswer;
        }
    };
    match answers.into_iter().find_map(|info| info.handover) {
        Some(HandoverAnswer::To(_)) => TakeOutcome::Accepted,
        Some(HandoverAnswer::Refused(why)) => {
            debug!(shard, "the leader keeps the shard: {why}");
            TakeOutcome::Refused
        }
        None => TakeOutcome::NoAnswer,
    }
}

/// The number of a shard each time that its status changes, and once at the beginning.
fn updates(elections: &[Election]) -> SelectAll<BoxStream<'static, u32>> {
    let update = |(shard, election): (u32, &Election)| {
        let mut status = election.shared().status.subscribe();
        status.mark_changed();
        stream::unfold(status, move |mut status| async move {
            status.changed().await;
            Some((shard, status))
        })
        .boxed()
    };
    (0..).zip(elections).map(update).collect()
}
