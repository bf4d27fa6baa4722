//! Runs one candidate against a lock and a clock.
//!
//! A hint or a timer wakes the driver; the driver passes the event and the time to the machine; the
//! machine returns actions; the driver performs them; their outcome is the next event.

pub(crate) mod callbacks;
#[cfg(all(feature = "sentinel", unix))]
mod crash_release;
pub(crate) mod health;
pub(crate) mod machine;
pub(crate) mod move_state;
mod moves;
#[cfg(feature = "_history")]
pub(crate) mod record;
mod roll_call;
#[cfg(all(feature = "sentinel", unix))]
pub mod sentinel;
pub(crate) mod set_part;
mod term;

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::{BoxFuture, Fuse};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, JoinSet};
use tracing::{Instrument, debug, info, info_span, warn};

use crate::driver::callbacks::{Callbacks, report_leaders};
use crate::driver::machine::StateMachine;
use crate::driver::move_state::{DriverMoves, MoveOptions, ReplyTo};
#[cfg(all(feature = "sentinel", unix))]
use crate::driver::sentinel::Registrations;
use crate::driver::set_part::SetPart;
use crate::election::change::Change;
use crate::election::claimed_checkpoint::{CheckpointError, ClaimedCheckpoint};
use crate::election::inbox::Input;
use crate::election::shared::Shared;
use crate::lock::{
    self, CandidateInfo, Hint, HintSink, Lock, LockError, LockErrorKind, Request, Subscription,
    Token,
};
use crate::protocol::{Action, Cause, Event, Leader, LockFailure, Refusal, Response, State};
use crate::telemetry::Telemetry;
use crate::time::clock::{Clock, Instant, Sleep, sleep_until_about};
use crate::util::text::{error_chain, escape_line};

/// The most bytes of another candidate's identity in a log line.
const MAX_IDENTITY_SHOWN: usize = 128;
/// How long a step-down notice, which has no response, may take to be sent.
const STEP_DOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// The most bytes of an error that are reported.
const MAX_ERROR_LEN: usize = 1_024;
/// Why a candidate acquires nothing that was started before the lock stated this.
const CHORIA_UNEXPECTED: &str = "the bucket states that Choria's candidates take part, and this candidate was started without that: set with_choria() (--with-choria, ?with-choria), or restart it";

/// What a candidate is made of.
pub(crate) struct CandidateParts {
    pub locks: Vec<Arc<dyn Lock>>,
    pub machine: StateMachine,
    pub callbacks: Callbacks,
    pub options: MoveOptions,
    /// Whether a term begins with the claim of the election's checkpoint.
    pub checkpoint: bool,
    #[cfg(all(feature = "sentinel", unix))]
    pub sentinel: sentinel::Sentinel,
}

/// Spawns the candidate. Its task ends after [`Input::Stop`].
pub(crate) fn spawn(runtime: &Handle, shared: Arc<Shared>, parts: CandidateParts) {
    let CandidateParts { locks, machine, callbacks, options, checkpoint, .. } = parts;
    let span = info_span!("election", name = %shared.name, identity = %shared.identity);
    let subscribed = |(index, lock): (usize, Arc<dyn Lock>)| {
        LockRequests::new(lock, &shared.name, shared.hint_sink(index))
    };
    let locks = locks.into_iter().enumerate().map(subscribed).collect();
    if let Some(callback) = callbacks.new_leader.clone() {
        let reports = report_leaders(Arc::clone(&shared), callback);
        runtime.spawn(reports.instrument(span.clone()));
    }
    let checks = options.check.clone().map(|check| {
        let inbox = shared.inbox.clone();
        let report = move |result| inbox.send(Input::Checked(result));
        let check = check.run(Arc::clone(&shared.clock), report);
        runtime.spawn(check.instrument(span.clone()))
    });
    let telemetry = Telemetry::new(&shared.name, &shared.identity, machine.settings().timing);
    let mut driver = Driver {
        locks,
        machine,
        callbacks: callbacks.boxed(),
        term: None,
        tasks: None,
        messages: None,
        campaigning: None,
        checks,
        moves: None,
        vacant_since: None,
        checkpoint,
        begun: false,
        finished: false,
        timer_first: false,
        sleep: sleep_until_about(Arc::clone(&shared.clock), Instant::ORIGIN),
        sleeps: false,
        set_part: options.share.clone().map(|share| Box::new(SetPart::new(share))),
        #[cfg(all(feature = "sentinel", unix))]
        registrations: Registrations::new(&shared.name, parts.sentinel, runtime).map(Box::new),
        shutdown: ShutdownGuard { telemetry, shared },
    };
    driver.begin_moves(&options);
    runtime.spawn(driver.instrument(span));
}

struct Driver {
    /// Almost always one.
    locks: Box<[LockRequests]>,
    machine: StateMachine,
    callbacks: Option<Box<Callbacks>>,
    /// The number of the current term, or of the last one.
    term: Option<NonZeroU64>,
    /// `None` until a term begins.
    tasks: Option<Box<TermTasks>>,
    /// Answers to roll calls that wait for their moment, or are being sent.
    #[allow(clippy::box_collection, reason = "a word for each election that nobody asks")]
    messages: Option<Box<JoinSet<()>>>,
    campaigning: Option<JoinHandle<()>>,
    /// The task that runs the check.
    checks: Option<JoinHandle<()>>,
    /// `None` until there is something to decide.
    moves: Option<Box<DriverMoves>>,
    vacant_since: Option<Instant>,
    /// Whether a term begins with the claim of the election's checkpoint.
    checkpoint: bool,
    begun: bool,
    finished: bool,
    /// Whether the timer is asked before the inputs.
    timer_first: bool,
    sleep: Sleep<Arc<dyn Clock>>,
    /// Whether it sleeps until anything.
    sleeps: bool,
    /// If the election is a shard of a set.
    set_part: Option<Box<SetPart>>,
    #[cfg(all(feature = "sentinel", unix))]
    registrations: Option<Box<Registrations>>,
    /// Last, as fields are dropped in order: the others still report to it.
    shutdown: ShutdownGuard,
}

/// What runs for a term of this candidate.
#[derive(Default)]
struct TermTasks {
    /// The task of `on_won`.
    work: Option<JoinHandle<()>>,
    /// The task of `on_drain`.
    draining: Option<JoinHandle<()>>,
    /// The claim of the checkpoint, before the term begins for others than the machine.
    claim: Option<Claim>,
    /// The end of the term.
    ending: Option<BoxFuture<'static, bool>>,
}

type ClaimOutcome = Result<Box<ClaimedCheckpoint>, CheckpointError>;

/// The claim of a term that has begun for the machine alone. The entry is renewed meanwhile.
struct Claim {
    token: Token,
    /// Of the term.
    deadline: Instant,
    outcome: Fuse<BoxFuture<'static, ClaimOutcome>>,
}

impl Claim {
    fn new(
        token: Token,
        deadline: Instant,
        outcome: impl Future<Output = ClaimOutcome> + Send + 'static,
    ) -> Self {
        let outcome: BoxFuture<'static, ClaimOutcome> = Box::pin(outcome);
        Self { token, deadline, outcome: futures_util::FutureExt::fuse(outcome) }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ClaimOutcome> {
        Pin::new(&mut self.outcome).poll(cx)
    }
}

/// Something that wakes a driver.
enum Wakeup {
    Input(Input),
    /// From this lock.
    Response(usize, CompletedRequest),
    TermEnded {
        work_stopped: bool,
    },
    /// The claim of the checkpoint.
    Claimed(ClaimOutcome),
    /// The call of `on_campaign` ended.
    Campaigned {
        panicked: bool,
    },
    /// To the call of the candidates that is under way.
    Answers(Result<Vec<CandidateInfo>, LockError>),
    /// The time for which it slept.
    Timer,
}

/// Runs the candidate until it has stopped. By hand, as an `async fn` would keep some 200 bytes
/// more for each election.
impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let driver = self.get_mut();
        if !std::mem::replace(&mut driver.begun, true) {
            driver.handle(Event::Start);
            driver.act();
        }
        while !driver.finished {
            let wakeup = ready!(driver.poll_wakeup(cx));
            driver.on_wakeup(wakeup);
            driver.act();
        }
        Poll::Ready(())
    }
}

impl Driver {
    /// Whatever comes first.
    fn poll_wakeup(&mut self, cx: &mut Context<'_>) -> Poll<Wakeup> {
        for (index, lock) in self.locks.iter_mut().enumerate() {
            if let Poll::Ready(completed) = lock.poll(cx) {
                return Poll::Ready(Wakeup::Response(index, completed));
            }
        }
        if let Some(tasks) = &mut self.tasks
            && let Some(ending) = &mut tasks.ending
            && let Poll::Ready(work_stopped) = ending.as_mut().poll(cx)
        {
            tasks.ending = None;
            return Poll::Ready(Wakeup::TermEnded { work_stopped });
        }
        if let Some(claim) = self.tasks.as_mut().and_then(|tasks| tasks.claim.as_mut())
            && let Poll::Ready(outcome) = claim.poll(cx)
        {
            return Poll::Ready(Wakeup::Claimed(outcome));
        }
        if let Some(task) = &mut self.campaigning
            && let Poll::Ready(end) = Pin::new(task).poll(cx)
        {
            self.campaigning = None;
            let panicked = end.is_err_and(|error| error.is_panic());
            return Poll::Ready(Wakeup::Campaigned { panicked });
        }
        if let Some(call) = self.moves.as_mut().and_then(|moves| moves.call.as_mut())
            && let Poll::Ready(answers) = call.0.as_mut().poll(cx)
        {
            return Poll::Ready(Wakeup::Answers(answers));
        }
        // Either may be ready again and again: neither is always asked first.
        self.timer_first = !self.timer_first;
        if self.timer_first && self.is_due(cx) {
            return Poll::Ready(Wakeup::Timer);
        }
        if let Poll::Ready(input) = self.shared().inbox.poll(cx) {
            return Poll::Ready(Wakeup::Input(input));
        }
        if !self.timer_first && self.is_due(cx) {
            return Poll::Ready(Wakeup::Timer);
        }
        Poll::Pending
    }

    fn is_due(&mut self, cx: &mut Context<'_>) -> bool {
        self.sleeps && Pin::new(&mut self.sleep).poll(cx).is_ready()
    }

    fn on_wakeup(&mut self, wakeup: Wakeup) {
        match wakeup {
            Wakeup::Input(input) => self.take(input),
            Wakeup::Response(lock, completed) => self.on_response(lock, completed),
            Wakeup::TermEnded { work_stopped } => self.handle(Event::TermEnded { work_stopped }),
            Wakeup::Claimed(outcome) => self.claimed(outcome),
            Wakeup::Campaigned { panicked } => {
                if panicked {
                    self.handle(Event::WorkEnded { panicked });
                }
            }
            Wakeup::Answers(answers) => self.on_move_answers(answers),
            Wakeup::Timer => self.wake(),
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Hint { lock, hint } => {
                self.shared().hints.took();
                match *hint {
                    Hint::RollCall(call) => self.on_roll_call(lock, call),
                    hint => self.handle_of(lock, Event::Hint(hint)),
                }
            }
            Input::HintsMissed => {
                for (lock, hint) in self.shared().hints.take_missed() {
                    self.handle_of(lock, Event::Hint(hint));
                }
            }
            Input::Resign { term } if term.is_none() || term == self.current() => {
                self.drain_before(Event::Resign);
            }
            Input::WorkEnded { term, panicked } if Some(term) == self.current() => {
                self.work_ended(panicked);
            }
            Input::Resign { .. } | Input::WorkEnded { .. } => {} // of a term that is over
            Input::HandOver { term, to, reply } if term.is_none() || term == self.current() => {
                self.hand_over(*to, ReplyTo::Caller(reply));
            }
            Input::HandOver { reply, .. } => {
                let _ = reply.send(Err(Refusal::NotLeading.into())); // the caller may have gone
            }
            Input::Give { to, reply } => self.give_away(to, ReplyTo::Caller(reply)),
            Input::Checked(result) => self.checked(result),
            Input::StandAside(aside) => self.stand_aside(aside),
            Input::Readiness(readiness) => self.set_member_readiness(readiness),
            Input::Rank(rank) => self.handle(Event::Rank(rank)),
            Input::Advertise(advertisement) => self.handle(Event::Advertise(advertisement)),
            Input::Stop => {
                self.shared().update(|status| status.stopping = true);
                self.drain_before(Event::Stop);
            }
            Input::EndDrain => self.end_drain(),
        }
    }

    fn on_response(&mut self, lock: usize, completed: CompletedRequest) {
        let CompletedRequest { id, sent, renews, response } = completed;
        if renews && matches!(response, Response::Written(Ok(_))) {
            let now = self.now();
            let deadline = self.shared().status.borrow().term.as_ref().map(|term| term.deadline());
            let left = deadline.map(|deadline| deadline.saturating_since(now));
            self.telemetry().renewed(now.saturating_since(sent), left);
        }
        self.handle_of(lock, Event::Response { id, response });
    }

    fn wake(&mut self) {
        let now = self.now();
        let due = self.machine.drain.due(now);
        self.handle(Event::Wake);
        self.handle_all(due);
    }

    fn handle(&mut self, event: Event) {
        self.handle_of(0, event);
    }

    /// `lock`: the lock that the hint or response belongs to.
    fn handle_of(&mut self, lock: usize, event: Event) {
        let now = self.now();
        for (index, lock) in self.locks.iter().enumerate() {
            let capabilities = lock.lock.capabilities();
            if self.machine.capabilities(index) != Some(&capabilities) {
                self.machine.handle(now, index, Event::Capabilities(capabilities));
            }
        }
        self.machine.handle(now, lock, event);
    }

    /// Does what the machine has decided, and sets the timer.
    fn act(&mut self) {
        // A member of a set has to know the leader of each shard.
        let (now, all) = (self.now(), self.set_part.is_some());
        for (index, lock) in self.locks.iter_mut().enumerate() {
            lock.want_all_hints(all || self.machine.wants_all_hints(now, index));
        }
        self.finished = self.perform_actions();
        if !self.finished {
            self.report_status(now);
        }
        #[cfg(all(feature = "sentinel", unix))]
        if let Some(registrations) = &mut self.registrations {
            registrations.update(self.machine.releasable());
        }
        if !self.finished {
            self.advance_moves();
            let wake = self.next_wake();
            self.sleeps = wake.map(|at| self.sleep.reset(at)).is_some();
        }
    }

    /// Performs all actions. Returns whether the candidate has stopped.
    fn perform_actions(&mut self) -> bool {
        let state = self.state();
        self.shared().status.send_if_modified(|status| {
            // A term begins and ends at once for all who ask: where it does.
            let of_term = state == State::Leader || status.term.is_some();
            !of_term && std::mem::replace(&mut status.state, state) != state
        });
        while let Some((lock, action)) = self.machine.poll_action() {
            match action {
                Action::Request { id, request } => self.ask(lock, id, request),
                Action::Begin { token, deadline } => self.begin(token, deadline),
                Action::Extend { deadline } if self.is_claiming() => self.extend_claim(deadline),
                Action::Extend { deadline } => {
                    let term = self.shared().status.borrow().term.clone();
                    if let Some(term) = term {
                        term.extend(deadline);
                    }
                }
                Action::End { cause, by } => self.end(cause, by),
                Action::Leader(leader) => self.leader_changed(lock, leader),
                Action::LockFailing(failure) => {
                    warn!(error = %failure.message, "requests to the lock fail");
                    self.set_lock_failure(Some(failure.clone()));
                    self.shared().publish(Change::LockFailing(failure));
                }
                Action::LockRecovered => {
                    info!("lock recovered");
                    self.set_lock_failure(None);
                    self.shared().publish(Change::LockRecovered);
                }
                Action::Finished => return true,
            }
        }
        false
    }

    fn ask(&mut self, lock: usize, id: u64, request: Request) {
        let (sent, name) = (self.now(), Arc::clone(&self.shared().name));
        let with_choria = self.machine.with_choria(lock);
        let Some(lock) = self.locks.get_mut(lock) else { return };
        let campaigns = matches!(request, Request::Write(_));
        lock.ask(id, sent, name, request, with_choria);
        if campaigns {
            self.telemetry().campaigned(self.state());
            let callback = self.callbacks.as_ref().and_then(|callbacks| callbacks.campaign.clone());
            if let (Some(callback), None) = (callback, &self.campaigning) {
                let state = self.state();
                let call = async move { callback(state).await };
                self.campaigning = Some(tokio::spawn(call.in_current_span()));
            }
        }
    }

    /// Shows what the machine has become.
    fn report_status(&mut self, now: Instant) {
        if let (Some(tokens), Some(term)) =
            (self.machine.tokens(), &self.shared().status.borrow().term)
        {
            term.set_tokens(tokens);
        }
        let state = self.state();
        let seen = self.machine.leader().map(|leader| leader.last_seen);
        let cool_down = self.machine.cool_down();
        let is_refused = self.machine.is_refused();
        let paused_until = self.machine.pause(now).map(|pause| pause.until_unix_ms);
        let (mut lock_fails, mut paused) = (false, false);
        self.shared().set_nonce(self.machine.settings().nonce);
        self.shared().status.send_if_modified(|status| {
            lock_fails = status.lock_failure.is_some();
            if let (Some(leader), Some(seen)) = (&mut status.leader, seen) {
                leader.last_seen = seen; // a renewal wakes no task
            }
            paused = status.paused_until_unix_ms != paused_until;
            status.paused_until_unix_ms = paused_until;
            let before = (status.state, status.cool_down, status.is_refused);
            let after = (state, cool_down, is_refused);
            (status.state, status.cool_down, status.is_refused) = after;
            paused || before != after
        });
        if paused {
            self.telemetry().paused_until(paused_until);
        }
        self.shutdown.telemetry.observe(now, state, self.machine.leader(), lock_fails);
        if self.machine.readiness() != self.readiness() {
            self.update_readiness();
        }
    }

    fn set_lock_failure(&self, failure: Option<LockFailure>) {
        self.telemetry().lock_up(failure.is_none());
        let mut term = None;
        self.shared().update(|status| {
            status.lock_failure.clone_from(&failure);
            term.clone_from(&status.term);
        });
        if let Some(term) = term {
            term.set_lock_failure(failure);
        }
    }

    fn leader_changed(&mut self, lock: usize, leader: Option<Leader>) {
        match &leader {
            Some(leader) if leader.is_me => {
                let now = self.now();
                let cool_down = self.machine.cool_down().filter(|(at, _)| *at > now);
                match cool_down {
                    Some((at, reason)) => {
                        let wait = at.saturating_since(now);
                        info!(?wait, %reason, "cooling down before leading");
                    }
                    None => debug!("holding the entry"),
                }
            }
            Some(leader) => {
                let identity = escape_line(&leader.identity, MAX_IDENTITY_SHOWN);
                info!(leader = %identity, token = ?leader.token.map(|t| t.0), "observed leader");
                let with_choria = self.machine.settings().with_choria;
                let capabilities = self.machine.capabilities(lock);
                let expires = capabilities.is_some_and(|lock| lock.expires_entries);
                if leader.token.is_none() && expires && !with_choria {
                    warn!(
                        leader = %identity,
                        "entry without a mark: waiting for the maximum lease. If Choria's candidates take part, set with_choria() (--with-choria, ?with-choria); else find what writes to the entry"
                    );
                }
            }
            None => debug!("no leader"),
        }
        self.vacant_since = match leader {
            Some(ref leader) if !leader.is_me || self.current().is_some() => None,
            _ => self.vacant_since.or_else(|| Some(self.now())),
        };
        self.shared().update(|status| status.leader.clone_from(&leader));
        self.shared().publish(Change::Leader(leader));
    }

    fn next_wake(&self) -> Option<Instant> {
        let wakes = [self.machine.next_wake(), self.machine.drain.until(), self.moves_wake()];
        wakes.into_iter().flatten().min()
    }

    /// The number of the current term, unless it is ending.
    fn current(&self) -> Option<NonZeroU64> {
        self.shared().status.borrow().term.as_ref().map(|term| term.number)
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.shutdown.shared
    }

    fn tasks(&mut self) -> &mut TermTasks {
        self.tasks.get_or_insert_default()
    }

    fn telemetry(&self) -> &Telemetry {
        &self.shutdown.telemetry
    }

    fn now(&self) -> Instant {
        self.shared().clock.now()
    }
}

/// A lock, and the request in flight to it.
struct LockRequests {
    lock: Arc<dyn Lock>,
    /// The request under way.
    request: Option<BoxFuture<'static, CompletedRequest>>,
    subscription: Subscription,
    wants_all_hints: bool,
}

/// A request that has its response.
struct CompletedRequest {
    id: u64,
    sent: Instant,
    /// Whether it was a renewal.
    renews: bool,
    response: Response,
}

impl LockRequests {
    fn new(lock: Arc<dyn Lock>, name: &str, sink: HintSink) -> Self {
        Self {
            request: None,
            subscription: lock.subscribe(name, sink),
            wants_all_hints: false,
            lock,
        }
    }

    /// Has all hints sent from now on, or a few where the lock can send few.
    fn want_all_hints(&mut self, wanted: bool) {
        if std::mem::replace(&mut self.wants_all_hints, wanted) != wanted {
            self.subscription.want_all(wanted);
        }
    }

    /// Begins a request, in the place of one that is under way. A create is refused where the lock
    /// has Choria's candidates, by what is known now, and this one keeps no time for them.
    fn ask(&mut self, id: u64, sent: Instant, name: Arc<str>, request: Request, with_choria: bool) {
        let renews = matches!(&request, Request::Write(write) if write.mark.token.is_some());
        let creates = !renews && matches!(request, Request::Write(_));
        let refused = creates && !with_choria && self.lock.timing().with_choria;
        let lock = Arc::clone(&self.lock);
        self.request = Some(Box::pin(async move {
            let response = match refused {
                true => Response::Written(Err(LockFailure::new(
                    LockErrorKind::Misconfigured,
                    CHORIA_UNEXPECTED,
                ))),
                false => perform(&*lock, &name, request).await,
            };
            CompletedRequest { id, sent, renews, response }
        }));
    }

    /// The response to the request under way.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CompletedRequest> {
        let Some(request) = &mut self.request else { return Poll::Pending };
        let completed = ready!(request.as_mut().poll(cx));
        self.request = None;
        Poll::Ready(completed)
    }
}

/// Sends a request, and returns its response.
async fn perform(lock: &dyn Lock, name: &str, request: Request) -> Response {
    match request {
        Request::Read { timeout } => {
            Response::Read(within(timeout, lock.read(name, timeout)).await)
        }
        Request::Write(write) => {
            Response::Written(within(write.timeout, lock.write(name, write)).await)
        }
        Request::Release(check) if check.is_check() => {
            let checked = lock.check_release(name, check.timeout);
            Response::Released(within(check.timeout, checked).await)
        }
        Request::Release(release) => {
            Response::Released(within(release.timeout, lock.release(name, release)).await)
        }
        Request::NotifyStepDown(notice) => {
            Response::Notified(within(STEP_DOWN_TIMEOUT, lock.notify_step_down(name, notice)).await)
        }
    }
}

/// Waits for a response, as [`lock::within`] does. The machine takes an error as text.
async fn within<T>(
    timeout: Duration,
    request: impl Future<Output = Result<T, LockError>>,
) -> Result<T, LockFailure> {
    lock::within(timeout, request).await.map_err(|error| {
        let message = error_chain(&error);
        LockFailure::new(error.kind(), escape_line(&message, MAX_ERROR_LEN))
    })
}

/// Ends the user's callbacks with the candidate, however its task ends.
impl Drop for Driver {
    fn drop(&mut self) {
        let of_term = self.tasks.take().unwrap_or_default();
        let tasks = [&of_term.work, &of_term.draining, &self.campaigning, &self.checks];
        for task in tasks.into_iter().flatten() {
            task.abort();
        }
    }
}

/// Why a term ended that its candidate did not end.
const GONE: &str = "the task of the candidate is gone: it panicked, or its runtime was shut down";

/// Announces the end of the candidate, however its task ends.
struct ShutdownGuard {
    shared: Arc<Shared>,
    telemetry: Telemetry,
}

impl Drop for ShutdownGuard {
    fn drop(&mut self) {
        let shared = &self.shared;
        // Before those who wait for a term are released.
        let term = shared.status.borrow().term.clone();
        if let Some(term) = term {
            let cause = Cause::Expired { last_error: Some(GONE.into()) };
            let loss = term.announce_end(cause, term.deadline());
            self.telemetry.lost(&loss.cause);
            term.close_span(&loss.cause);
            shared.publish(Change::Lost { token: loss.token, cause: loss.cause });
        }
        shared.leads_until.set(None);
        self.telemetry.finished(); // before a successor of the same name starts
        shared.update(|status| {
            status.finished = true;
            status.term = None;
            status.leader = None;
            status.cool_down = None;
            status.state = State::Unknown;
        });
        shared.close();
        shared.inbox.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With its span and what tokio adds, 144 bytes, ten times 128, to which tokio aligns tasks.
    #[test]
    fn a_driver_takes_little_memory() {
        let of_tests = if cfg!(feature = "_history") { 8 } else { 0 };
        assert!(size_of::<Driver>() <= 1_136 + of_tests, "{}", size_of::<Driver>());
    }
}
