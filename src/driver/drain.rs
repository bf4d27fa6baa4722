//! The drain of a term: what the driver adds to [`Drain`](crate::protocol::Drain).

use tracing::{Instrument, info};

use super::Driver;
use super::callbacks::call;
use crate::election::change::Change;
use crate::election::drain_notice::DrainNotice;
use crate::election::term::Term;
use crate::protocol::Event;
use crate::time::clock::Instant;

impl Driver {
    /// Resigns or stops, after the work of the term has come to its end where that is set.
    pub(super) fn drain_before(&mut self, event: Event) {
        let term = self.shared().status.borrow().term.clone();
        let works = term.as_ref().is_some_and(|term| term.is_held());
        if let Some(event) = self.machine.drain.hold(self.now(), event, works) {
            return self.handle(event);
        }
        let (Some(until), Some(term)) = (self.machine.drain.until(), term) else { return };
        if let Some(notice) = term.announce_drain(until) {
            self.handle(Event::Drains);
            self.report_drain(&term, notice);
        }
    }

    fn report_drain(&mut self, term: &Term, notice: DrainNotice) {
        let (token, until) = (notice.token, notice.until);
        let within = until.saturating_since(self.now());
        term.span().in_scope(|| info!(%token, ?within, "draining"));
        self.telemetry().draining();
        self.shared().update(|_| {}); // shows that the term drains
        self.shared().publish(Change::Draining { token, until });
        let callback = self.callbacks.as_ref().and_then(|callbacks| callbacks.drain.clone());
        let Some(callback) = callback else { return };
        let call = async move { call(&callback, notice, "on_drain").await };
        self.tasks().draining = Some(tokio::spawn(call.instrument(term.span())));
    }

    /// The work of the term has ended, and with it a drain.
    pub(super) fn work_ended(&mut self, panicked: bool) {
        let drained = if panicked { Vec::new() } else { self.machine.drain.end() };
        if drained.is_empty() {
            return self.handle(Event::WorkEnded { panicked });
        }
        self.handle_all(drained);
    }

    /// Nobody waits for the drain any longer.
    pub(super) fn end_drain(&mut self) {
        let held = self.machine.drain.end();
        self.handle_all(held);
    }

    fn handle_all(&mut self, events: Vec<Event>) {
        for event in events {
            self.handle(event);
        }
    }

    /// Ends all waits for the drain: the term has ended, for whatever cause.
    pub(super) fn drain_is_over(&mut self) {
        if let Some(call) = self.tasks().draining.take() {
            call.abort();
        }
        self.end_drain();
    }

    pub(super) fn wake(&mut self) {
        let now = self.now();
        let due = self.machine.drain.due(now);
        self.handle(Event::Wake);
        self.handle_all(due);
    }

    pub(super) fn next_wake(&self) -> Option<Instant> {
        let wakes = [self.machine.next_wake(), self.machine.drain.until(), self.moves_wake()];
        wakes.into_iter().flatten().min()
    }
}
