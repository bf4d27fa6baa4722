//! Runs one candidate against a lock and a clock: the only place where the protocol meets tokio.
//!
//! A hint or a timer wakes the driver; the driver passes the event and the time to the machine; the
//! machine returns actions; the driver performs them; their outcome is the next event.

pub(crate) mod callbacks;
mod drain;
mod finish;
pub(crate) mod health;
pub(crate) mod machine;
pub(crate) mod move_state;
mod moves;
#[cfg(feature = "_history")]
pub(crate) mod record;
mod report;
pub(crate) mod requests;
mod roll_call;
#[cfg(all(feature = "sentinel", unix))]
pub mod sentinel;
pub(crate) mod set_part;
pub(crate) mod term_end;
mod terms;
mod wakeup;

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, JoinSet};
use tracing::{Instrument, info, info_span, warn};

use crate::driver::callbacks::{Callbacks, report_leaders};
use crate::driver::finish::Finish;
use crate::driver::machine::Machine;
use crate::driver::move_state::{DriverMoves, MoveOptions, ReplyTo};
use crate::driver::requests::{LockRequests, Settled};
#[cfg(all(feature = "sentinel", unix))]
use crate::driver::sentinel::Registrations;
use crate::driver::set_part::SetPart;
use crate::election::change::Change;
use crate::election::inbox::Input;
use crate::election::shared::Shared;
use crate::lock::{Hint, Lock, Request};
use crate::protocol::{Action, Event, Refusal, Response};
use crate::telemetry::Telemetry;
use crate::time::clock::{Clock, Instant, Sleep, sleep_until_about};

/// What a candidate is made of.
pub(crate) struct CandidateParts {
    pub locks: Vec<Arc<dyn Lock>>,
    pub machine: Machine,
    pub callbacks: Callbacks,
    pub options: MoveOptions,
    #[cfg(all(feature = "sentinel", unix))]
    pub sentinel: sentinel::Sentinel,
}

/// Spawns the candidate. Its task ends after [`Input::Stop`].
pub(crate) fn spawn(runtime: &Handle, shared: Arc<Shared>, parts: CandidateParts) {
    let CandidateParts { locks, machine, callbacks, options, .. } = parts;
    let span = info_span!("election", name = %shared.name, identity = %shared.identity);
    let subscribed = |(index, lock): (usize, Arc<dyn Lock>)| {
        LockRequests::new(lock, &shared.name, shared.hint_sink(index))
    };
    let requests_of = locks.into_iter().enumerate().map(subscribed).collect();
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
        requests_of,
        machine,
        callbacks: callbacks.boxed(),
        term: None,
        tasks: None,
        messages: None,
        campaigning: None,
        checks,
        moves: None,
        vacant_since: None,
        begun: false,
        finished: false,
        timer_first: false,
        sleep: sleep_until_about(Arc::clone(&shared.clock), Instant::ORIGIN),
        sleeps: false,
        set_part: options.share.clone().map(|share| Box::new(SetPart::new(share))),
        #[cfg(all(feature = "sentinel", unix))]
        registrations: Registrations::new(&shared.name, parts.sentinel, runtime).map(Box::new),
        finish: Finish { telemetry, shared },
    };
    driver.begin_moves(&options);
    runtime.spawn(driver.instrument(span));
}

struct Driver {
    /// Almost always one.
    requests_of: Box<[LockRequests]>,
    machine: Machine,
    callbacks: Option<Box<Callbacks>>,
    /// The number of the current term, or of the last one.
    term: Option<NonZeroU64>,
    /// `None` until a term begins.
    tasks: Option<Box<TermTasks>>,
    /// Answers to roll calls that wait for their moment, and calls whose answers nothing waits for.
    #[allow(clippy::box_collection, reason = "a word for each election that nobody asks")]
    messages: Option<Box<JoinSet<()>>>,
    campaigning: Option<JoinHandle<()>>,
    /// The task that runs the check.
    checks: Option<JoinHandle<()>>,
    /// `None` until there is something to decide.
    moves: Option<Box<DriverMoves>>,
    vacant_since: Option<Instant>,
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
    finish: Finish,
}

/// What runs for a term of this candidate.
#[derive(Default)]
struct TermTasks {
    /// The task of `on_won`.
    work: Option<JoinHandle<()>>,
    /// The task of `on_drain`.
    draining: Option<JoinHandle<()>>,
    /// The end of the term.
    ending: Option<BoxFuture<'static, bool>>,
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
    /// Does what the machine has decided, and sets the timer.
    fn act(&mut self) {
        self.finished = self.perform();
        if !self.finished {
            self.advance_moves();
            let wake = self.next_wake();
            self.sleeps = wake.map(|at| self.sleep.reset(at)).is_some();
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.finish.shared
    }

    fn tasks(&mut self) -> &mut TermTasks {
        self.tasks.get_or_insert_default()
    }

    fn telemetry(&self) -> &Telemetry {
        &self.finish.telemetry
    }

    fn now(&self) -> Instant {
        self.shared().clock.now()
    }

    fn handle(&mut self, event: Event) {
        self.handle_of(0, event);
    }

    /// `lock`: the lock that the hint or response belongs to.
    fn handle_of(&mut self, lock: usize, event: Event) {
        let now = self.now();
        for (index, requests_of) in self.requests_of.iter().enumerate() {
            let capabilities = requests_of.lock.capabilities();
            if self.machine.capabilities(index) != Some(&capabilities) {
                self.machine.handle(now, index, Event::Capabilities(capabilities));
            }
        }
        self.machine.handle(now, lock, event);
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
            Input::Checked(result) => self.checked(result),
            Input::StandAside(aside) => self.stand_aside(aside),
            Input::Standing(standing) => self.stand_as(standing),
            Input::Rank(rank) => self.handle(Event::Rank(rank)),
            Input::Advertise(advertisement) => self.handle(Event::Advertise(advertisement)),
            Input::Stop => {
                self.shared().update(|status| status.stopping = true);
                self.drain_before(Event::Stop);
            }
            Input::EndDrain => self.end_drain(),
        }
    }

    /// The number of the current term, unless it is ending.
    fn current(&self) -> Option<NonZeroU64> {
        self.shared().status.borrow().term.as_ref().map(|term| term.number)
    }

    fn on_response(&mut self, lock: usize, settled: Settled) {
        let Settled { id, sent, renews, response } = settled;
        if renews && matches!(response, Response::Written(Ok(_))) {
            let now = self.now();
            let deadline = self.shared().status.borrow().term.as_ref().map(|term| term.deadline());
            let left = deadline.map(|deadline| deadline.saturating_since(now));
            self.telemetry().renewed(now.saturating_since(sent), left);
        }
        self.handle_of(lock, Event::Response { id, response });
    }

    /// Performs all actions. Returns whether the candidate has stopped.
    fn perform(&mut self) -> bool {
        // A member of a set has to know the leader of each shard.
        let (now, all) = (self.now(), self.set_part.is_some());
        for (index, requests_of) in self.requests_of.iter_mut().enumerate() {
            requests_of.want_all_hints(all || self.machine.wants_all_hints(now, index));
        }
        let finished = self.perform_actions(now);
        #[cfg(all(feature = "sentinel", unix))]
        if let Some(registrations) = &mut self.registrations {
            registrations.update(self.machine.releasable());
        }
        finished
    }

    fn perform_actions(&mut self, now: Instant) -> bool {
        let state = self.machine.state();
        self.shared()
            .status
            .send_if_modified(|status| std::mem::replace(&mut status.state, state) != state);
        while let Some((lock, action)) = self.machine.poll_action() {
            match action {
                Action::Request { id, request } => self.ask(lock, id, request),
                Action::Begin { token, deadline } => self.begin(token, deadline),
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
        if let (Some(tokens), Some(term)) =
            (self.machine.tokens(), &self.shared().status.borrow().term)
        {
            term.set_tokens(tokens);
        }
        let state = self.machine.state();
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
        self.finish.telemetry.observe(now, state, self.machine.leader(), lock_fails);
        if self.machine.standing() != self.standing() {
            self.update_standing();
        }
        false
    }

    fn ask(&mut self, lock: usize, id: u64, request: Request) {
        let (sent, name) = (self.now(), Arc::clone(&self.shared().name));
        let Some(requests_of) = self.requests_of.get_mut(lock) else { return };
        let campaigns = matches!(request, Request::Write(_));
        requests_of.ask(id, sent, name, request);
        if campaigns {
            self.telemetry().campaigned(self.machine.state());
            let callback = self.callbacks.as_ref().and_then(|callbacks| callbacks.campaign.clone());
            if let (Some(callback), None) = (callback, &self.campaigning) {
                let state = self.machine.state();
                let call = async move { callback(state).await };
                self.campaigning = Some(tokio::spawn(call.in_current_span()));
            }
        }
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
